// The graph page: any graph of the compilation, all of its nodes or level by level, or the launches of the plan with the memory between them.
import { h, s, share, time, walked } from "./dom";
import { GraphCanvas, type Item } from "./graph_canvas";
import { boxesOf, groupsByPath, levelsOf, type Group } from "./levels";
import { nodeDetails } from "./node_details";
import { launchesPage } from "./page_launches";
import type { View } from "./place";
import type { Graph, Program } from "./record";

const kMostFound = 60;

/// Names of graphs, by number: the pass that first gave it.
export function graphNames(program: Program): string[] {
  const names = program.graphs.map((_, i) => (i === 0 ? "as recorded" : `graph ${i}`));
  const named = new Set([0]);
  for (const pass of program.passes)
    pass.graphs.forEach((graph, i) => {
      if (named.has(graph)) return;
      named.add(graph);
      names[graph] = `after ${pass.pass}${pass.graphs.length > 1 ? `, candidate ${i + 1}` : ""}`;
    });
  if (program.plan && program.plan.graph > 0) names[program.plan.graph] += " (compiled)";
  return names;
}

const kClasses: [RegExp, number][] = [
  [/^(input)$/, 0],
  [/^(const|iota)$/, 1],
  [/^(reshape|permute|expand|pad|shrink|flip)$/, 2],
  [/^(sum|prod|max|min|any|all|argmax|argmin|reduce|cum|argsort|.*_scan)/, 4],
  [/^(gather|scatter)/, 5],
  [/^(cast|bitcast)$/, 6],
];
const kClassNames = ["inputs", "constants", "movements", "elementwise", "reductions, scans", "gather, scatter", "casts"];

export function classOf(op: string): number {
  return kClasses.find(([pattern]) => pattern.test(op))?.[1] ?? 3;
}

export function graphPage(view: View): HTMLElement {
  const { program, place } = view;
  const fallback = program.plan ? String(program.plan.graph) : String(program.graphs.length - 1);
  const shown = place.graph === "launches" && program.plan ? "launches" : program.graphs[Number(place.graph ?? fallback)] ? (place.graph ?? fallback) : fallback;
  const choice = h(
    "select",
    { "aria-label": "Which graph", id: "which", change: (event: Event) => view.go({ graph: (event.target as HTMLSelectElement).value, node: undefined }) },
    ...graphNames(program).map((name, i) => h("option", { value: i, selected: shown === String(i) }, `${name}: ${program.graphs[i].nodes.length} nodes`)),
    program.plan && h("option", { value: "launches", selected: shown === "launches" }, `launches: ${program.launchSteps().length} kernels and their memory`),
  );
  return shown === "launches" ? launchesPage(view, choice) : nodesPage(view, Number(shown), choice);
}

/// Larger graphs are shown by their levels first.
const kMostAtOnce = 400;
const kGroups = 2 ** 34; // ids of groups in the drawing begin here

/// Kinds of modules, as of all layers: their names without numbers.
const kindOfModule = (title: string) => title.replace(/[\d.]+$/, "");

