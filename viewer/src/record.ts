// A record's lines as objects (docs/seeing.md has the format).

export interface GraphNode {
  node: number;
  op: string;
  type: string;
  operands: number[];
  name?: string;
  attrs?: string;
  source?: number;
  line?: number;
  within?: string; // the ranges of the program that recorded it, "encoder/layer 3"
  pass?: string;
  replaces?: number[];
  rules?: string[]; // without which it would not be there; absent: not asked
}
export interface Graph {
  graph: number;
  nodes: number[]; // by NodeId
  outputs: number[];
}
export interface Pass {
  pass: string;
  phase: string;
  what: string;
  fusion_plan?: string;
  begin: number;
  seconds: number;
  changed: boolean;
  graphs: number[];
  text?: string;
  before?: string;
}
export interface Kernel {
  kernel: number;
  name: string;
  form: string;
  schedule: string;
  region: string;
  tree: string;
  loops: string;
  code?: string;
  assembly?: string; // absent: it is part of the code, or unknown
  use?: CodeUse;
}
/// What a launch takes of a multiprocessor.
export interface CodeUse {
  registers: number; // of a thread
  stack_bytes: number;
  spill_stores: number;
  spill_loads: number;
  shared_bytes: number; // of a block
  threads: number;
  blocks: number; // that a multiprocessor holds; 0: unknown
  occupancy: number;
}
export interface Slot {
  kind: "input" | "output" | "state" | "arena";
  type: string;
  bytes: number;
  first_step: number;
  last_step: number;
  offset?: number;
  number?: number;
}
export interface Step {
  kind: string;
  kernel?: number;
  nodes?: number[];
  reads: number[];
  writes: number[];
  workspaces: number[];
}
export interface Plan {
  graph: number;
  arena_bytes: number;
  liveness_bound_bytes: number;
  slots: Slot[];
  steps: Step[];
}
export interface KernelReport {
  name: string;
  form: string;
  schedule: string;
  nodes: number[];
  ops: string[];
  bytes_read: number;
  bytes_written: number;
  flops: number;
  predicted_seconds: number;
  measured_seconds: number;
}
export interface Candidate {
  schedule: string;
  state: string;
  message: string;
  predicted_seconds: number;
  seconds: number;
  ratio: number;
}
export interface RegionSearch {
  name: string;
  cache_hit: boolean;
  note: string;
  chosen: string;
  greedy_seconds: number;
  seconds: number;
  search_seconds: number;
  candidates: Candidate[];
}
export interface Rule {
  rule: string;
  group: string;
  tag: string;
  fired: number;
  rows_added: number;
  seconds: number;
}
export interface Report {
  kernels: KernelReport[];
  not_fused: { producer: number; consumer: number; why: string }[];
  saturation?: { classes: number; nodes: number; rounds: number; saturated: boolean; stopped: string; rules: Rule[] };
  ops_before_rules?: number;
  ops_extracted?: number;
  search?: {
    effort: string;
    note: string;
    seconds: number;
    machine: { bytes_per_second: number; flops_per_second: number };
    fusion_plan: string;
    fusion_plans: { what: string; state: string; predicted_ratio: number; seconds: number; ratio: number }[];
    regions: RegionSearch[];
  };
}
/// An e-node as it was made: its class and operands may have been joined to others since.
export interface ENode {
  op: string;
  attrs?: string;
  operands: number[];
  class: number;
  step: number;
  rule?: number; // absent: it was given
  cost: number; // bytes, as the extraction counts them
  chosen?: boolean;
}
export interface Join {
  class: number;
  into: number;
  step: number;
  rule?: number; // absent: two of its e-nodes had become equal
}
export interface EGraphRecord {
  graph: number;
  extracted: number;
  rules: string[];
  steps: { round: number; group: string }[];
  enodes: ENode[];
  joins: Join[];
  types: [number, string][];
  classes: [number, number][]; // nodes of the graphs with their e-classes
  left_out: number;
}
/// What a user of display() marked, the last one of a node on top.
export interface NodeMark {
  nodes: number[];
  colour: string; // "#rrggbb"
  note: string;
}
export interface Launch {
  launch: number;
  begin: number;
  seconds: number;
}
/// Between the host and devices, or within one.
export interface Copy {
  what: string;
  bytes: number;
  begin: number;
  seconds: number;
}
/// Of the program, by the name of its user.
export interface Range {
  path: string; // "step/forward"
  begin: number;
  seconds: number;
}
/// What a device's memory held from then on.
export interface MemoryAt {
  device: string;
  at: number;
  in_use: number;
  reserved: number;
}
export interface Source {
  file: string;
  text: string;
}

