// The launches of a plan, with the memory between them.
import { bytes, h, share, time } from "./dom";
import { GraphCanvas, type Item } from "./graph_canvas";
import type { View } from "./place";

export function launchesPage(view: View, choice: HTMLElement): HTMLElement {
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
