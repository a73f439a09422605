// The levels of a graph: modules within modules, kernels within these, nodes within kernels. A node's module is the range of the program that
// recorded it; where there are none, the dotted names of inputs say it: what reads layers.3.attention.wq.weight is in layers.3, attention, wq.
import { origins } from "./node_details";
import type { Graph, Program } from "./record";

export interface Group {
  path: string; // "layers.3/attention"; "" is the whole graph
  title: string;
  parent?: Group;
  groups: Group[];
  nodes: number[]; // places in the graph's nodes, of this group alone
  all: number[]; // and of the groups in it
  kernel?: number; // a launch
}

type Path = string[];

/// "layers.3.attention.wq.weight" is in layers.3, attention, wq.
export function moduleOfName(name: string): Path {
  const path: Path = [];
  for (const part of name.split(".").slice(0, -1))
    if (/^\d+$/.test(part) && path.length > 0) path[path.length - 1] += `.${part}`;
    else path.push(part);
  return path;
}

/// Members of a list follow one another: layers.3 is behind layers.2.
const isMember = (part: string) => /\d$/.test(part);

/// The module of what reads values of two modules; `order` says which of two came first.
function joined(a: Path, b: Path, order: (path: Path) => number): Path {
  if (a.length === 0 || b.length === 0) return a.length > 0 ? a : b;
  let same = 0;
  while (same < a.length && same < b.length && a[same] === b[same]) ++same;
  if (same === a.length || same === b.length) return a.slice(0, same);
  const member = isMember(a[same]) || isMember(b[same]);
  if (!member && same > 0) return a.slice(0, same);
  const [one, other] = [a.slice(0, same + 1), b.slice(0, same + 1)];
  if (isMember(a[same]) !== isMember(b[same])) return isMember(a[same]) ? one : other;
  return order(one) > order(other) ? one : other;
}

/// By place in the graph's nodes.
function modulesByName(program: Program, graph: Graph): Path[] {
  const first = new Map<string, number>(); // of a module and of those that it is in, the first input
  graph.nodes.forEach((node, place) => {
    const path = moduleOfName(program.nodes[node].name ?? "");
    for (let i = 1; i <= path.length; ++i) {
      const key = path.slice(0, i).join("/");
      if (!first.has(key)) first.set(key, place);
    }
  });
  const order = (path: Path) => first.get(path.join("/")) ?? -1;
  const placeOf = new Map(graph.nodes.map((node, place) => [node, place]));
  const modules: Path[] = [];
  const parameter: boolean[] = []; // made of one module's inputs alone
  graph.nodes.forEach((node, place) => {
    const one = program.nodes[node];
    const reads = one.operands.map((operand) => placeOf.get(operand)!);
    if (one.op === "input") {
      modules[place] = moduleOfName(one.name ?? "");
      parameter[place] = modules[place].length > 0;
      return;
    }
    const own = reads.filter((at) => parameter[at]);
    parameter[place] = own.length > 0 && own.length === reads.length && reads.every((at) => modules[at].join("/") === modules[reads[0]].join("/"));
    modules[place] = (own.length > 0 ? own : reads).map((at) => modules[at]).reduce((a, b) => joined(a, b, order), []);
  });
  return modules;
}

/// Where the program said it: of what passes made, where the last node was whose place it took.
function modulesByRange(program: Program, graph: Graph): Path[] | undefined {
  if (!program.nodes.some((node) => node?.within)) return undefined;
  return graph.nodes.map((node) => {
    const named = origins(program, node).filter((one) => one.within);
    return named.length > 0 ? named[named.length - 1].within!.split("/") : [];
  });
}

/// What all modules begin with says nothing.
function withoutCommonBeginning(paths: Path[]): Path[] {
  const named = paths.filter((path) => path.length > 0);
  let common = 0;
  while (named.length > 0 && named.every((path) => path.length > common + 1 && path[common] === named[0][common])) ++common;
  return paths.map((path) => path.slice(common));
}

const kNumbers = "numbers";
/// What only moves values belongs to what reads it.
const kMovement = /^(reshape|permute|expand|pad|shrink|flip)$/;

