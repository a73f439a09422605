// The kernels page: launches by time, and each kernel as region, schedule, loops and source side by side.
import { bytes, h, rate, share, table, time } from "./dom";
import type { View } from "./place";

/// Marks every occurrence of the word that was clicked in all panes.
function linkWords(panes: HTMLElement[]): void {
  const registry = (CSS as any).highlights;
  if (!registry) return; // a browser without the Custom Highlight API
  const word = /[\w%.]+/g;
  const light = (wanted: string) => {
    const ranges: Range[] = [];
    for (const pane of panes) {
      const text = pane.firstChild;
      if (!(text instanceof Text)) continue;
      for (const match of text.data.matchAll(word)) {
        if (match[0] !== wanted) continue;
        const range = new Range();
        range.setStart(text, match.index);
        range.setEnd(text, match.index + wanted.length);
        ranges.push(range);
        if (ranges.length > 2000) break;
      }
    }
    registry.set("linked", new (window as any).Highlight(...ranges));
    panes.forEach((pane) => (pane.dataset.linked = wanted));
  };
  for (const pane of panes)
    pane.addEventListener("click", () => {
      const selection = getSelection();
      const text = pane.firstChild;
      if (!selection || !(text instanceof Text) || selection.anchorNode !== text) return;
      for (const match of text.data.matchAll(word))
        if (match.index <= selection.anchorOffset && selection.anchorOffset <= match.index + match[0].length) return light(match[0]);
      light("");
    });
}

export function kernelsPage(view: View): HTMLElement {
  const { program, place } = view;
  const report = program.report;
  if (!report || !program.plan) return h("p", { class: "empty" }, program.failed ?? "The record ends before kernels were made.");
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
      { title: how.size === 1 ? `time (${[...how][0]})` : "time", cell: (i: number) => `${time(times[i].seconds)}${how.size > 1 ? ` ${times[i].how}` : ""}`, number: true },
      { title: "share", cell: (i: number) => share(times[i].seconds, total), number: true },
      { title: "predicted", cell: (i: number) => time(report.kernels[i].predicted_seconds), number: true },
      { title: "read", cell: (i: number) => bytes(report.kernels[i].bytes_read), number: true },
      { title: "written", cell: (i: number) => bytes(report.kernels[i].bytes_written), number: true },
      { title: "GB/s", cell: (i: number) => rate(report.kernels[i].bytes_read + report.kernels[i].bytes_written, times[i].seconds), number: true },
      { title: "GFLOP/s", cell: (i: number) => rate(report.kernels[i].flops, times[i].seconds), number: true },
      {
        title: "of the ceiling",
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
  if (report.kernels.length === 0) return h("p", { class: "empty" }, "The program has no kernel.");
  const step = steps[chosen].step;
  const kernel = program.kernels[step.kernel!];
  const panes = [
    ["Region", kernel.region, "what the kernel computes"],
    ["Schedule", kernel.tree.trim() || kernel.schedule, kernel.schedule.split(" ")[0]],
    ["Loops", kernel.loops, "the program"],
    ["Source", kernel.code ?? "none", program.device],
  ].map(([title, text, hint]) => ({ title, hint, pre: h("pre", { class: "text", tabindex: 0, "aria-label": title }, text) }));
  linkWords(panes.map(({ pre }) => pre));
  const same = steps.filter((one) => one.step.kernel === step.kernel).length;
  return h(
    "div",
    { class: "main", "data-launch": chosen },
    h("div", { class: "upper" }, list),
    h(
      "div",
      { class: "bar" },
      h("strong", {}, `${chosen} ${kernel.name}`),
      h("span", { class: "hint" }, `${report.kernels[chosen].ops.join(", ")}${same > 1 ? ` · ${same} launches share this kernel` : ""} · click a word to mark it in all panes`),
      h("button", { type: "button", click: () => view.go({ page: "graph", graph: String(program.plan!.graph), node: program.graphs[program.plan!.graph].nodes[report.kernels[chosen].nodes.at(-1)!], colour: "kernel" }) }, "Show in the graph"),
    ),
    h("div", { class: "panes" }, ...panes.map(({ title, hint, pre }) => h("div", { class: "panel" }, h("h2", {}, title, h("small", {}, ` ${hint}`)), pre))),
  );
}
