// The search page: rules that fired, fusion plans, and for each region the candidates with what was predicted and measured.
import { extent, h, s, table, time } from "./dom";
import type { View } from "./place";
import type { Candidate, RegionSearch } from "./record";

const kWidth = 360;
const kHeight = 260;
const kMargin = 44;

/// Predicted against measured seconds, both on logarithmic scales.
function scatter(region: RegionSearch): SVGElement | null {
  const timed = region.candidates.filter((one) => one.seconds > 0 && one.predicted_seconds > 0);
  if (timed.length < 2) return null;
  const all = timed.flatMap((one) => [one.seconds, one.predicted_seconds]);
  const [least, most] = extent(all);
  const low = Math.log10(least) - 0.1;
  const high = Math.log10(most) + 0.1;
  const x = (seconds: number) => kMargin + ((Math.log10(seconds) - low) / (high - low)) * (kWidth - kMargin - 8);
  const y = (seconds: number) => kHeight - kMargin - ((Math.log10(seconds) - low) / (high - low)) * (kHeight - kMargin - 8);
  const points = timed.map((one) =>
    s(
      "circle",
      { cx: x(one.predicted_seconds), cy: y(one.seconds), r: one.schedule === region.chosen ? 6 : 4, class: one.schedule === region.chosen ? "best" : "point" },
      s("title", {}, `${one.schedule}: predicted ${time(one.predicted_seconds)}, measured ${time(one.seconds)}`),
    ),
  );
  return s(
    "svg",
    { class: "scatter", viewBox: `0 0 ${kWidth} ${kHeight}`, width: kWidth, height: kHeight, role: "img", "aria-label": "Predicted against measured time of the candidates" },
    s("line", { class: "axis", x1: kMargin, y1: kHeight - kMargin, x2: kWidth - 8, y2: kHeight - kMargin }),
    s("line", { class: "axis", x1: kMargin, y1: 8, x2: kMargin, y2: kHeight - kMargin }),
    s("line", { class: "equal", x1: x(10 ** low), y1: y(10 ** low), x2: x(10 ** high), y2: y(10 ** high) }),
    s("text", { x: kWidth - 8, y: kHeight - kMargin + 30, "text-anchor": "end" }, `predicted: ${time(10 ** low)} to ${time(10 ** high)}`),
    s("text", { x: kMargin, y: kHeight - kMargin + 30, "text-anchor": "start" }, "measured ↑"),
    ...points,
  );
}

/// Measured seconds of the candidates in the order in which they were tried, with the best until then; those that were rejected below.
function progress(region: RegionSearch): SVGElement | null {
  const tried = region.candidates.filter((one) => one.seconds > 0 || rejected.includes(one.state));
  const timed = tried.filter((one) => one.seconds > 0);
  if (timed.length < 2) return null;
  const [least, most] = extent(timed.map((one) => one.seconds));
  const low = Math.log10(least) - 0.05;
  const high = Math.log10(most) + 0.05;
  const bottom = kHeight - kMargin;
  const x = (place: number) => kMargin + ((place + 0.5) / tried.length) * (kWidth - kMargin - 8);
  const y = (seconds: number) => bottom - 14 - ((Math.log10(seconds) - low) / (high - low)) * (bottom - 22);
  let best = Infinity;
  let steps = "";
  tried.forEach((one, i) => {
    if (!(one.seconds > 0 && one.seconds < best)) return;
    steps += best === Infinity ? `M${x(i)},${y(one.seconds)}` : `H${x(i)}V${y(one.seconds)}`;
    best = one.seconds;
  });
  return s(
    "svg",
    { class: "scatter progress", viewBox: `0 0 ${kWidth} ${kHeight}`, width: kWidth, height: kHeight, role: "img", "aria-label": `${tried.length} candidates as they were tried, the best ${time(best)}` },
    s("line", { class: "axis", x1: kMargin, y1: bottom, x2: kWidth - 8, y2: bottom }),
    s("line", { class: "axis", x1: kMargin, y1: 8, x2: kMargin, y2: bottom }),
    s("path", { class: "roof", d: `${steps}H${kWidth - 8}` }),
    s("text", { x: kWidth - 8, y: bottom + 30, "text-anchor": "end" }, `${tried.length} candidates as they were tried, best ${time(best)}`),
    ...tried.map((one, i) =>
      one.seconds > 0
        ? s("circle", { cx: x(i), cy: y(one.seconds), r: one.schedule === region.chosen ? 6 : 4, class: one.schedule === region.chosen ? "best" : "point" }, s("title", {}, `${one.schedule}: ${time(one.seconds)}`))
        : s("path", { class: "rejected", d: `M${x(i) - 4},${bottom - 8}l8,8m0,-8l-8,8` }, s("title", {}, `${one.schedule}: ${one.state}, ${one.message}`)),
    ),
  );
}