/// Numbers, and what is made of them alone, as masks and frequencies are: they are no part of any module.
function ofNumbersAlone(program: Program, graph: Graph, operands: number[][]): boolean[] {
  const alone: boolean[] = [];
  graph.nodes.forEach((node, place) => {
    const { op, type } = program.nodes[node];
    alone[place] = op === "input" ? !/\[.+\]/.test(type) : operands[place].every((at) => alone[at]);
  });
  return alone;
}

/// The module or kernel of each node, by place. What has none is where all that reads it is; numbers that several read are a group.
function pathsOf(program: Program, graph: Graph, operands: number[][], launches: Map<number, number>): Path[] {
  const paths = withoutCommonBeginning(modulesByRange(program, graph) ?? modulesByName(program, graph));
  const moduleOfLaunch = new Map<number, Path>(); // that of its last node
  graph.nodes.forEach((node, place) => {
    const launch = launches.get(node);
    if (launch !== undefined) moduleOfLaunch.set(launch, paths[place]);
  });
  graph.nodes.forEach((node, place) => {
    const launch = launches.get(node);
    if (launch !== undefined) paths[place] = [...moduleOfLaunch.get(launch)!, kernelTitle(program, launch)];
  });
  if (paths.every((path) => path.length === 0)) return paths;
  const alone = ofNumbersAlone(program, graph, operands);
  const wanted: (Path | undefined)[] = []; // where all readers of a node are
  for (let place = graph.nodes.length - 1; place >= 0; --place) {
    const free = paths[place].length === 0 || alone[place] || kMovement.test(program.nodes[graph.nodes[place]].op);
    if (free && launches.get(graph.nodes[place]) === undefined) {
      const path = wanted[place] ?? [];
      paths[place] = path.length > 0 ? path : alone[place] ? [kNumbers] : paths[place];
    }
    for (const at of operands[place]) {
      const path = paths[place];
      const other = wanted[at];
      let same = 0;
      while (other && same < other.length && other[same] === path[same]) ++same;
      wanted[at] = other ? other.slice(0, same) : path;
    }
  }
  // An input that several modules read, as a weight that is updated, is in the first one's.
  const first: number[] = []; // by place, its first reader
  operands.forEach((reads, to) => reads.forEach((at) => (first[at] ??= to)));
  for (let place = graph.nodes.length - 1; place >= 0; --place) {
    const { op } = program.nodes[graph.nodes[place]];
    if (paths[place].length > 0 || first[place] === undefined || op !== "input") continue;
    const launch = launches.get(graph.nodes[first[place]]);
    paths[place] = launch === undefined ? paths[first[place]] : moduleOfLaunch.get(launch)!;
  }
  return paths;
}

const kernelTitle = (program: Program, launch: number) => `${launch} ${program.report!.kernels[launch].name}`;

/// The whole graph as a group; undefined where it has neither modules nor kernels. `operands` by place.
export function levelsOf(program: Program, graph: Graph, operands: number[][]): Group | undefined {
  const launches = program.plan && program.graphs[program.plan.graph] === graph ? program.launchOfNode() : new Map<number, number>();
  const paths = pathsOf(program, graph, operands, launches);
  if (paths.every((path) => path.length === 0)) return undefined;
  const whole: Group = { path: "", title: "whole graph", groups: [], nodes: [], all: [] };
  const known = new Map<string, Group>([["", whole]]);
  const kernels = new Map(program.report?.kernels.map((_, launch) => [kernelTitle(program, launch), launch]) ?? []);
  const within = (parent: Group, part: string): Group => {
    const path = parent.path === "" ? part : `${parent.path}/${part}`;
    let group = known.get(path);
    if (!group) {
      group = { path, title: part, parent, groups: [], nodes: [], all: [], kernel: launches.size > 0 ? kernels.get(part) : undefined };
      parent.groups.push(group);
      known.set(path, group);
    }
    return group;
  };
  paths.forEach((path, place) => {
    let group = whole;
    group.all.push(place);
    for (const part of path) {
      group = within(group, part);
      group.all.push(place);
    }
    group.nodes.push(place);
  });
  return whole;
}

