// The e-graph page: classes with their alternatives, what each cost, which rule made it, and how they came to be.
import { bytes, h, walked } from "./dom";
import { EGraph, type Alternative, type EClass } from "./egraph";
import { GraphCanvas, type Item } from "./graph_canvas";
import { classOf as kindOf } from "./page_graph";
import type { View } from "./place";
import type { EGraphRecord, ENode } from "./record";

const kMostDrawn = 150; // classes; of more, the chosen graph's and those around the chosen class
const kMostListed = 300;
const kENodes = 2 ** 33; // ids of e-nodes in the drawing begin here

const label = (enode: ENode) => (enode.attrs ? `${enode.op} ${enode.attrs}` : enode.op);

const count = (of: number, one: string, many = `${one}s`) => `${of} ${of === 1 ? one : many}`;

function madeBy(record: EGraphRecord, enode: ENode): string {
  return enode.rule === undefined ? "the graph as given" : record.rules[enode.rule];
}

/// Classes in an order in which operands stand before their readers, as far as there is one: e-graphs have cycles.
function ordered(egraph: EGraph): EClass[] {
  const order: EClass[] = [];
  const seen = new Set<number>();
  for (const first of egraph.classes.keys()) {
    const open: [number, boolean][] = [[first, false]];
    while (open.length > 0) {
      const [id, left] = open.pop()!;
      if (left) {
        order.push(egraph.classes.get(id)!);
        continue;
      }
      if (seen.has(id)) continue;
      seen.add(id);
      open.push([id, true]);
      const of = egraph.classes.get(id)!;
      // The chosen e-node, or the one that was first, decides the place.
      const alternatives = of.alternatives.slice().sort((a, b) => Number(a.enode.chosen ?? false) - Number(b.enode.chosen ?? false) || b.enode.step - a.enode.step);
      for (const { operands } of alternatives) for (const operand of operands) if (egraph.classes.has(operand)) open.push([operand, false]);
    }
  }
  return order;
}

/// Which classes are drawn: all of few; else those around the one that is looked at, or around the results of the chosen graph.
function drawn(egraph: EGraph, looked: number | undefined, results: number[]): EClass[] {
  const all = ordered(egraph);
  if (all.length <= kMostDrawn) return all;
  const near = new Set<number>();
  const open = looked === undefined ? results : [looked];
  for (let i = 0; i < open.length && near.size < kMostDrawn; ++i) {
    const of = egraph.classes.get(open[i]);
    if (!of || near.has(of.id)) continue;
    near.add(of.id);
    for (const { operands } of of.alternatives) open.push(...operands);
    open.push(...egraph.readersOf(of.id).map((one) => one.id));
  }
  return all.filter((of) => near.has(of.id));
}

function canvasOf(view: View, egraph: EGraph, classes: EClass[], walk: (id: number) => void): { canvas: GraphCanvas; back: number } {
  const items: Item[] = [];
  const operands: number[][] = [];
  const place = new Map<number, number>(); // of classes that are drawn already
  const owner = new Map<number, number>();
  const shown = new Set(classes.map((of) => of.id));
  let back = 0;
  for (const of of classes) {
    const own: number[] = [];
    for (const { enode, operands: reads, ways } of of.alternatives) {
      const known = reads.map((operand) => place.get(operand));
      back += known.filter((one, i) => one === undefined && shown.has(reads[i])).length;
      const id = kENodes + items.length;
      owner.set(id, of.id);
      own.push(items.length);
      items.push({
        id,
        title: label(enode),
        detail: `${enode.chosen ? "✓ " : ""}${bytes(enode.cost)}${ways > 1 ? `, ${ways} ways` : ""}`,
        colour: kindOf(enode.op),
        mark: enode.chosen ? "fresh" : undefined,
      });
      operands.push(known.filter((one) => one !== undefined));
    }
    place.set(of.id, items.length);
    items.push({ id: of.id, title: `${of.fresh ? "new in " : ""}class ${of.id}`, detail: of.type, colour: -1, round: true });
    operands.push(own);
  }
  const canvas = new GraphCanvas({
    label: "E-graph",
    items,
    operands,
    chosen: view.place.class === undefined ? undefined : egraph.find(view.place.class),
    choose: (id) => id !== undefined && walk(owner.get(id) ?? id),
    open: (id) => {
      const node = nodeOf(egraph, owner.get(id) ?? id);
      if (node !== undefined) view.go({ page: "graph", graph: undefined, node });
    },
  });
  return { canvas, back };
}