const rejected = ["refused", "compile", "wrong", "crash", "hang"];

function candidates(region: RegionSearch): HTMLElement {
  const list = region.candidates.slice().sort((a, b) => (a.seconds || Infinity) - (b.seconds || Infinity) || a.predicted_seconds - b.predicted_seconds);
  return table(
    `Candidates of ${region.name}`,
    [
      { title: "schedule", cell: (one: Candidate) => h("code", {}, one.schedule === region.chosen ? `✓ ${one.schedule}` : one.schedule) },
      { title: "state", cell: (one: Candidate) => h("span", { class: rejected.includes(one.state) ? "bad" : undefined }, one.state) },
      { title: "predicted", cell: (one: Candidate) => time(one.predicted_seconds), number: true },
      { title: "measured", cell: (one: Candidate) => time(one.seconds), number: true },
      { title: "of greedy", cell: (one: Candidate) => (one.ratio > 0 ? one.ratio.toFixed(3) : "–"), number: true },
      { title: "why rejected", cell: (one: Candidate) => one.message },
    ],
    list,
  );
}

export function searchPage(view: View): HTMLElement {
  const report = view.program.report;
  if (!report) return h("p", { class: "empty" }, "The record ends before the program was compiled.");
  const page = h("div", { class: "main scroll" });
  const { saturation, search } = report;
  if (saturation)
    page.append(
      h("h2", {}, "Rules"),
      h(
        "p",
        {},
        `${saturation.classes} e-classes with ${saturation.nodes} e-nodes after ${saturation.rounds} rounds, ${saturation.saturated ? "saturated" : `stopped by ${saturation.stopped}`}; ${report.ops_before_rules} ops became ${report.ops_extracted}.`,
      ),
      table(
        "Rules that fired",
        [
          { title: "rule", cell: (rule) => rule.rule },
          { title: "group", cell: (rule) => rule.group },
          { title: "tag", cell: (rule) => rule.tag },
          { title: "fired", cell: (rule) => rule.fired, number: true },
          { title: "rows added", cell: (rule) => rule.rows_added, number: true },
          { title: "time", cell: (rule) => time(rule.seconds), number: true },
        ],
        saturation.rules,
      ),
    );
  if (!search) {
    page.append(h("h2", {}, "Schedules"), h("p", {}, "Nothing was searched: with effort none each region has its greedy schedule."));
    return page;
  }
  page.append(h("h2", {}, "Fusion plans"), h("p", {}, [search.note, `${search.fusion_plan} was taken; ${time(search.seconds)} of search`].filter(Boolean).join("; ")));
  if (search.fusion_plans.length > 0)
    page.append(
      table(
        "Fusion plans",
        [
          { title: "change", cell: (plan) => plan.what },
          { title: "state", cell: (plan) => plan.state },
          { title: "predicted", cell: (plan) => plan.predicted_ratio.toFixed(3), number: true },
          { title: "measured", cell: (plan) => time(plan.seconds), number: true },
          { title: "of the best", cell: (plan) => (plan.ratio > 0 ? plan.ratio.toFixed(3) : "–"), number: true },
        ],
        search.fusion_plans,
      ),
    );
  page.append(h("h2", {}, "Regions"));
  search.regions.forEach((region, i) => {
    const open = search.regions.length <= 3 || i === 0;
    const ratio = region.greedy_seconds > 0 && region.seconds > 0 ? `, ${(region.greedy_seconds / region.seconds).toFixed(2)}× the greedy schedule's speed` : "";
    page.append(
      h(
        "details",
        { open },
        h("summary", {}, h("strong", {}, region.name), ` ${region.candidates.length} candidates, ${region.candidates.filter((one) => rejected.includes(one.state)).length} rejected, ${time(region.seconds || 0)}${ratio}`, region.cache_hit ? " (remembered)" : "", region.note ? ` – ${region.note}` : ""),
        h("div", { class: "region" }, h("div", { class: "charts" }, progress(region), scatter(region)), candidates(region)),
      ),
    );
  });
  return page;
}