export class Program {
  nodes: GraphNode[] = [];
  graphs: Graph[] = [];
  passes: Pass[] = [];
  kernels: Kernel[] = [];
  launches: Launch[] = [];
  plan?: Plan;
  report?: Report;
  egraph?: EGraphRecord;
  marks: NodeMark[] = [];
  end?: number;
  failed?: string;
  constructor(
    readonly number: number,
    readonly device: string,
    readonly effort: string,
    readonly begin: number,
  ) {}

  /// By node, the launch (place among the plan's launches) that computes it, for nodes of the final graph.
  launchOfNode(): Map<number, number> {
    const found = new Map<number, number>();
    const graph = this.plan && this.graphs[this.plan.graph];
    this.report?.kernels.forEach((kernel, launch) => {
      for (const id of kernel.nodes) {
        const node = graph?.nodes[id];
        if (node !== undefined && !found.has(node)) found.set(node, launch);
      }
    });
    return found;
  }

  /// Steps of the plan that launch, in order: launch i is the i-th of them.
  launchSteps(): { step: Step; place: number }[] {
    return (this.plan?.steps ?? [])
      .map((step, place) => ({ step, place }))
      .filter(({ step }) => step.kind === "launch");
  }

  /// Seconds of a launch: the fastest one that ran, or what the search measured, or the prediction.
  launchSeconds(launch: number): { seconds: number; how: "ran" | "measured" | "predicted" } {
    let least = Infinity;
    for (const ran of this.launches) if (ran.launch === launch) least = Math.min(least, ran.seconds);
    if (least < Infinity) return { seconds: least, how: "ran" };
    const kernel = this.report!.kernels[launch];
    return kernel.measured_seconds > 0
      ? { seconds: kernel.measured_seconds, how: "measured" }
      : { seconds: kernel.predicted_seconds, how: "predicted" };
  }
}

export interface Record {
  programs: Program[];
  sources: Source[];
  copies: Copy[];
  ranges: Range[];
  memory: MemoryAt[];
  complete: boolean;
}