function nodesPage(view: View, number: number, choice: HTMLElement): HTMLElement {
  const { program, place } = view;
  const graph = program.graphs[number];
  const inGraph = new Set(graph.nodes);
  const launches = program.launchOfNode();
  const colour = place.colour ?? (program.marks.length > 0 ? "marks" : "op");
  const markOf = new Map(program.marks.flatMap((mark) => mark.nodes.map((node) => [node, mark] as const)));
  const passes = [...new Set(graph.nodes.map((node) => program.nodes[node].pass ?? "the program"))];
  const colourOf = (node: number): number => {
    if (colour === "marks") return -1;
    if (colour === "kernel") return launches.get(node) ?? -1;
    if (colour === "pass") return passes.indexOf(program.nodes[node].pass ?? "the program") - 1;
    return classOf(program.nodes[node].op);
  };
  const position = new Map(graph.nodes.map((node, i) => [node, i]));
  const operands = graph.nodes.map((node) => program.nodes[node].operands.map((operand) => position.get(operand)!));
  const outputs = new Set(graph.outputs);
  const itemOf = (node: number): Item => {
    const one = program.nodes[node];
    return { id: node, title: one.name ?? (one.op === "const" ? (one.attrs ?? one.op) : one.op), detail: one.type, colour: colourOf(node), round: one.op === "input" || outputs.has(node), fill: colour === "marks" ? markOf.get(node)?.colour : undefined };
  };

  const wanted = place.level ?? (graph.nodes.length > kMostAtOnce ? "modules" : "nodes");
  const whole = wanted === "modules" ? levelsOf(program, graph, operands) : undefined;
  const level = whole ? "modules" : "nodes";
  const groups = whole ? groupsByPath(whole) : new Map<string, Group>();
  const groupOf = (node: number): Group | undefined => {
    const at = position.get(node);
    for (const group of groups.values()) if (at !== undefined && group.nodes.includes(at)) return group;
    return undefined;
  };
  /// The group that is open: that of the chosen node, if it is in another one.
  const asked = groups.get(place.within ?? "") ?? whole;
  const ofChosen = place.node === undefined ? undefined : groupOf(place.node);
  const opened = ofChosen && ofChosen !== asked ? ofChosen : asked;

  const drawn = level === "modules" ? drawLevel(view, whole!, opened!, operands, (at) => itemOf(graph.nodes[at]), (at) => program.nodes[graph.nodes[at]].op === "input") : undefined;
  const side = h("aside", {});
  const canvas = new GraphCanvas({
    label: "Graph",
    items: drawn?.items ?? graph.nodes.map(itemOf),
    operands: drawn?.operands ?? operands,
    chosen: place.node,
    choose: (id) => {
      const group = id === undefined ? undefined : drawn?.groupOf(id);
      view.note({ node: group ? undefined : id, ...(drawn ? { within: opened!.path } : {}) });
      if (group) groupDetails(group);
      else details(id);
    },
    open: (id) => {
      const group = drawn?.groupOf(id);
      if (group) view.go({ within: group.path, node: undefined });
      else if (drawn && !opened!.nodes.includes(position.get(id)!)) find(id);
      else if (launches.has(id)) view.go({ page: "kernels", launch: launches.get(id) });
    },
  });
  const find = (node: number) => {
    if (drawn && groupOf(node) !== opened) {
      view.go({ within: groupOf(node)!.path, node });
      return document.querySelector<HTMLElement>("main canvas")?.focus();
    }
    canvas.show(node);
    view.note({ node });
    details(node);
    canvas.focus();
  };
  const found = h("ul", { class: "found", "aria-label": "Nodes that were found" });
  const search = h("input", { type: "search", id: "search", placeholder: "Search op, name, type, #number  ( / )", "aria-label": "Search nodes", "aria-keyshortcuts": "/" });
  search.addEventListener("input", () => {
    const wanted = search.value.trim().toLowerCase();
    const hits = wanted === "" ? [] : graph.nodes.filter((node) => {
      const one = program.nodes[node];
      return `#${node} ${one.op} ${one.name ?? ""} ${one.type} ${one.attrs ?? ""}`.toLowerCase().includes(wanted);
    });
    found.replaceChildren(
      ...hits.slice(0, kMostFound).map((node) => {
        const one = program.nodes[node];
        return h("li", {}, h("button", { type: "button", class: "link", click: () => find(node) }, `#${node} ${one.name ?? one.op}`, h("small", {}, ` ${one.type}`)));
      }),
      hits.length > kMostFound ? h("li", {}, `and ${hits.length - kMostFound} more`) : "",
    );
    walked([...found.querySelectorAll("button")]);
    if (wanted !== "" && hits.length === 0) found.replaceChildren(h("li", {}, "nothing"));
  });
  search.addEventListener("keydown", (event) => {
    if (event.key === "Enter" || event.key === "ArrowDown") {
      const first = found.querySelector("button");
      if (event.key === "Enter") first?.click();
      else first?.focus();
      event.preventDefault();
    }
  });
  const details = (node: number | undefined) =>
    side.replaceChildren(
      search,
      found,
      node !== undefined && inGraph.has(node) ? nodeDetails(view, node, inGraph) : drawn ? aboutGroup(view, graph, opened!) : colour === "marks" ? markList(view, find) : legend(colour, passes, program),
    );
  const groupDetails = (group: Group) => side.replaceChildren(search, found, aboutGroup(view, graph, group, () => view.go({ within: group.path, node: undefined })));
  details(place.node);
  const select = (label: string, chosen: string, name: "colour" | "level", options: [string, string, boolean?][]) =>
    h(
      "select",
      { "aria-label": label, id: name, change: (event: Event) => view.go({ [name]: (event.target as HTMLSelectElement).value }) },
      ...options.map(([value, text, disabled]) => h("option", { value, selected: chosen === value, disabled }, text)),
    );
  const colours = select("Colours", colour, "colour", [...(program.marks.length > 0 ? ([["marks", "colour: marks"]] as [string, string][]) : []), ["op", "colour: kind of op"], ["kernel", "colour: kernel", launches.size === 0], ["pass", "colour: pass that made it"]]);
  const levels = select("Level", level, "level", [["nodes", "all nodes"], ["modules", "modules, kernels, nodes", wanted === "modules" && !whole]]);
  return h("div", { class: "split" }, h("div", { class: "main" }, h("div", { class: "bar" }, choice, levels, colours), drawn && trail(view, opened!, drawn.back, drawn.common), canvas.element), side);
}