/// A node of a graph that is in the class: of the extracted graph where there is one.
function nodeOf(egraph: EGraph, id: number): number | undefined {
  return nodesOf(egraph, id).at(-1);
}

function nodesOf(egraph: EGraph, id: number): number[] {
  return [...new Set(egraph.record.classes.filter(([, of]) => egraph.find(of) === id).map(([node]) => node))];
}

function classDetails(view: View, egraph: EGraph, id: number, choose: (id: number) => void): HTMLElement {
  const { record } = egraph;
  const of = egraph.classes.get(id);
  if (!of) return h("p", { class: "hint" }, `Class ${id} is not there yet behind this step.`);
  const link = (other: number) => h("button", { type: "button", class: "link", click: () => choose(other) }, `class ${other}`);
  const alternative = ({ enode, operands, ways }: Alternative) =>
    h(
      "li",
      { class: enode.chosen ? "enode chosen" : "enode", "data-rule": enode.rule === undefined ? "" : record.rules[enode.rule], "data-chosen": enode.chosen ? "true" : undefined },
      h("code", {}, `${enode.chosen ? "✓ " : ""}${label(enode)}`),
      operands.length > 0 && h("span", { class: "operands" }, ...operands.map(link)),
      h("p", { class: "hint" }, `cost ${bytes(enode.cost)} · ${enode.rule === undefined ? "" : "rule "}${madeBy(record, enode)}${enode.step > 0 ? ` · round ${record.steps[enode.step].round}` : ""}${ways > 1 ? ` · ${ways} ways lead here` : ""}${enode.chosen ? " · chosen" : ""}`),
    );
  const graphNodes = nodesOf(egraph, id);
  const joins = record.joins.filter((join) => join.step <= egraph.step && egraph.find(join.into) === id);
  const readers = egraph.readersOf(id);
  return h(
    "section",
    { class: "details", "aria-label": "The chosen class", "data-class": id },
    h("h2", {}, `class ${id}`, h("small", {}, ` ${of.type}`)),
    h("ul", { class: "enodes", "aria-label": "Alternatives" }, ...of.alternatives.slice(0, kMostListed).map(alternative)),
    of.alternatives.length > kMostListed && h("p", { class: "hint" }, `and ${of.alternatives.length - kMostListed} more`),
    h(
      "dl",
      {},
      ...(graphNodes.length > 0
        ? [
            h("dt", {}, "in graphs"),
            h("dd", {}, h("ul", {}, ...graphNodes.slice(0, 40).map((node) => h("li", {}, h("button", { type: "button", class: "link", "data-node": node, click: () => view.go({ page: "graph", graph: graphWith(view, record, node), node }) }, `#${node} ${view.program.nodes[node].op}`))))),
          ]
        : []),
      ...(readers.length > 0 ? [h("dt", {}, "read by"), h("dd", {}, ...readers.slice(0, 40).map((one) => link(one.id)), readers.length > 40 && `and ${readers.length - 40} more`)] : []),
      ...(joins.length > 0
        ? [h("dt", {}, "joined"), h("dd", {}, h("ul", {}, ...joins.slice(0, 40).map((join) => h("li", {}, `class ${join.class}, ${join.rule === undefined ? "by equal e-nodes" : `by ${record.rules[join.rule]}`}, round ${record.steps[join.step].round}`))))]
        : []),
    ),
  );
}

function graphWith(view: View, record: EGraphRecord, node: number): string {
  return String(view.program.graphs[record.extracted].nodes.includes(node) ? record.extracted : record.graph);
}

