// Elements from data. Text is always a text node: nothing in a record can become markup.

type Child = Node | string | number | null | undefined | false;
type Attributes = { [name: string]: string | number | boolean | undefined | ((event: any) => void) };

function fill(element: Element, attributes: Attributes, children: Child[]): void {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === false) continue;
    if (typeof value === "function") element.addEventListener(name, value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children)
    if (child !== null && child !== undefined && child !== false)
      element.append(child instanceof Node ? child : String(child));
}

export function h<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  attributes: Attributes = {},
  ...children: Child[]
): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  fill(element, attributes, children);
  return element;
}

export function s<K extends keyof SVGElementTagNameMap>(
  tag: K,
  attributes: Attributes = {},
  ...children: Child[]
): SVGElementTagNameMap[K] {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  fill(element, attributes, children);
  return element;
}

/// One of the elements is reached by Tab, the others from it by the arrow keys.
export function walked(elements: (HTMLElement | SVGElement)[], first = 0): void {
  elements.forEach((element, i) => {
    element.setAttribute("tabindex", i === Math.max(0, first) ? "0" : "-1");
    element.addEventListener("keydown", (event) => {
      const key = (event as KeyboardEvent).key;
      const by = key === "ArrowDown" || key === "ArrowRight" ? 1 : key === "ArrowUp" || key === "ArrowLeft" ? -1 : 0;
      if (by === 0) return;
      const next = elements[i + by];
      if (next) {
        element.setAttribute("tabindex", "-1");
        next.setAttribute("tabindex", "0");
        next.focus();
      }
      event.preventDefault();
    });
  });
}

export interface Column<Row> {
  title: string;
  cell: (row: Row, place: number) => Child;
  number?: boolean;
}

/// A table whose rows can be chosen by click and by keyboard where `choose` is given.
export function table<Row>(
  label: string,
  columns: Column<Row>[],
  rows: Row[],
  choose?: (row: Row, place: number) => void,
  chosen = -1,
): HTMLElement {
  const body = h("tbody");
  const lines = rows.map((row, place) => {
    // A page that is drawn again finds the row that had the focus by its id.
    const line = h("tr", { "aria-selected": choose ? String(place === chosen) : undefined, id: choose ? `${label}-${place}` : undefined });
    for (const column of columns) line.append(h("td", { class: column.number ? "number" : undefined }, column.cell(row, place)));
    if (choose) {
      line.addEventListener("click", () => choose(row, place));
      line.addEventListener("keydown", (event) => {
        if (event.key !== "Enter" && event.key !== " ") return;
        choose(row, place);
        event.preventDefault();
      });
    }
    return line;
  });
  if (choose) walked(lines, chosen);
  body.append(...lines);
  const head = h("tr");
  for (const column of columns) head.append(h("th", { scope: "col", class: column.number ? "number" : undefined }, column.title));
  return h("div", { class: "table", role: "region", "aria-label": label, tabindex: choose ? undefined : 0 }, h("table", {}, h("thead", {}, head), body));
}

/// The least and the most of any number of values, more than a call may have arguments.
export function extent(values: number[]): [number, number] {
  return [values.reduce((a, b) => Math.min(a, b), Infinity), values.reduce((a, b) => Math.max(a, b), -Infinity)];
}

export function time(seconds: number): string {
  if (!(seconds > 0)) return "–";
  if (seconds < 1e-3) return `${(seconds * 1e6).toPrecision(3)} µs`;
  if (seconds < 1) return `${(seconds * 1e3).toPrecision(3)} ms`;
  return `${seconds.toPrecision(3)} s`;
}

export function bytes(count: number): string {
  for (const [unit, size] of [["GiB", 2 ** 30], ["MiB", 2 ** 20], ["KiB", 2 ** 10]] as const)
    if (count >= size) return `${(count / size).toFixed(1)} ${unit}`;
  return `${count} B`;
}

export function share(part: number, whole: number): string {
  return whole > 0 ? `${((100 * part) / whole).toFixed(1)} %` : "–";
}

export function rate(count: number, seconds: number): string {
  return seconds > 0 && count > 0 ? ((count / seconds) * 1e-9).toPrecision(3) : "–";
}