/// The boxes of an opened group.
function drawLevel(view: View, whole: Group, opened: Group, operands: number[][], itemOf: (place: number) => Item, isInput: (place: number) => boolean) {
  const { boxes, back } = boxesOf(whole, opened, operands, isInput);
  const kinds = [...new Set(boxes.flatMap(({ group }) => (group ? [kindOfModule(group.title)] : [])))];
  const shown = new Set<number>();
  const byId = new Map<number, Group>();
  const items = boxes.map(({ group, place, outside, manyReaders }, i): Item => {
    const readers = manyReaders ? `, read by ${manyReaders}` : "";
    // What is beside the group on both sides has two boxes.
    const id = group || shown.has(itemOf(place!).id) ? kGroups + i : itemOf(place!).id;
    shown.add(id);
    if (!group) return { ...itemOf(place!), id, detail: outside ? `${outside === "read" ? "from" : "to"} outside` : `${itemOf(place!).detail}${readers}`, fill: undefined, ...(outside ? { colour: -1, round: true } : {}) };
    byId.set(id, group);
    const seconds = secondsOf(view, group);
    return {
      id,
      title: outside ? `${outside === "read" ? "from" : "to"} ${group.title}` : group.title,
      detail: outside ? "outside" : `${group.all.length} ${group.all.length === 1 ? "node" : "nodes"}${seconds > 0 ? `  ${time(seconds)}` : ""}${readers}`,
      colour: outside ? -1 : group.kernel !== undefined ? 3 + (group.kernel % 4) : kinds.indexOf(kindOfModule(group.title)) % 8,
      round: outside !== undefined,
    };
  });
  return { items, operands: boxes.map(({ reads }) => reads), back, common: boxes.some((box) => box.manyReaders), groupOf: (id: number) => byId.get(id) };
}

/// What the launches of a group take.
function secondsOf(view: View, group: Group): number {
  if (group.kernel !== undefined) return view.program.launchSeconds(group.kernel).seconds;
  return group.groups.reduce((sum, one) => sum + secondsOf(view, one), 0);
}