/// All groups by path.
export function groupsByPath(whole: Group): Map<string, Group> {
  const found = new Map<string, Group>();
  const open = [whole];
  for (let group = open.pop(); group; group = open.pop()) {
    found.set(group.path, group);
    open.push(...group.groups);
  }
  return found;
}

/// A box of an opened group: a node or group in it, or one beside it that is read or reads.
export interface LevelBox {
  group?: Group;
  place?: number; // a node's
  outside?: "read" | "reads";
  reads: number[]; // places of boxes before it
  manyReaders?: number; // whose edges are left out: they would hide all others
}

const kMostReaders = 8;

/// Leaves out the edges of boxes that many read, but for those that are a reader's only ones.
function withoutCommonReads(boxes: LevelBox[]): void {
  const readers = boxes.map(() => 0);
  for (const { reads } of boxes) for (const read of reads) ++readers[read];
  const common = readers.map((count) => count > kMostReaders);
  for (const box of boxes) {
    const own = box.reads.filter((read) => !common[read]);
    if (own.length > 0) box.reads = own;
  }
  boxes.forEach((box, i) => common[i] && (box.manyReaders = readers[i]));
}

/// What is drawn of an opened group, each box behind those that it reads, and how many edges lead back: groups may read one another.
export function boxesOf(whole: Group, opened: Group, operands: number[][], isInput: (place: number) => boolean): { boxes: LevelBox[]; back: number } {
  const owner: Group[] = [];
  for (const group of groupsByPath(whole).values()) for (const place of group.nodes) owner[place] = group;
  const above = new Set<Group>();
  for (let group: Group | undefined = opened; group; group = group.parent) above.add(group);
  type Seen = Group | number;
  /// The box that stands for a node: the largest group that has it and is not open.
  const standsFor = (place: number): Seen => {
    let seen: Seen = place;
    for (let group: Group | undefined = owner[place]; group && !above.has(group); group = group.parent) seen = group;
    return seen;
  };
  const inside = new Set<Seen>([...opened.groups, ...opened.nodes]);
  const last = (one: Seen): number => {
    if (typeof one === "number") return isInput(one) ? -1 : one;
    for (let i = one.all.length - 1; i >= 0; --i) if (!isInput(one.all[i])) return one.all[i];
    return -1;
  };
  const edges = new Map<Seen, Set<Seen>>();
  const before = new Set<Seen>();
  const behind = new Set<Seen>();
  operands.forEach((reads, to) => {
    const reader = standsFor(to);
    for (const from of reads) {
      const read = standsFor(from);
      if (read === reader || (!inside.has(read) && !inside.has(reader))) continue;
      if (!inside.has(read)) before.add(read);
      if (!inside.has(reader)) {
        behind.add(reader);
        (edges.get(reader) ?? edges.set(reader, new Set()).get(reader)!).add(read);
        continue;
      }
      (edges.get(reader) ?? edges.set(reader, new Set()).get(reader)!).add(read);
    }
  });
  const byLast = (all: Iterable<Seen>) => [...all].map((one): [Seen, number] => [one, last(one)]).sort((a, b) => a[1] - b[1]).map(([one]) => one);
  const boxes: LevelBox[] = [];
  const placeOf = new Map<Seen, number>();
  let back = 0;
  const add = (one: Seen, outside?: "read" | "reads") => {
    const wanted = outside === "read" ? [] : [...(edges.get(one) ?? [])];
    const reads = wanted.map((read) => placeOf.get(read)).filter((read) => read !== undefined);
    back += wanted.length - reads.length;
    if (outside !== "reads" || !placeOf.has(one)) placeOf.set(one, boxes.length);
    boxes.push({ ...(typeof one === "number" ? { place: one } : { group: one }), outside, reads });
  };
  for (const one of byLast(before)) add(one, "read");
  for (const one of byLast(inside)) add(one);
  for (const one of byLast(behind)) add(one, "reads");
  withoutCommonReads(boxes);
  return { boxes, back };
}