export function egraphPage(view: View): HTMLElement {
  const { program, place } = view;
  const record = program.egraph;
  if (!record) return h("p", { class: "empty" }, "No rules ran: with effort none the graph is compiled as it is.");
  const last = record.steps.length - 1;
  const step = Math.min(place.step ?? last, last);
  const egraph = new EGraph(record, step);
  const chosen = place.class === undefined ? undefined : egraph.find(place.class);
  const classOf = new Map(record.classes);
  const results = program.graphs[record.extracted].outputs.flatMap((node) => (classOf.has(node) ? [egraph.find(classOf.get(node)!)] : []));
  const classes = drawn(egraph, chosen, results);
  const go = (to: number) => view.go({ step: Math.max(0, Math.min(last, to)) });
  const { round, group } = record.steps[step];
  const fresh = record.enodes.filter((enode) => enode.step === step).length;
  const joined = record.joins.filter((join) => join.step === step).length;
  const notes = [
    `${count(egraph.classes.size, "class", "classes")}, ${count(egraph.size, "e-node")}`,
    step > 0 && `made here: ${count(fresh, "e-node")}; joined: ${count(joined, "class", "classes")}`,
    classes.length < egraph.classes.size && `${egraph.classes.size - classes.length} classes are collapsed: choose one in the list to see what is around it`,
    record.left_out > 0 && `${record.left_out} e-nodes are not in the record`,
  ];
  const side = h("aside", {});
  const choose = (id: number) => {
    const around = classes.length < egraph.classes.size;
    if (around) view.go({ class: id });
    else {
      walk(id);
      canvas.show(id);
      canvas.focus();
    }
  };
  /// The e-nodes of a class are walked in the drawing: each shows its class.
  const walk = (id: number) => {
    view.note({ class: id });
    details(id);
  };
  const { canvas, back } = canvasOf(view, egraph, classes, walk);
  if (back > 0) notes.push(`${back} edges that lead back are not drawn`);

  const listed = ordered(egraph).reverse();
  const found = h("ul", { class: "found classes", "aria-label": "Classes" });
  const search = h("input", { type: "search", id: "search", placeholder: "Search op, rule, type, class  ( / )", "aria-label": "Search classes", "aria-keyshortcuts": "/" });
  const list = () => {
    const wanted = search.value.trim().toLowerCase();
    const hits = listed.filter((of) => wanted === "" || `class ${of.id} ${of.type} ${of.alternatives.map(({ enode }) => `${label(enode)} ${madeBy(record, enode)}`).join(" ")}`.toLowerCase().includes(wanted));
    found.replaceChildren(
      ...hits.slice(0, kMostListed).map((of) => {
        const best = of.alternatives.find(({ enode }) => enode.chosen) ?? of.alternatives[0];
        return h("li", {}, h("button", { type: "button", class: "link", "data-class": of.id, click: () => choose(of.id) }, `${of.id} ${best.enode.op}`, h("small", {}, ` ${of.alternatives.length > 1 ? `${of.alternatives.length} alternatives ` : ""}${of.type}`)));
      }),
      hits.length > kMostListed ? h("li", {}, `and ${hits.length - kMostListed} more: search for them`) : "",
    );
    walked([...found.querySelectorAll("button")]);
    if (hits.length === 0) found.replaceChildren(h("li", {}, "nothing"));
  };
  search.addEventListener("input", list);
  search.addEventListener("keydown", (event) => {
    const first = found.querySelector("button");
    if (event.key === "Enter") first?.click();
    else if (event.key === "ArrowDown") first?.focus();
    else return;
    event.preventDefault();
  });
  list();
  const details = (id: number | undefined) =>
    side.replaceChildren(search, found, id === undefined ? h("p", { class: "hint" }, "Choose a class for its alternatives: what each costs, the rule that made it, and the nodes of the graphs that are in it. Green: what was extracted.") : classDetails(view, egraph, id, choose));
  details(chosen);
  return h(
    "div",
    { class: "split" },
    h(
      "div",
      { class: "main", "data-step": step, "data-classes": egraph.classes.size, "data-enodes": egraph.size },
      h(
        "div",
        { class: "bar" },
        h("button", { type: "button", id: "before", "aria-keyshortcuts": "[", title: "The step before ( [ )", click: () => go(step - 1) }, "◀"),
        h("input", { type: "range", id: "step", min: 0, max: last, value: step, "aria-label": "Step of the growth", "aria-valuetext": `step ${step}`, input: (event: Event) => go(Number((event.target as HTMLInputElement).value)) }),
        h("button", { type: "button", id: "after", "aria-keyshortcuts": "]", title: "The next step ( ] )", click: () => go(step + 1) }, "▶"),
        h("strong", {}, step === 0 ? "as given" : `round ${round}, ${group}`),
      ),
      h("div", { class: "bar notes" }, h("span", { class: "hint", role: "status" }, notes.filter(Boolean).join(" · "))),
      canvas.element,
    ),
    side,
  );
}