/// Throws an Error that says what is wrong with the record.
export function parseRecord(text: string): Record {
  const record: Record = { programs: [], sources: [], copies: [], ranges: [], memory: [], complete: false };
  const programOf = (number: number): Program => {
    const program = record.programs[number];
    if (!program) throw new Error(`there is no program ${number}`);
    return program;
  };
  text.split("\n").forEach((line, i) => {
    if (line === "") return;
    try {
      read(JSON.parse(line));
    } catch (error) {
      throw new Error(`line ${i + 1} of the record: ${(error as Error).message}`);
    }
  });
  return record;

  /// A number that follows those in the list, or nearly: programs of several threads begin in any order.
  function next(value: unknown, list: unknown[]): number {
    if (!Number.isInteger(value) || (value as number) < 0 || (value as number) > list.length + 64) throw new Error(`${value} is no number of what follows`);
    return value as number;
  }

  function numbers(value: unknown, below: number): number[] {
    if (!Array.isArray(value) || !value.every((one) => Number.isInteger(one) && one >= 0 && one < below)) throw new Error("a number refers to nothing above");
    return value;
  }

  function finite(...values: unknown[]): void {
    if (!values.every((one) => typeof one === "number" && Number.isFinite(one))) throw new Error("a time or size is no number");
  }

  function checkEGraph(e: any, program: Program): void {
    numbers([e.graph, e.extracted], program.graphs.length);
    for (const list of ["rules", "steps", "enodes", "joins", "types", "classes"]) if (!Array.isArray(e[list])) throw new Error(`an e-graph without ${list}`);
    for (const one of e.enodes) {
      numbers([one.step], e.steps.length);
      numbers(one.rule === undefined ? [] : [one.rule], e.rules.length);
      numbers([one.class, ...one.operands], 2 ** 32);
    }
    for (const one of e.joins) {
      numbers([one.step], e.steps.length);
      numbers(one.rule === undefined ? [] : [one.rule], e.rules.length);
      numbers([one.class, one.into], 2 ** 32);
      if (one.into >= one.class) throw new Error("a class is joined to a newer one");
    }
    for (const [node] of e.classes) numbers([node], program.nodes.length);
  }

  function read(e: any): void {
    switch (e.event) {
      case "source":
        record.sources[next(e.source, record.sources)] = e;
        break;
      case "program":
        record.programs[next(e.program, record.programs)] = new Program(e.program, e.device, e.effort, e.begin);
        break;
      case "node": {
        const { nodes } = programOf(e.program);
        if (e.node !== nodes.length) throw new Error(`node ${e.node} follows node ${nodes.length - 1}`);
        numbers(e.operands, nodes.length);
        numbers(e.replaces ?? [], nodes.length);
        nodes.push(e);
        break;
      }
      case "rules":
        for (const { node, rules } of e.nodes) programOf(e.program).nodes[node].rules = rules;
        break;
      case "lines":
        for (const { node, source, line, within } of e.nodes) {
          const { nodes } = programOf(e.program);
          numbers([node], nodes.length);
          if (source !== undefined) numbers([source], record.sources.length);
          Object.assign(nodes[node], { source, line, within });
        }
        break;
      case "egraph":
        checkEGraph(e, programOf(e.program));
        programOf(e.program).egraph = e;
        break;
      case "marks":
        for (const mark of e.marks) {
          numbers(mark.nodes, programOf(e.program).nodes.length);
          if (!/^#[0-9a-fA-F]{6}$/.test(mark.colour) || typeof mark.note !== "string") throw new Error("a mark without a colour or a note");
        }
        programOf(e.program).marks = e.marks;
        break;
      case "graph": {
        const program = programOf(e.program);
        if (e.graph !== program.graphs.length) throw new Error(`graph ${e.graph} follows graph ${program.graphs.length - 1}`);
        numbers(e.nodes, program.nodes.length);
        numbers(e.outputs, program.nodes.length);
        program.graphs.push(e);
        break;
      }
      case "pass":
        numbers(e.graphs, programOf(e.program).graphs.length);
        programOf(e.program).passes.push(e);
        break;
      case "kernel":
        programOf(e.program).kernels[next(e.kernel, programOf(e.program).kernels)] = e;
        break;
      case "plan":
        numbers([e.graph], programOf(e.program).graphs.length);
        programOf(e.program).plan = e;
        break;
      case "report":
        programOf(e.program).report = e.report;
        programOf(e.program).end = e.end;
        break;
      case "failed":
        programOf(e.program).failed = e.message;
        break;
      case "launch":
        programOf(e.program).launches.push(e);
        break;
      case "copy":
        finite(e.bytes, e.begin, e.seconds);
        record.copies.push(e);
        break;
      case "range":
        finite(e.begin, e.seconds);
        if (typeof e.path !== "string") throw new Error("a range without a name");
        record.ranges.push(e);
        break;
      case "memory":
        finite(e.at, e.in_use, e.reserved);
        record.memory.push(e);
        break;
      case "end":
        record.complete = true;
        break;
    }
  }
}
