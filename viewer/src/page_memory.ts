// The memory page: the arena's blocks over the plan's steps, and what lives at the peak.
import { bytes, extent, h, s, table, walked } from "./dom";
import type { View } from "./place";
import type { Slot } from "./record";

const kLeft = 78;
const kBottom = 26;
const kTop = 10;

export function memoryPage(view: View): HTMLElement {
  const { program } = view;
  const plan = program.plan;
  if (!plan) return h("p", { class: "empty" }, "The record has no plan.");
  const blocks = plan.slots.map((slot, number) => ({ slot, number })).filter(({ slot }) => slot.kind === "arena" && slot.bytes > 0);
  const live = plan.steps.map((_, step) => blocks.reduce((sum, { slot }) => sum + (slot.first_step <= step && step <= slot.last_step ? slot.bytes : 0), 0));
  const most = Math.max(0, extent(live)[1]);
  const peak = live.indexOf(most);
  const kept = (kind: Slot["kind"]) => plan.slots.reduce((sum, slot) => sum + (slot.kind === kind ? slot.bytes : 0), 0);
  const launchOf = new Map<number, number>();
  program.launchSteps().forEach(({ place }, launch) => launchOf.set(place, launch));
  const nameOf = (step: number) => {
    const launch = launchOf.get(step);
    return launch === undefined ? `${plan.steps[step]?.kind ?? "step"} ${step}` : `launch ${launch} ${program.report?.kernels[launch].name ?? ""}`;
  };
  const summary = h(
    "p",
    {},
    `Arena ${bytes(plan.arena_bytes)}; the most that lives at one step ${bytes(plan.liveness_bound_bytes)}. Inputs ${bytes(kept("input"))}, states ${bytes(kept("state"))}, outputs ${bytes(kept("output"))}.`,
  );
  if (blocks.length === 0) return h("div", { class: "main scroll" }, h("h2", {}, "Memory"), summary, h("p", {}, "No value lies in the arena: nothing is stored between kernels."));

  const width = 1200;
  const height = 420;
  const steps = plan.steps.length;
  const x = (step: number) => kLeft + (step / steps) * (width - kLeft - 6);
  const top = Math.max(plan.arena_bytes, most);
  const y = (at: number) => height - kBottom - (at / top) * (height - kBottom - kTop);
  const chart = s("svg", { class: "memory", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `Blocks of the arena over ${steps} steps` });
  for (const part of [0, 0.25, 0.5, 0.75, 1])
    chart.append(s("line", { class: "grid", x1: kLeft, x2: width - 6, y1: y(part * top), y2: y(part * top) }), s("text", { x: kLeft - 8, y: y(part * top) + 4, "text-anchor": "end" }, bytes(Math.round(part * top))));
  const mark = Math.max(1, Math.ceil(steps / 16));
  for (let step = 0; step < steps; step += mark) chart.append(s("text", { x: x(step + 0.5), y: height - 8, "text-anchor": "middle" }, String(step)));
  const about = h("p", { class: "hint", role: "status" }, "Point at a block, or walk with the arrow keys.");
  const describe = (slot: Slot, number: number) => `slot ${number}: ${slot.type}, ${bytes(slot.bytes)} at ${slot.offset}; from ${nameOf(slot.first_step)} to ${nameOf(slot.last_step)}`;
  const drawn = blocks.map(({ slot, number }) => {
    const left = x(slot.first_step);
    const right = x(slot.last_step + 1);
    const upper = y(slot.offset! + slot.bytes);
    const tall = y(slot.offset!) - upper;
    const block = s(
      "g",
      { class: `block p${number % 8}`, "aria-label": describe(slot, number), "data-slot": number },
      s("rect", { x: left, y: upper, width: Math.max(1, right - left), height: Math.max(1, tall) }),
      s("title", {}, describe(slot, number)),
      right - left > 90 && tall > 14 && s("text", { x: (left + right) / 2, y: upper + tall / 2 + 4, "text-anchor": "middle" }, `${slot.type} ${bytes(slot.bytes)}`),
    );
    const tell = () => about.replaceChildren(describe(slot, number));
    block.addEventListener("pointerenter", tell);
    block.addEventListener("focus", tell);
    return block;
  });
  walked(drawn);
  chart.append(...drawn);
  chart.append(s("rect", { class: "peak", x: x(peak), y: kTop, width: Math.max(2, x(peak + 1) - x(peak)), height: height - kBottom - kTop }));
  const outline = live.flatMap((sum, step) => [`${x(step)},${y(sum)}`, `${x(step + 1)},${y(sum)}`]).join(" ");
  chart.append(s("polyline", { class: "live", points: outline }));
  const atPeak = blocks.filter(({ slot }) => slot.first_step <= peak && peak <= slot.last_step).sort((a, b) => b.slot.bytes - a.slot.bytes);
  return h(
    "div",
    { class: "main scroll" },
    h("h2", {}, "Memory"),
    summary,
    chart,
    about,
    h("h2", {}, `At the peak, ${nameOf(peak)}: ${bytes(live[peak])} in ${atPeak.length} blocks`),
    table(
      "Blocks at the peak",
      [
        { title: "slot", cell: ({ number }) => number, number: true },
        { title: "type", cell: ({ slot }) => h("code", {}, slot.type) },
        { title: "size", cell: ({ slot }) => bytes(slot.bytes), number: true },
        { title: "offset", cell: ({ slot }) => slot.offset, number: true },
        { title: "made by", cell: ({ slot }) => nameOf(slot.first_step) },
        { title: "last read by", cell: ({ slot }) => nameOf(slot.last_step) },
      ],
      atPeak,
    ),
  );
}
