// The graph page: any graph of the compilation, or the launches of the plan with the memory between them.
import { bytes, h, s, share, time } from "./dom";
import { GraphCanvas, type Item } from "./graph_canvas";
import { nodeDetails } from "./node_details";
import type { View } from "./place";
import type { Program } from "./record";

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
  const outputs = new Set(graph.outputs);
  const items: Item[] = graph.nodes.map((node) => {
    const one = program.nodes[node];
    return { id: node, title: one.name ?? (one.op === "const" ? (one.attrs ?? one.op) : one.op), detail: one.type, colour: colourOf(node), round: one.op === "input" || outputs.has(node), fill: colour === "marks" ? markOf.get(node)?.colour : undefined };
  });
  const side = h("aside", {});
  const canvas = new GraphCanvas({
    label: "Graph",
    items,
    operands: graph.nodes.map((node) => program.nodes[node].operands.map((operand) => position.get(operand)!)),
    chosen: place.node,
    choose: (node) => {
      view.note({ node });
      details(node);
    },
    open: (node) => launches.has(node) && view.go({ page: "kernels", launch: launches.get(node) }),
  });
  const find = (node: number) => {
    canvas.show(node);
    view.note({ node });
    details(node);
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
    side.replaceChildren(search, found, node !== undefined && inGraph.has(node) ? nodeDetails(view, node, inGraph) : colour === "marks" ? markList(view, find) : legend(colour, passes, program));
  details(place.node);
  const colours = h(
    "select",
    { "aria-label": "Colours", change: (event: Event) => view.go({ colour: (event.target as HTMLSelectElement).value }) },
    ...[...(program.marks.length > 0 ? [["marks", "colour: marks"]] : []), ["op", "colour: kind of op"], ["kernel", "colour: kernel"], ["pass", "colour: pass that made it"]].map(([value, text]) =>
      h("option", { value, selected: colour === value, disabled: value === "kernel" && launches.size === 0 }, text),
    ),
  );
  return h("div", { class: "split" }, h("div", { class: "main" }, h("div", { class: "bar" }, choice, colours), canvas.element), side);
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

function launchesPage(view: View, choice: HTMLElement): HTMLElement {
  const { program, place } = view;
  const plan = program.plan!;
  const items: Item[] = [];
  const operands: number[][] = [];
  const writer = new Map<number, number>(); // by slot, the item that wrote it last
  let launch = 0;
  let total = 0;
  program.report!.kernels.forEach((_, i) => (total += program.launchSeconds(i).seconds));
  const add = (item: Item, reads: number[]) => {
    items.push(item);
    operands.push(reads);
    return items.length - 1;
  };
  plan.slots.forEach((slot, i) => {
    if (slot.kind === "input" || slot.kind === "state")
      writer.set(i, add({ id: 100000 + i, title: `${slot.kind} ${slot.number ?? ""}`, detail: `${slot.type} ${bytes(slot.bytes)}`, colour: 0, round: true }, []));
  });
  for (const step of plan.steps) {
    const reads = [...new Set(step.reads.map((slot) => writer.get(slot)).filter((one) => one !== undefined))];
    let made: number;
    if (step.kind === "launch") {
      const kernel = program.report!.kernels[launch];
      const spent = program.launchSeconds(launch).seconds;
      made = add({ id: launch, title: `${launch} ${kernel.name}`, detail: `${time(spent)}  ${share(spent, total)}`, colour: 3 + (program.kernels[step.kernel!].form.length % 4) }, reads);
      ++launch;
    } else made = add({ id: 200000 + items.length, title: step.kind, detail: step.reads.map((slot) => bytes(plan.slots[slot].bytes)).join(" "), colour: -1 }, reads);
    for (const slot of step.writes) writer.set(slot, made);
  }
  plan.slots.forEach((slot, i) => {
    if (slot.kind === "output" && writer.has(i)) add({ id: 300000 + i, title: `output ${slot.number ?? ""}`, detail: `${slot.type} ${bytes(slot.bytes)}`, colour: 6, round: true }, [writer.get(i)!]);
  });
  const side = h("aside", {});
  const details = (id: number | undefined) => {
    const kernel = id !== undefined && id < 100000 ? program.report!.kernels[id] : undefined;
    side.replaceChildren(
      kernel
        ? h(
            "section",
            { class: "details" },
            h("h2", {}, kernel.name),
            h("dl", {}, h("dt", {}, "ops"), h("dd", {}, kernel.ops.join(", ")), h("dt", {}, "reads"), h("dd", {}, bytes(kernel.bytes_read)), h("dt", {}, "writes"), h("dd", {}, bytes(kernel.bytes_written))),
            h("button", { type: "button", click: () => view.go({ page: "kernels", launch: id }) }, "Open the kernel"),
          )
        : h("p", { class: "hint" }, "Click a launch for what it computes; double click or Enter opens its kernel."),
    );
  };
  const canvas = new GraphCanvas({
    label: "Launches",
    items,
    operands,
    chosen: place.node,
    choose: (node) => {
      view.note({ node });
      details(node);
    },
    open: (id) => id < 100000 && view.go({ page: "kernels", launch: id }),
  });
  details(place.node);
  return h("div", { class: "split" }, h("div", { class: "main" }, h("div", { class: "bar" }, choice), canvas.element), side);
}
