// The passes page: what each pass made, beside what it began with.
import { h, time, walked } from "./dom";
import { GraphCanvas, type Item } from "./graph_canvas";
import { classOf } from "./page_graph";
import type { View } from "./place";
import type { Graph, Pass, Program } from "./record";

/// The graph behind the passes before this one: of its own fusion plan where there is one.
function graphBefore(program: Program, place: number): number {
  const pass = program.passes[place];
  const made = new Set(pass.graphs);
  for (let i = place - 1; i >= 0; --i) {
    const one = program.passes[i];
    if (one.graphs.length === 0) continue;
    if (one.fusion_plan === pass.fusion_plan) return one.graphs[0];
    if (one.pass === "extract" && pass.phase === "graph") {
      const candidate = /^graph (\d+) of/.exec(pass.fusion_plan ?? "");
      return one.graphs[candidate ? Number(candidate[1]) - 1 : 0];
    }
    if (one.graphs.length === 1 && !made.has(one.graphs[0]) && !pass.fusion_plan) return one.graphs[0];
  }
  return 0;
}

interface Change {
  fresh: Set<number>; // nodes after the pass that do something new
  gone: Set<number>; // nodes before it that nothing like them stands for
  moved: number; // nodes that only read others than before
}

/// What differs between the graphs. A node whose number is new only because of its operands is no change of its own.
function changeOf(program: Program, before: Graph, after: Graph): Change {
  const were = new Set(before.nodes);
  const are = new Set(after.nodes);
  const fresh = new Set(after.nodes.filter((node) => !were.has(node)));
  const gone = new Set(before.nodes.filter((node) => !are.has(node)));
  let moved = 0;
  for (const node of [...fresh]) {
    const now = program.nodes[node];
    const same = now.replaces?.filter((old) => {
      const one = program.nodes[old];
      return gone.has(old) && one.op === now.op && one.type === now.type && one.attrs === now.attrs;
    });
    if (!same || same.length === 0) continue;
    fresh.delete(node);
    same.forEach((old) => gone.delete(old));
    ++moved;
  }
  return { fresh, gone, moved };
}

function canvasOf(view: View, label: string, graph: Graph, marked: Set<number>, mark: "fresh" | "gone"): GraphCanvas {
  const { program } = view;
  const position = new Map(graph.nodes.map((node, i) => [node, i]));
  const outputs = new Set(graph.outputs);
  const items: Item[] = graph.nodes.map((node) => {
    const one = program.nodes[node];
    return {
      id: node,
      title: one.name ?? (one.op === "const" ? (one.attrs ?? one.op) : one.op),
      detail: one.type,
      colour: classOf(one.op),
      round: one.op === "input" || outputs.has(node),
      mark: marked.has(node) ? mark : undefined,
    };
  });
  const first = items.find((item) => item.mark);
  const canvas = new GraphCanvas({
    label,
    items,
    operands: graph.nodes.map((node) => program.nodes[node].operands.map((operand) => position.get(operand)!)),
    open: (node) => view.go({ page: "graph", graph: String(graph.graph), node }),
  });
  if (first && graph.nodes.length > 60) canvas.show(first.id);
  return canvas;
}

/// Lines of both texts: kept, gone and fresh, by the longest common subsequence of what differs between common ends.
export function diff(before: string[], after: string[]): { kind: " " | "-" | "+"; line: string }[] {
  let head = 0;
  while (head < before.length && head < after.length && before[head] === after[head]) ++head;
  let tail = 0;
  while (tail < before.length - head && tail < after.length - head && before[before.length - 1 - tail] === after[after.length - 1 - tail]) ++tail;
  const a = before.slice(head, before.length - tail);
  const b = after.slice(head, after.length - tail);
  const result: { kind: " " | "-" | "+"; line: string }[] = before.slice(0, head).map((line) => ({ kind: " ", line }));
  if (a.length * b.length > 4e6) {
    a.forEach((line) => result.push({ kind: "-", line }));
    b.forEach((line) => result.push({ kind: "+", line }));
  } else {
    const common = Array.from({ length: a.length + 1 }, () => new Uint32Array(b.length + 1));
    for (let i = a.length - 1; i >= 0; --i)
      for (let j = b.length - 1; j >= 0; --j) common[i][j] = a[i] === b[j] ? common[i + 1][j + 1] + 1 : Math.max(common[i + 1][j], common[i][j + 1]);
    let i = 0;
    let j = 0;
    while (i < a.length || j < b.length)
      if (i < a.length && j < b.length && a[i] === b[j]) {
        result.push({ kind: " ", line: a[i++] });
        ++j;
      } else if (j === b.length || (i < a.length && common[i + 1][j] >= common[i][j + 1])) result.push({ kind: "-", line: a[i++] });
      else result.push({ kind: "+", line: b[j++] });
  }
  after.slice(after.length - tail).forEach((line) => result.push({ kind: " ", line }));
  return result;
}

