// A graph on a canvas: pan, zoom, choose by mouse and keyboard. Only what is in view is drawn, so that ten thousand nodes move smoothly.
import { h } from "./dom";
import { layout, type Layout } from "./layout";

export interface Item {
  id: number;
  title: string;
  detail: string;
  colour: number; // of the palette; -1: none
  mark?: "fresh" | "gone";
  fill?: string; // "#rrggbb", instead of the palette's colour
  round?: boolean; // inputs and outputs
}

export interface GraphCanvasOptions {
  label: string;
  items: Item[];
  operands: number[][]; // by item, places of the items that it reads
  chosen?: number; // an id
  choose?: (id: number | undefined) => void;
  open?: (id: number) => void; // double click, Enter
}

const kHeight = 38;
const kPadding = 12;
const kFont = '12px ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace';
const kTextScale = 0.42; // smaller text is not drawn
const kMostText = 34;
const kReadable = 0.6; // a graph that fits at this scale is shown whole at first
const kLeastScale = 5e-4;

const cut = (text: string) => (text.length > kMostText ? `${text.slice(0, kMostText - 1)}…` : text);

/// Black or white, whichever is read better on the colour (relative luminance of WCAG 2).
function inkOn(colour: string): string {
  const [r, g, b] = [1, 3, 5].map((at) => {
    const part = parseInt(colour.slice(at, at + 2), 16) / 255;
    return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.179 ? "#000000" : "#ffffff";
}

export class GraphCanvas {
  readonly element: HTMLElement;
  private readonly canvas = h("canvas", { tabindex: 0 });
  private readonly drawn: Layout;
  private readonly place = new Map<number, number>(); // by id
  private readonly readers: number[][];
  private readonly layerOf: number[] = [];
  private scale = 1;
  private x = 0; // of the view's left upper corner, in the layout's units
  private y = 0;
  private chosen = -1;
  private waiting = false;
  private fitted = false;
  private painted = 0;

  constructor(private readonly options: GraphCanvasOptions) {
    const { items, operands } = options;
    items.forEach((item, i) => this.place.set(item.id, i));
    this.readers = items.map(() => []);
    operands.forEach((list, i) => list.forEach((operand) => this.readers[operand].push(i)));
    const character = 7.25;
    this.drawn = layout(
      items.map((item) => ({
        width: Math.max(56, Math.max(cut(item.title).length, cut(item.detail).length) * character + 2 * kPadding),
        height: kHeight,
      })),
      operands,
    );
    this.drawn.layers.forEach((list, layer) => list.forEach((i) => (this.layerOf[i] = layer)));
    this.chosen = options.chosen === undefined ? -1 : (this.place.get(options.chosen) ?? -1);
    this.canvas.id = `canvas-${options.label}`;
    this.canvas.setAttribute("role", "application");
    this.canvas.setAttribute(
      "aria-label",
      `${options.label}: ${items.length} nodes. Arrow keys move along edges, plus and minus zoom, 0 shows all, Enter opens.`,
    );
    const button = (text: string, label: string, act: () => void) =>
      h("button", { type: "button", "aria-label": label, title: label, click: act }, text);
    this.element = h(
      "div",
      { class: "graph", "data-nodes": items.length, "data-chosen": "" },
      this.canvas,
      h(
        "div",
        { class: "zoom" },
        button("+", "Zoom in", () => this.zoom(1.3)),
        button("−", "Zoom out", () => this.zoom(1 / 1.3)),
        button("⤢", "Show all", () => this.fit()),
      ),
    );
    this.listen();
    new ResizeObserver(() => this.resized()).observe(this.element);
  }

  focus(): void {
    this.canvas.focus();
  }

  /// Chooses a node and moves it into view.
  show(id: number): void {
    const i = this.place.get(id);
    if (i === undefined) return;
    this.chosen = i;
    this.reveal(i);
    this.paintSoon();
  }

  fit(): void {
    const { clientWidth: width, clientHeight: height } = this.canvas;
    const margin = 24;
    this.scale = Math.min(1.25, Math.max(kLeastScale, Math.min((width - 2 * margin) / this.drawn.width, (height - 2 * margin) / this.drawn.height)));
    this.x = this.drawn.width / 2 - width / 2 / this.scale;
    this.y = this.drawn.height / 2 - height / 2 / this.scale;
    this.paintSoon();
  }

  private resized(): void {
    const { clientWidth: width, clientHeight: height } = this.element;
    const ratio = window.devicePixelRatio || 1;
    this.canvas.width = Math.max(1, Math.round(width * ratio));
    this.canvas.height = Math.max(1, Math.round(height * ratio));
    if (!this.fitted && width > 0 && height > 0) {
      this.fitted = true;
      this.fit();
      if (this.chosen >= 0) this.reveal(this.chosen);
      else if (this.scale < kReadable && this.drawn.layers.length > 0) this.readable();
    }
    this.paintSoon();
  }

  /// A large graph begins at its first layer, at a size at which it can be read.
  private readable(): void {
    this.scale = 0.85;
    const first = this.drawn.boxes[this.drawn.layers[0][0]];
    this.x = first.x - this.canvas.clientWidth / 2 / this.scale;
    this.y = first.y - 60 / this.scale;
  }

  private reveal(i: number): void {
    const box = this.drawn.boxes[i];
    if (this.scale < kTextScale) this.scale = 0.8;
    const width = this.canvas.clientWidth / this.scale;
    const height = this.canvas.clientHeight / this.scale;
    const inside =
      box.x - box.width / 2 > this.x && box.x + box.width / 2 < this.x + width && box.y - kHeight > this.y && box.y + kHeight < this.y + height;
    if (inside) return;
    this.x = box.x - width / 2;
    this.y = box.y - height / 2;
  }

  private zoom(by: number, atX = this.canvas.clientWidth / 2, atY = this.canvas.clientHeight / 2): void {
    const scale = Math.min(3, Math.max(kLeastScale, this.scale * by));
    this.x += atX / this.scale - atX / scale;
    this.y += atY / this.scale - atY / scale;
    this.scale = scale;
    this.paintSoon();
  }

  private choose(i: number): void {
    this.chosen = i;
    if (i >= 0) this.reveal(i);
    this.options.choose?.(i < 0 ? undefined : this.options.items[i].id);
    this.paintSoon();
  }

  private at(event: MouseEvent): number {
    const x = this.x + event.offsetX / this.scale;
    const y = this.y + event.offsetY / this.scale;
    return this.drawn.boxes.findIndex((box) => Math.abs(x - box.x) <= box.width / 2 && Math.abs(y - box.y) <= box.height / 2);
  }

  private listen(): void {
    let drag: { x: number; y: number; moved: boolean } | undefined;
    this.canvas.addEventListener("pointerdown", (event) => {
      drag = { x: event.clientX, y: event.clientY, moved: false };
      this.canvas.setPointerCapture(event.pointerId);
    });
    this.canvas.addEventListener("pointermove", (event) => {
      if (!drag) return;
      const dx = event.clientX - drag.x;
      const dy = event.clientY - drag.y;
      if (!drag.moved && Math.hypot(dx, dy) < 4) return;
      drag = { x: event.clientX, y: event.clientY, moved: true };
      this.x -= dx / this.scale;
      this.y -= dy / this.scale;
      this.paintSoon();
    });
    this.canvas.addEventListener("pointerup", (event) => {
      if (drag && !drag.moved) this.choose(this.at(event));
      drag = undefined;
    });
    this.canvas.addEventListener("pointercancel", () => (drag = undefined));
    this.canvas.addEventListener("dblclick", (event) => {
      const i = this.at(event);
      if (i >= 0) this.options.open?.(this.options.items[i].id);
    });
    this.canvas.addEventListener(
      "wheel",
      (event) => {
        event.preventDefault();
        this.zoom(Math.exp(-event.deltaY * 0.0015), event.offsetX, event.offsetY);
      },
      { passive: false },
    );
    this.canvas.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      if (!this.key(event.key)) return;
      event.preventDefault();
      event.stopPropagation();
    });
    this.canvas.addEventListener("focus", () => this.paintSoon());
    this.canvas.addEventListener("blur", () => this.paintSoon());
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.paintSoon());
  }

  private key(key: string): boolean {
    const { operands, items } = this.options;
    if (key === "+" || key === "=") this.zoom(1.3);
    else if (key === "-") this.zoom(1 / 1.3);
    else if (key === "0") this.fit();
    else if (items.length === 0) return false;
    else if (key.startsWith("Arrow") && this.chosen < 0) this.choose(0);
    else if (key === "ArrowUp") operands[this.chosen].length > 0 && this.choose(operands[this.chosen][0]);
    else if (key === "ArrowDown") this.readers[this.chosen].length > 0 && this.choose(this.readers[this.chosen][0]);
    else if (key === "ArrowLeft" || key === "ArrowRight") {
      const layer = this.drawn.layers[this.layerOf[this.chosen]];
      const next = layer[layer.indexOf(this.chosen) + (key === "ArrowLeft" ? -1 : 1)];
      if (next !== undefined) this.choose(next);
    } else if (key === "Enter" && this.chosen >= 0 && this.options.open) this.options.open(items[this.chosen].id);
    else if (key === "Escape" && this.chosen >= 0) this.choose(-1);
    else return false;
    return true;
  }

  repaint(): void {
    this.paintSoon();
  }

  private paintSoon(): void {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => {
      this.waiting = false;
      this.paint();
    });
  }

  private paint(): void {
    const context = this.canvas.getContext("2d");
    if (!context || this.canvas.clientWidth === 0) return;
    const style = getComputedStyle(this.element);
    const colour = (name: string) => style.getPropertyValue(name).trim();
    const ratio = window.devicePixelRatio || 1;
    const { scale } = this;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, this.canvas.clientWidth, this.canvas.clientHeight);
    context.setTransform(ratio * scale, 0, 0, ratio * scale, -this.x * scale * ratio, -this.y * scale * ratio);
    const right = this.x + this.canvas.clientWidth / scale;
    const bottom = this.y + this.canvas.clientHeight / scale;
    this.paintEdges(context, right, bottom, colour);

    const { boxes } = this.drawn;
    const [plain, line, fresh, gone, nearby, accent, ink, dim] = ["--box", "--line", "--fresh", "--gone", "--near", "--accent", "--text", "--dim"].map(colour);
    const palette = Array.from({ length: 8 }, (_, i) => colour(`--p${i}`));
    const text = scale >= kTextScale;
    context.font = kFont;
    context.textAlign = "center";
    context.textBaseline = "middle";
    const near = this.neighbours();
    this.painted = 0;
    for (let i = 0; i < boxes.length; ++i) {
      const box = boxes[i];
      const left = box.x - box.width / 2;
      const top = box.y - box.height / 2;
      if (left > right || left + box.width < this.x || top > bottom || top + box.height < this.y) continue;
      ++this.painted;
      const item = this.options.items[i];
      context.fillStyle = item.fill ?? (item.colour < 0 ? plain : palette[item.colour % palette.length]);
      context.strokeStyle = line;
      context.lineWidth = 1;
      if (item.mark) {
        context.strokeStyle = item.mark === "fresh" ? fresh : gone;
        context.lineWidth = 3;
      }
      if (near.has(i)) context.strokeStyle = nearby;
      if (i === this.chosen) {
        context.strokeStyle = accent;
        context.lineWidth = 3.5;
      }
      context.beginPath();
      context.roundRect(left, top, box.width, box.height, item.round ? box.height / 2 : 5);
      context.fill();
      context.stroke();
      if (!text) continue;
      const on = item.fill && inkOn(item.fill);
      context.fillStyle = on ?? ink;
      context.fillText(cut(item.title), box.x, box.y - 8);
      context.fillStyle = on ?? dim;
      context.fillText(cut(item.detail), box.x, box.y + 9);
    }
    if (this.element.dataset.painted === undefined) performance.mark("painted"); // how long that took is a test
    this.element.dataset.painted = String(this.painted);
    this.element.dataset.chosen = this.chosen < 0 ? "" : String(this.options.items[this.chosen].id);
  }

  private neighbours(): Set<number> {
    if (this.chosen < 0) return new Set();
    return new Set([...this.options.operands[this.chosen], ...this.readers[this.chosen]]);
  }

  private paintEdges(context: CanvasRenderingContext2D, right: number, bottom: number, colour: (name: string) => string): void {
    const arrows = this.scale >= 0.3;
    const draw = (own: boolean) => {
      context.strokeStyle = context.fillStyle = colour(own ? "--accent" : "--edge");
      context.lineWidth = own ? 2 : 1.2;
      context.beginPath();
      const heads: [number, number][] = [];
      for (const edge of this.drawn.edges) {
        if ((edge.from === this.chosen || edge.to === this.chosen) !== own) continue;
        const { points } = edge;
        const end = points[points.length - 1];
        if (edge.left > right || edge.right < this.x || points[0][1] > bottom || end[1] < this.y) continue;
        context.moveTo(points[0][0], points[0][1]);
        for (let i = 1; i < points.length; ++i) {
          const [x0, y0] = points[i - 1];
          const [x1, y1] = points[i];
          const middle = (y0 + y1) / 2;
          context.bezierCurveTo(x0, middle, x1, middle, x1, y1);
        }
        heads.push(end);
      }
      context.stroke();
      if (!arrows) return;
      context.beginPath();
      for (const [x, y] of heads) {
        context.moveTo(x, y);
        context.lineTo(x - 4, y - 7);
        context.lineTo(x + 4, y - 7);
        context.closePath();
      }
      context.fill();
    };
    draw(false);
    if (this.chosen >= 0) draw(true);
  }
}
