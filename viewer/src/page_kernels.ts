// The kernels page: launches by time and against the roofline, and each kernel as region, schedule tree, loops, source and assembly side
// by side, with the lines that belong together.
import { bytes, extent, h, rate, s, share, table, time, walked } from "./dom";
import { keysOf, linked, treeLines, type Form, type Keys } from "./links";
import type { View } from "./place";
import type { CodeUse, KernelReport } from "./record";

interface Pane {
  form: Form;
  pre: HTMLElement;
  lines: string[];
  keys: Keys[];
  starts: number[]; // of lines, in the text
}

function paneOf(form: Form, title: string, text: string): Pane {
  const lines = text.split("\n");
  const starts: number[] = [];
  let at = 0;
  for (const line of lines) {
    starts.push(at);
    at += line.length + 1;
  }
  return { form, lines, starts, keys: keysOf(form, text), pre: h("pre", { class: "text", tabindex: 0, "aria-label": title }, text) };
}

/// A line that is clicked, or reached by the arrow keys, lights those of the other panes that belong to it, and the word under the
/// pointer is marked wherever it occurs.
/// What is returned lights lines of a pane.
function linkPanes(panes: Pane[]): (of: Pane, lines: number[]) => void {
  const registry = (CSS as any).highlights;
  const range = (pane: Pane, from: number, length: number) => {
    const made = new Range();
    made.setStart(pane.pre.firstChild!, from);
    made.setEnd(pane.pre.firstChild!, from + length);
    return made;
  };
  const scroll = (pane: Pane, line: number) => {
    const height = pane.pre.scrollHeight / Math.max(1, pane.lines.length);
    const top = line * height;
    if (top < pane.pre.scrollTop || top > pane.pre.scrollTop + pane.pre.clientHeight - 2 * height) pane.pre.scrollTop = top - pane.pre.clientHeight / 3;
  };
  const light = (of: Pane, from: number[]) => {
    const ranges: Range[] = [];
    const all = from.map((line) => linked(panes, of.form, line));
    for (const [i, pane] of panes.entries()) {
      const lines = [...new Set(all.flatMap((one) => one[i]))].sort((a, b) => a - b);
      pane.pre.dataset.lit = lines.join(",");
      for (const one of lines.slice(0, 2000)) if (pane.lines[one].length > 0) ranges.push(range(pane, pane.starts[one], pane.lines[one].length));
      if (lines.length > 0) scroll(pane, lines[0]);
    }
    of.pre.dataset.line = String(from[0]);
    registry?.set("lines", new (window as any).Highlight(...ranges));
  };
  const mark = (wanted: string) => {
    const ranges: Range[] = [];
    for (const pane of panes) {
      for (const match of wanted === "" ? [] : pane.pre.textContent!.matchAll(/[\w%.]+/g)) {
        if (match[0] === wanted && ranges.length < 2000) ranges.push(range(pane, match.index, wanted.length));
      }
      pane.pre.dataset.linked = wanted;
    }
    registry?.set("linked", new (window as any).Highlight(...ranges));
  };
  for (const pane of panes) {
    const lineAt = (offset: number) => pane.starts.filter((start) => start <= offset).length - 1;
    pane.pre.addEventListener("click", () => {
      const selection = getSelection();
      if (!selection || selection.anchorNode !== pane.pre.firstChild) return;
      const at = selection.anchorOffset;
      light(pane, [lineAt(at)]);
      const word = [...pane.pre.textContent!.matchAll(/[\w%.]+/g)].find((match) => match.index <= at && at <= match.index + match[0].length);
      mark(word?.[0] ?? "");
    });
    pane.pre.addEventListener("keydown", (event) => {
      const by = event.key === "ArrowDown" ? 1 : event.key === "ArrowUp" ? -1 : 0;
      if (by === 0 || event.ctrlKey || event.metaKey || event.altKey) return;
      const line = pane.pre.dataset.line === undefined ? 0 : Number(pane.pre.dataset.line) + by;
      if (line >= 0 && line < pane.lines.length) {
        light(pane, [line]);
        scroll(pane, line);
      }
      event.preventDefault();
    });
  }
  return light;
}

/// Lines of a region that compute operations of this kind.
function linesOf(op: string, region: Pane): number[] {
  return region.lines.flatMap((_, line) => (region.keys[line].has(`op ${op}`) ? [line] : []));
}

const kWidth = 320;
const kHeight = 190;
const kLeft = 40;
const kBottom = 30;