function texts(pass: Pass): HTMLElement {
  const after = (pass.text ?? "").split("\n");
  if (pass.before === undefined) return h("pre", { class: "text", tabindex: 0, "aria-label": "What the pass made" }, pass.text || "nothing");
  const lines = diff(pass.before.split("\n"), after);
  return h(
    "pre",
    { class: "text diff", tabindex: 0, "aria-label": "What the pass changed" },
    ...lines.map(({ kind, line }) => h("span", { class: kind === "+" ? "plus" : kind === "-" ? "minus" : undefined }, `${kind} ${line}\n`)),
  );
}

export function passesPage(view: View): HTMLElement {
  const { program, place } = view;
  const { passes } = program;
  if (passes.length === 0) return h("p", { class: "empty" }, "No pass ran.");
  const firstChanged = passes.findIndex((pass) => pass.changed && pass.graphs.length > 0);
  const chosen = Math.min(place.pass ?? Math.max(0, firstChanged), passes.length - 1);
  const pass = passes[chosen];
  const list = h("ol", { class: "passes", "aria-label": "Passes in the order in which they ran" });
  let plan = "";
  passes.forEach((one, i) => {
    if ((one.fusion_plan ?? "") !== plan) {
      plan = one.fusion_plan ?? "";
      list.append(h("li", { class: "plan" }, plan || "the plan that was taken"));
    }
    list.append(
      h(
        "li",
        {},
        h(
          "button",
          { type: "button", id: `pass-${i}`, "aria-current": i === chosen ? "step" : undefined, class: one.changed ? "changed" : undefined, title: one.what, click: () => view.go({ pass: i }) },
          h("span", {}, one.pass),
          h("small", {}, time(one.seconds)),
        ),
      ),
    );
  });
  walked([...list.querySelectorAll("button")], chosen);
  const step = (by: number) => view.go({ pass: Math.max(0, Math.min(passes.length - 1, chosen + by)) });
  const before = program.graphs[graphBefore(program, chosen)];
  const after = pass.graphs.length > 0 ? program.graphs[pass.graphs[0]] : undefined;
  const same = after !== undefined && before.graph === after.graph;
  const isText = pass.text !== undefined && (same || !after);
  const change = after && !same ? changeOf(program, before, after) : { fresh: new Set<number>(), gone: new Set<number>(), moved: 0 };
  const canvases =
    isText || !after
      ? [texts(pass)]
      : same
        ? [panel(`unchanged: ${after.nodes.length} nodes`, canvasOf(view, "Graph", after, change.fresh, "fresh").element)]
        : [
            panel(`before: ${before.nodes.length} nodes, ${change.gone.size} gone`, canvasOf(view, "Before", before, change.gone, "gone").element),
            panel(`after: ${after.nodes.length} nodes, ${change.fresh.size} new, ${change.moved} with other operands`, canvasOf(view, "After", after, change.fresh, "fresh").element),
          ];
  queueMicrotask(() => list.querySelector("[aria-current]")?.scrollIntoView({ block: "nearest" }));
  return h(
    "div",
    { class: "split left" },
    h("aside", {}, list),
    h(
      "div",
      { class: "main", "data-pass": pass.pass, "data-fresh": change.fresh.size, "data-gone": change.gone.size },
      h(
        "div",
        { class: "bar" },
        h("button", { type: "button", "aria-keyshortcuts": "[", title: "The pass before ( [ )", click: () => step(-1) }, "◀"),
        h("button", { type: "button", "aria-keyshortcuts": "]", title: "The next pass ( ] )", click: () => step(1) }, "▶"),
        h("strong", {}, pass.pass),
        h("span", { class: "hint" }, `${pass.what} · ${time(pass.seconds)}${pass.changed ? "" : " · changed nothing"}`),
      ),
      h("div", { class: "panels" }, ...canvases),
    ),
  );
}

function panel(title: string, content: HTMLElement): HTMLElement {
  return h("div", { class: "panel" }, h("h2", {}, title), content);
}