/// From the whole graph to the group that is open.
function trail(view: View, opened: Group, back: number, common: boolean): HTMLElement {
  const groups: Group[] = [];
  for (let group: Group | undefined = opened; group; group = group.parent) groups.unshift(group);
  return h(
    "div",
    { class: "bar notes", "data-within": opened.path },
    ...groups.map((group, i) =>
      h("button", { type: "button", class: "link", "aria-current": group === opened ? "true" : undefined, "aria-keyshortcuts": i === groups.length - 2 ? "Backspace" : undefined, click: () => view.go({ within: group.path, node: undefined }) }, `${i > 0 ? "› " : ""}${group.title}`),
    ),
    h("span", { class: "hint", role: "status" }, `Enter or a double click opens a box${opened.parent ? ", Backspace closes this one" : ""}${back > 0 ? ` · ${back} edges that lead back are not drawn` : ""}${common ? " · of what many boxes read, no edges are drawn" : ""}`),
  );
}

function aboutGroup(view: View, graph: Graph, group: Group, open?: () => void): HTMLElement {
  const { program } = view;
  const count = new Map<string, number>();
  for (const at of group.all) {
    const { op } = program.nodes[graph.nodes[at]];
    count.set(op, (count.get(op) ?? 0) + 1);
  }
  const ops = [...count].sort((a, b) => b[1] - a[1]);
  const total = (program.report?.kernels ?? []).reduce((sum, _, i) => sum + program.launchSeconds(i).seconds, 0);
  const seconds = secondsOf(view, group);
  const rows: [string, string][] = [["nodes", String(group.all.length)]];
  if (group.groups.length > 0) rows.push(["holds", `${group.groups.length} ${group.groups.length === 1 ? "group" : "groups"}, ${group.nodes.length} nodes of its own`]);
  if (seconds > 0) rows.push(["time", `${time(seconds)}, ${share(seconds, total)} of all kernels`]);
  rows.push(["ops", ops.slice(0, 12).map(([op, times]) => `${op} ${times}`).join(", ") + (ops.length > 12 ? ", …" : "")]);
  return h(
    "section",
    { class: "details", "aria-label": "The chosen group", "data-group": group.path },
    h("h2", {}, group.title, h("small", {}, group.kernel !== undefined ? " kernel" : group.parent ? " module" : "")),
    h("dl", {}, ...rows.flatMap(([name, value]) => [h("dt", {}, name), h("dd", {}, value)])),
    open && h("p", {}, h("button", { type: "button", id: "open-group", click: open }, "Open")),
    group.kernel !== undefined && h("p", {}, h("button", { type: "button", click: () => view.go({ page: "kernels", launch: group.kernel }) }, "Its schedule, loops and source")),
  );
}

/// The marks with their notes; each leads to its first node.
function markList(view: View, find: (node: number) => void): HTMLElement {
  return h(
    "section",
    { class: "legend", "aria-label": "Marks" },
    h("h2", {}, "Marks"),
    h(
      "ul",
      {},
      ...view.program.marks.map((mark) =>
        h("li", {}, s("svg", { class: "swatch", width: 14, height: 14, "aria-hidden": "true" }, s("rect", { width: 14, height: 14, fill: mark.colour })), h("button", { type: "button", class: "link", click: () => find(mark.nodes[0]) }, mark.note || mark.colour, h("small", {}, ` ${mark.nodes.length} ${mark.nodes.length === 1 ? "node" : "nodes"}`))),
      ),
    ),
  );
}

function legend(colour: string, passes: string[], program: Program): HTMLElement {
  const names = colour === "kernel" ? (program.report?.kernels ?? []).map((kernel, i) => `${i} ${kernel.name}`) : colour === "pass" ? passes : kClassNames;
  const offset = colour === "pass" ? -1 : 0;
  return h(
    "section",
    { class: "legend", "aria-label": "Legend" },
    h("h2", {}, colour === "kernel" ? "Kernels" : colour === "pass" ? "Made by" : "Kinds of ops"),
    h("ul", {}, ...names.slice(0, 40).map((name, i) => h("li", {}, h("span", { class: i + offset < 0 ? "swatch" : `swatch p${(i + offset) % 8}` }), name))),
    h("p", { class: "hint" }, "Click a node for its shape, its line and where it came from. Drag to move, wheel to zoom, arrow keys to walk along edges."),
  );
}