/// Where launches stand under what memory and arithmetic permit, both axes logarithmic.
function roofline(kernels: KernelReport[], seconds: number[], machine: { bytes_per_second: number; flops_per_second: number }, chosen: number, choose: (launch: number) => void): SVGElement | null {
  const points = kernels
    .map((kernel, launch) => ({ launch, name: kernel.name, intensity: kernel.flops / (kernel.bytes_read + kernel.bytes_written), speed: kernel.flops / seconds[launch] }))
    .filter((one) => Number.isFinite(one.intensity) && Number.isFinite(one.speed) && one.intensity > 0 && one.speed > 0);
  if (points.length === 0 || !(machine.bytes_per_second > 0) || !(machine.flops_per_second > 0)) return null;
  const ridge = machine.flops_per_second / machine.bytes_per_second;
  const [left, right] = extent([...points.map((one) => one.intensity), ridge]).map(Math.log10);
  const [low, high] = extent([...points.map((one) => one.speed), machine.flops_per_second, machine.bytes_per_second * 10 ** left]).map(Math.log10);
  const x = (intensity: number) => kLeft + ((Math.log10(intensity) - left + 0.3) / (right - left + 0.6)) * (kWidth - kLeft - 8);
  const y = (speed: number) => kHeight - kBottom - ((Math.log10(speed) - low + 0.2) / (high - low + 0.4)) * (kHeight - kBottom - 8);
  const most = (intensity: number) => Math.min(machine.flops_per_second, machine.bytes_per_second * intensity);
  const circles = points.map((one) =>
    s(
      "circle",
      { cx: x(one.intensity), cy: y(one.speed), r: one.launch === chosen ? 6 : 4, class: one.launch === chosen ? "best" : "point", id: `point-${one.launch}`, role: "button", "data-launch": one.launch, "aria-label": `launch ${one.launch} ${one.name}`, click: () => choose(one.launch), keydown: (event: KeyboardEvent) => event.key === "Enter" && choose(one.launch) },
      s("title", {}, `launch ${one.launch} ${one.name}: ${one.intensity.toPrecision(3)} FLOP/byte, ${(one.speed * 1e-9).toPrecision(3)} GFLOP/s, ${share(one.speed, most(one.intensity))} of what is permitted there`),
    ),
  );
  walked(circles, points.findIndex((one) => one.launch === chosen));
  const ends = [10 ** (left - 0.3), ridge, 10 ** (right + 0.3)];
  return s(
    "svg",
    { class: "roofline", viewBox: `0 0 ${kWidth} ${kHeight}`, width: kWidth, height: kHeight, role: "group", "aria-label": "Roofline: launches under what memory and arithmetic permit" },
    s("line", { class: "axis", x1: kLeft, y1: kHeight - kBottom, x2: kWidth - 8, y2: kHeight - kBottom }),
    s("line", { class: "axis", x1: kLeft, y1: 8, x2: kLeft, y2: kHeight - kBottom }),
    s("polyline", { class: "roof", points: ends.map((one) => `${x(one)},${y(most(one))}`).join(" ") }),
    s("text", { x: kWidth - 8, y: kHeight - 8, "text-anchor": "end" }, `FLOP/byte, ridge ${ridge.toPrecision(3)}`),
    s("text", { x: 2, y: 18 }, "GFLOP/s"),
    ...circles,
  );
}

/// "40 registers · 256 threads · 16.0 KiB shared · 2 blocks a multiprocessor, 25.0 % of its threads"
function useText(use: CodeUse): string {
  return [
    `${use.registers} registers`,
    `${use.threads} threads`,
    `${bytes(use.shared_bytes)} shared`,
    use.stack_bytes > 0 && `${bytes(use.stack_bytes)} stack`,
    use.spill_stores + use.spill_loads > 0 && `${bytes(use.spill_stores + use.spill_loads)} of spills`,
    use.blocks > 0 && `${use.blocks} ${use.blocks === 1 ? "block" : "blocks"} a multiprocessor, ${share(use.occupancy, 1)} of its threads`,
  ]
    .filter((one) => one !== false)
    .join(" · ");
}

