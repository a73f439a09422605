// What is known of one node: its value, its line, where it came from and where it went.
import { h } from "./dom";
import { classOfNode } from "./egraph";
import type { View } from "./place";
import type { GraphNode, Program } from "./record";

const title = (node: GraphNode) => (node.name !== undefined ? `${node.op} “${node.name}”` : node.op);

/// The nodes that were given, whose place this one has in the end: through all passes that replaced them.
export function origins(program: Program, node: number): GraphNode[] {
  const seen = new Set<number>();
  const found: GraphNode[] = [];
  const open = [node];
  while (open.length > 0) {
    const at = open.pop()!;
    if (seen.has(at)) continue;
    seen.add(at);
    const one = program.nodes[at];
    if (!one.pass) found.push(one);
    else open.push(...(one.replaces ?? []));
  }
  return found.sort((a, b) => (a.line ?? a.node) - (b.line ?? b.node));
}

/// Nodes that took the place of this one.
export function successors(program: Program, node: number): GraphNode[] {
  return program.nodes.filter((one) => one?.replaces?.includes(node));
}

export function nodeDetails(view: View, number: number, inGraph: ReadonlySet<number>): HTMLElement {
  const { program, record } = view;
  const node = program.nodes[number];
  const link = (one: GraphNode) => {
    const elsewhere = !inGraph.has(one.node);
    const go = () =>
      view.go({ page: "graph", node: one.node, graph: elsewhere ? String(lastGraphWith(program, one.node)) : undefined, ...(elsewhere ? {} : { graph: view.place.graph }) });
    return h("button", { type: "button", class: "link", click: go, title: elsewhere ? "in another graph" : undefined }, `#${one.node} ${title(one)}`, elsewhere ? " ↗" : null);
  };
  const rows: [string, Node | string][] = [
    ["type", h("code", {}, node.type)],
    ...(node.attrs ? ([["attributes", h("code", {}, node.attrs)]] as [string, Node][]) : []),
    ["made by", node.pass ? passLink(view, node.pass) : "the program"],
  ];
  const ranges = [...new Set(origins(program, number).flatMap((one) => one.within ?? []))];
  if (ranges.length > 0) rows.push(["within", ranges.join(", ")]);
  for (const mark of program.marks) if (mark.nodes.includes(number)) rows.push(["mark", mark.note || mark.colour]);
  if (node.rules)
    rows.push(["by the rules", node.rules.length > 0 ? h("ul", {}, ...node.rules.map((rule) => h("li", {}, h("code", {}, rule)))) : "more than one way leads here"]);
  const list = (nodes: GraphNode[]) => h("ul", {}, ...nodes.map((one) => h("li", {}, link(one))));
  if (node.operands.length > 0) rows.push(["reads", list(node.operands.map((operand) => program.nodes[operand]))]);
  const readers = program.nodes.filter((one) => one && inGraph.has(one.node) && one.operands.includes(number));
  if (readers.length > 0) rows.push(["read by", list(readers)]);
  if (node.replaces) rows.push(["took the place of", list(node.replaces.map((one) => program.nodes[one]))]);
  const next = successors(program, number);
  if (next.length > 0) rows.push(["replaced by", list(next)]);
  const eclass = classOfNode(program, number);
  if (eclass)
    rows.push([
      eclass.own ? "e-class" : "stands for",
      h("button", { type: "button", class: "link", id: "to-class", click: () => view.go({ page: "egraph", class: eclass.id, step: undefined }) }, `class ${eclass.id}`),
    ]);
  const launch = program.launchOfNode().get(number);
  if (launch !== undefined)
    rows.push([
      "computed by",
      h("button", { type: "button", class: "link", click: () => view.go({ page: "kernels", launch }) }, `launch ${launch} ${program.report!.kernels[launch].name}`),
    ]);
  const lines = origins(program, number).filter((one) => one.line !== undefined);
  const facts = h("dl", {}, ...rows.flatMap(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]));
  return h(
    "section",
    { class: "details", "aria-label": "The chosen node", "data-node": number },
    h("h2", {}, title(node), h("small", {}, ` #${number}`)),
    facts,
    lines.length > 0 &&
      h(
        "div",
        { class: "lines" },
        h("h3", {}, node.pass ? "From these lines" : "Its line"),
        ...lines.slice(0, 40).map((one) => {
          const source = record.sources[one.source!];
          return h("p", { "data-line": one.line! }, h("small", {}, `${source.file}:${one.line}`), h("code", {}, source.text.split("\n")[one.line! - 1]?.trim() ?? ""));
        }),
      ),
  );
}

function passLink(view: View, name: string): Node {
  const pass = view.program.passes.findIndex((one) => one.pass === name);
  return h("button", { type: "button", class: "link", click: () => view.go({ page: "passes", pass }) }, name);
}

export function lastGraphWith(program: Program, node: number): number {
  for (let graph = program.graphs.length - 1; graph >= 0; --graph) if (program.graphs[graph].nodes.includes(node)) return graph;
  return 0;
}
