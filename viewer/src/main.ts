// The viewer: pages over one record that is part of the document.
import { h } from "./dom";
import { egraphPage } from "./page_egraph";
import { graphPage } from "./page_graph";
import { kernelsPage } from "./page_kernels";
import { memoryPage } from "./page_memory";
import { passesPage } from "./page_passes";
import { searchPage } from "./page_search";
import { timelinePage } from "./page_timeline";
import { readPlace, writePlace, type Place, type View } from "./place";
import { parseRecord, type Record } from "./record";

const kPages: [string, string, (view: View) => HTMLElement][] = [
  ["graph", "Graph", graphPage],
  ["passes", "Passes", passesPage],
  ["kernels", "Kernels", kernelsPage],
  ["search", "Search", searchPage],
  ["memory", "Memory", memoryPage],
  ["timeline", "Timeline", timelinePage],
  ["egraph", "E-graph", egraphPage],
];

const app = document.getElementById("app")!;
let record: Record;
let place: Place = readPlace(location.hash);

function note(change: Partial<Place>): void {
  place = { ...place, ...change };
  history.replaceState(null, "", writePlace(place));
}

function go(change: Partial<Place>): void {
  place = { ...place, ...change };
  history.pushState(null, "", writePlace(place));
  draw();
  // What had the focus is gone, or there was nothing: the keyboard goes on in the page.
  const main = document.querySelector("main");
  if (document.activeElement === document.body && main) ((place.page === "graph" && main.querySelector("canvas")) || main).focus();
}

function theme(): void {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  draw();
}

/// A page, or what keeps it from being drawn: a record may lack what this page needs.
function content(page: (view: View) => HTMLElement, view: View): HTMLElement {
  try {
    return page(view);
  } catch (error) {
    return h("p", { class: "warning", role: "alert" }, `This page cannot be drawn: ${(error as Error).message}`);
  }
}

function draw(): void {
  const focused = (document.activeElement as HTMLElement | null)?.id;
  const program = record.programs[place.program] ?? record.programs[0];
  if (!program) {
    app.replaceChildren(h("p", { class: "empty" }, "Nothing was compiled while this record was written."));
    return;
  }
  const page = kPages.find(([name]) => name === place.page) ?? kPages[0];
  const view: View = { record, program, place, go, note };
  const programs = h(
    "select",
    { "aria-label": "Program", id: "program", change: (event: Event) => go({ program: Number((event.target as HTMLSelectElement).value), graph: undefined, node: undefined, pass: undefined, launch: undefined, step: undefined, class: undefined, within: undefined }) },
    ...record.programs.map((one) => h("option", { value: one.number, selected: one === program }, `program ${one.number}: ${one.graphs[0]?.nodes.length ?? 0} ops, ${one.report?.kernels.length ?? 0} kernels`)),
  );
  const header = h(
    "header",
    {},
    h("h1", {}, "egret"),
    h(
      "nav",
      { "aria-label": "Pages" },
      ...kPages.map(([name, title], i) => h("button", { type: "button", id: `page-${name}`, "aria-current": name === page[0] ? "page" : undefined, "aria-keyshortcuts": String(i + 1), click: () => go({ page: name }) }, title)),
    ),
    programs,
    h("span", { class: "hint" }, program.device ? `${program.device}, effort ${program.effort}` : "as it was recorded, not compiled"),
    h("button", { type: "button", id: "theme", "aria-label": "Dark or light", title: "Dark or light ( t )", click: theme }, "◐"),
  );
  const warnings = [
    !record.complete && "This record is cut short: its last line is missing.",
    program.failed && `The compilation failed: ${program.failed}`,
  ].filter((text) => text !== false && text !== undefined && text !== "");
  app.replaceChildren(header, ...warnings.map((text) => h("p", { class: "warning", role: "alert" }, text as string)), h("main", { "data-page": page[0], tabindex: -1 }, content(page[2], view)));
  if (focused) document.getElementById(focused)?.focus();
}

document.addEventListener("keydown", (event) => {
  const target = event.target as HTMLElement;
  if (event.ctrlKey || event.metaKey || event.altKey || target.matches("input, select")) {
    if (event.key === "Escape") target.blur();
    return;
  }
  const digit = Number(event.key);
  if (digit >= 1 && digit <= kPages.length) go({ page: kPages[digit - 1][0] });
  else if (event.key === "/") document.getElementById("search")?.focus();
  else if (["[", "]", "Backspace"].includes(event.key)) document.querySelector<HTMLElement>(`[aria-keyshortcuts="${event.key}"]`)?.click();
  else if (event.key === "t") theme();
  else return;
  event.preventDefault();
});
window.addEventListener("popstate", () => {
  place = readPlace(location.hash);
  draw();
});
window.addEventListener("hashchange", () => {
  place = readPlace(location.hash);
  draw();
});

try {
  record = parseRecord(document.getElementById("record")!.textContent!);
  draw();
} catch (error) {
  app.replaceChildren(h("p", { class: "warning", role: "alert" }, (error as Error).message));
}
