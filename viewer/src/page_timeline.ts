// The timeline page: compiler passes and launches of all programs, copies and memory in use, from when the record began.
import { bytes, extent, h, s, share, table, time } from "./dom";
import type { View } from "./place";

interface Bar {
  row: number;
  name: string;
  begin: number;
  seconds: number;
  colour: number;
  open: () => void;
}

const kWidth = 1200;
const kRow = 30;
const kLeft = 130;
const kMemory = 64; // height of a device's memory

export function timelinePage(view: View): HTMLElement {
  const { record } = view;
  const rows: string[] = [];
  const bars: Bar[] = [];
  for (let depth = 0; ; ++depth) {
    const level = record.ranges.filter((range) => range.path.split("/").length === depth + 1);
    if (level.length === 0) break;
    rows.push(depth === 0 ? "ranges" : "");
    const names = [...new Set(level.map((range) => range.path))];
    for (const range of level)
      bars.push({ row: rows.length - 1, name: range.path.split("/")[depth], begin: range.begin, seconds: range.seconds, colour: names.indexOf(range.path), open: () => undefined });
  }
  record.programs.forEach((program, number) => {
    const label = record.programs.length > 1 ? `${number} ` : "";
    rows.push(`${label}compile`);
    program.passes.forEach((pass, i) =>
      bars.push({ row: rows.length - 1, name: pass.pass, begin: pass.begin, seconds: pass.seconds, colour: i, open: () => view.go({ page: "passes", program: number, pass: i }) }),
    );
    if (program.launches.length === 0) return;
    rows.push(`${label}launches`);
    program.launches.forEach((launch) =>
      bars.push({
        row: rows.length - 1,
        name: program.report?.kernels[launch.launch]?.name ?? String(launch.launch),
        begin: launch.begin,
        seconds: launch.seconds,
        colour: launch.launch,
        open: () => view.go({ page: "kernels", program: number, launch: launch.launch }),
      }),
    );
  });
  if (record.copies.length > 0) {
    rows.push("copies");
    const kinds = [...new Set(record.copies.map((copy) => copy.what))];
    for (const copy of record.copies)
      bars.push({ row: rows.length - 1, name: `${copy.what}, ${bytes(copy.bytes)}`, begin: copy.begin, seconds: copy.seconds, colour: kinds.indexOf(copy.what), open: () => undefined });
  }
  const devices = [...new Set(record.memory.map((one) => one.device))];
  if (bars.length === 0) return h("p", { class: "empty" }, "The record has no times.");
  const whole = { begin: extent(bars.map((bar) => bar.begin))[0], end: extent(bars.map((bar) => bar.begin + bar.seconds))[1] };
  let { begin, end } = whole;
  const about = h("p", { class: "hint", role: "status" }, "Wheel to zoom, drag to move, click a bar to open it; up and down choose one, Enter opens it.");
  const top = rows.length * (kRow + 8); // of the memory
  const height = top + devices.length * (kMemory + 8) + 26;
  const chart = s("svg", { class: "timeline", viewBox: `0 0 ${kWidth} ${height}`, role: "application", id: "timeline", tabindex: 0, "aria-label": "Passes and launches over time; plus and minus zoom, left and right move, 0 shows all, up and down choose a bar, Enter opens it" });
  bars.sort((a, b) => a.row - b.row || a.begin - b.begin);
  let chosen = -1;
  const tell = (bar: Bar) => about.replaceChildren(`${bar.name}: ${time(bar.seconds)}, ${time(bar.begin - whole.begin)} after the beginning`);
  const x = (at: number) => kLeft + ((at - begin) / (end - begin)) * (kWidth - kLeft - 6);
  const draw = () => {
    chart.replaceChildren();
    rows.forEach((row, i) => chart.append(s("text", { x: kLeft - 10, y: i * (kRow + 8) + 20, "text-anchor": "end" }, row)));
    for (let i = 0; i <= 6; ++i) {
      const at = begin + ((end - begin) * i) / 6;
      chart.append(s("line", { class: "grid", x1: x(at), x2: x(at), y1: 0, y2: height - 20 }), s("text", { x: x(at), y: height - 5, "text-anchor": i === 6 ? "end" : "middle" }, time(at - whole.begin) === "–" ? "0" : time(at - whole.begin)));
    }
    devices.forEach((device, i) => {
      const base = top + i * (kMemory + 8) + kMemory;
      const all = record.memory.filter((one) => one.device === device);
      const most = Math.max(1, extent(all.map((one) => one.in_use))[1]);
      const before = all.filter((one) => one.at <= begin).length;
      const seen = all.filter((one, k) => k >= before - 1 && one.at <= end);
      let line = "";
      let y = base;
      for (const one of seen) {
        const at = Math.max(kLeft, x(one.at));
        line += line === "" ? `M${at},${base}` : `L${at},${y}`;
        y = base - (one.in_use / most) * (kMemory - 6);
        line += `L${at},${y}`;
      }
      chart.append(
        s("text", { x: kLeft - 10, y: base - kMemory / 2 + 4, "text-anchor": "end" }, `${device} memory`),
        s("text", { x: kLeft - 10, y: base - kMemory / 2 + 20, "text-anchor": "end" }, `most ${bytes(most)}`),
        s("path", { class: "memory", "data-device": device, d: line === "" ? "" : `${line}L${kWidth - 6},${y}L${kWidth - 6},${base}Z` }),
      );
    });
    for (const [i, bar] of bars.entries()) {
      const left = Math.max(kLeft, x(bar.begin));
      const right = Math.min(kWidth - 6, x(bar.begin + bar.seconds));
      if (right < kLeft || left > kWidth - 6 || right < left) continue;
      const wide = Math.max(1, right - left);
      const group = s(
        "g",
        { class: `interval p${bar.colour % 8}${i === chosen ? " chosen" : ""}`, click: bar.open, pointerenter: () => tell(bar) },
        s("rect", { x: left, y: bar.row * (kRow + 8), width: wide, height: kRow, rx: 2 }),
        s("title", {}, `${bar.name} ${time(bar.seconds)}`),
        wide > bar.name.length * 7 + 8 && s("text", { x: left + wide / 2, y: bar.row * (kRow + 8) + 20, "text-anchor": "middle" }, bar.name),
      );
      chart.append(group);
    }
  };
  const zoom = (by: number, at: number) => {
    const least = (whole.end - whole.begin) * 1e-6;
    begin = Math.max(whole.begin, at - (at - begin) * by);
    end = Math.min(whole.end, Math.max(begin + least, at + (end - at) * by));
    draw();
  };
  const move = (by: number) => {
    const shift = Math.max(whole.begin - begin, Math.min(whole.end - end, by));
    begin += shift;
    end += shift;
    draw();
  };
  /// Chooses the next bar of the rows, from those in view at first, and moves it into view.
  const choose = (by: number) => {
    if (chosen < 0) chosen = Math.max(0, bars.findIndex((bar) => bar.begin + bar.seconds >= begin && bar.begin <= end));
    else chosen = Math.max(0, Math.min(bars.length - 1, chosen + by));
    const bar = bars[chosen];
    const middle = bar.begin + bar.seconds / 2;
    if (middle < begin || middle > end) move(middle - (begin + end) / 2);
    else draw();
    tell(bar);
  };
  const timeAt = (event: MouseEvent) => begin + Math.max(0, ((event.offsetX / chart.clientWidth) * kWidth - kLeft) / (kWidth - kLeft - 6)) * (end - begin);
  chart.addEventListener("wheel", (event) => (event.preventDefault(), zoom(Math.exp(event.deltaY * 0.0015), timeAt(event))), { passive: false });
  let last: number | undefined;
  chart.addEventListener("pointerdown", (event) => (last = event.clientX));
  chart.addEventListener("pointerup", () => (last = undefined));
  chart.addEventListener("pointermove", (event) => {
    if (last === undefined || event.buttons === 0) return;
    move((-(event.clientX - last) / chart.clientWidth) * (end - begin));
    last = event.clientX;
  });
  chart.addEventListener("keydown", (event) => {
    const middle = (begin + end) / 2;
    if (event.key === "+" || event.key === "=") zoom(0.7, middle);
    else if (event.key === "-") zoom(1.4, middle);
    else if (event.key === "0") ((begin = whole.begin), (end = whole.end), draw());
    else if (event.key === "ArrowLeft") move(-(end - begin) / 8);
    else if (event.key === "ArrowRight") move((end - begin) / 8);
    else if (event.key === "ArrowDown") choose(1);
    else if (event.key === "ArrowUp") choose(-1);
    else if (event.key === "Enter" && chosen >= 0) bars[chosen].open();
    else return;
    event.preventDefault();
    event.stopPropagation();
  });
  draw();
  const sums = new Map<string, { count: number; seconds: number }>();
  for (const bar of bars) {
    const key = `${rows[bar.row]}\u0000${bar.name}`;
    const sum = sums.get(key) ?? { count: 0, seconds: 0 };
    sums.set(key, { count: sum.count + 1, seconds: sum.seconds + bar.seconds });
  }
  const all = bars.reduce((sum, bar) => sum + bar.seconds, 0);
  return h(
    "div",
    { class: "main scroll" },
    h("h2", {}, "Timeline"),
    chart,
    about,
    table(
      "Totals",
      [
        { title: "row", cell: ([key]) => key.split("\u0000")[0] },
        { title: "what", cell: ([key]) => key.split("\u0000")[1] },
        { title: "times", cell: ([, sum]) => sum.count, number: true },
        { title: "total", cell: ([, sum]) => time(sum.seconds), number: true },
        { title: "share", cell: ([, sum]) => share(sum.seconds, all), number: true },
      ],
      [...sums].sort((a, b) => b[1].seconds - a[1].seconds),
    ),
  );
}