export function kernelsPage(view: View): HTMLElement {
  const { program, place } = view;
  const report = program.report;
  if (!report || !program.plan) return h("p", { class: "empty" }, program.failed ?? "The record ends before kernels were made.");
  if (report.kernels.length === 0) return h("p", { class: "empty" }, "The program has no kernel.");
  const steps = program.launchSteps();
  const times = report.kernels.map((_, i) => program.launchSeconds(i));
  const total = times.reduce((sum, one) => sum + one.seconds, 0);
  const machine = report.search?.machine;
  const order = report.kernels.map((_, i) => i).sort((a, b) => times[b].seconds - times[a].seconds);
  const chosen = place.launch !== undefined && report.kernels[place.launch] ? place.launch : order[0];
  const how = new Set(times.map((one) => one.how));
  const list = table(
    "Launches by time",
    [
      { title: "launch", cell: (i: number) => i, number: true },
      { title: "kernel", cell: (i: number) => report.kernels[i].name },
      { title: "form", cell: (i: number) => report.kernels[i].form },
      { title: how.size === 1 ? [...how][0] : "time", cell: (i: number) => `${time(times[i].seconds)}${how.size > 1 ? ` ${times[i].how}` : ""}`, number: true },
      { title: "share", cell: (i: number) => share(times[i].seconds, total), number: true },
      ...(how.size === 1 && how.has("predicted") ? [] : [{ title: "predicted", cell: (i: number) => time(report.kernels[i].predicted_seconds), number: true }]),
      { title: "read", cell: (i: number) => bytes(report.kernels[i].bytes_read), number: true },
      { title: "written", cell: (i: number) => bytes(report.kernels[i].bytes_written), number: true },
      { title: "GB/s", cell: (i: number) => rate(report.kernels[i].bytes_read + report.kernels[i].bytes_written, times[i].seconds), number: true },
      { title: "GFLOP/s", cell: (i: number) => rate(report.kernels[i].flops, times[i].seconds), number: true },
      {
        title: "of ceiling",
        cell: (i: number) => {
          if (!machine || !(machine.bytes_per_second > 0)) return "–";
          const kernel = report.kernels[i];
          const least = Math.max((kernel.bytes_read + kernel.bytes_written) / machine.bytes_per_second, kernel.flops / machine.flops_per_second);
          return share(least, times[i].seconds);
        },
        number: true,
      },
    ],
    order,
    (i) => view.go({ launch: i }),
    order.indexOf(chosen),
  );
  const step = steps[chosen].step;
  const kernel = program.kernels[step.kernel!];
  const [source, within] = (kernel.code ?? "none").split(/^; assembly\n/m);
  const assembly = kernel.assembly ?? within;
  const forms: [Form, string, string, string][] = [
    ["region", "Region", kernel.region, "what the kernel computes"],
    ["tree", "Schedule", treeLines(kernel.tree.trim() || kernel.schedule), kernel.schedule.split(" ")[0]],
    ["loops", "Loops", kernel.loops, "the program"],
    ["source", "Source", source, program.device],
  ];
  if (assembly !== undefined) forms.push(["assembly", "Assembly", assembly, program.device]);
  const panes = forms.map(([form, title, text]) => paneOf(form, title, text));
  const light = linkPanes(panes);
  // Whoever comes from a node sees what computes it.
  const asked = place.node !== undefined && program.launchOfNode().get(place.node) === chosen ? linesOf(program.nodes[place.node].op, panes[0]) : [];
  if (asked.length > 0) queueMicrotask(() => light(panes[0], asked));
  const known = panes.some(({ form, keys }) => form === "source" && keys.some((one) => one.size > 0));
  const same = steps.filter((one) => one.step.kernel === step.kernel).length;
  return h(
    "div",
    { class: "main", "data-launch": chosen },
    h("div", { class: "upper" }, list, machine && roofline(report.kernels, times.map((one) => one.seconds), machine, chosen, (launch) => view.go({ launch }))),
    h(
      "div",
      { class: "bar" },
      h("strong", {}, `${chosen} ${kernel.name}`),
      h("span", { class: "hint" }, `${report.kernels[chosen].ops.join(", ")}${same > 1 ? ` · ${same} launches share this kernel` : ""} · click a line, or walk with the arrow keys, for the lines that belong to it${known ? "" : "; where those of this source come from is not known"}`),
      kernel.use && h("span", { id: "use" }, useText(kernel.use)),
      h("button", { type: "button", click: () => view.go({ page: "graph", graph: String(program.plan!.graph), node: program.graphs[program.plan!.graph].nodes[report.kernels[chosen].nodes.at(-1)!], colour: "kernel" }) }, "Show in the graph"),
    ),
    h("div", { class: "panes" }, ...panes.map(({ pre }, i) => h("div", { class: "panel" }, h("h2", {}, forms[i][1], h("small", {}, ` ${forms[i][3]}`)), pre))),
  );
}
