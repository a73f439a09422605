// Layered layout of a directed acyclic graph (Sugiyama, Tagawa & Toda 1981): layers by longest path, order within layers by
// barycenters, coordinates by least squares under the least distances (pool adjacent violators).

export interface Box {
  width: number;
  height: number;
}
export interface Placed {
  x: number; // of centers
  y: number;
  width: number;
  height: number;
}
export interface Edge {
  from: number;
  to: number;
  points: [number, number][]; // downwards
  left: number;
  right: number;
}
export interface Layout {
  boxes: Placed[];
  edges: Edge[];
  width: number;
  height: number;
  layers: number[][]; // boxes by layer, from left to right
}

const kGapX = 24;
const kGapY = 32;
const kSweeps = 6;
// Edges over more layers are drawn straight: their bends would be more than the nodes.
const kLongestBent = 12;

/// `operands[i]`: the boxes that box i reads, each with a smaller number.
export function layout(sizes: Box[], operands: number[][]): Layout {
  const count = sizes.length;
  const layer = layersOf(operands);
  // Bends of edges over several layers are boxes of no size.
  const widths = sizes.map((size) => size.width);
  const layerOf = layer.slice();
  const above: number[][] = sizes.map(() => []); // neighbours in the layer before
  const chains: { from: number; to: number; chain: number[] }[] = [];
  operands.forEach((list, to) => {
    for (const from of new Set(list)) {
      const chain: number[] = [];
      let last = from;
      const span = layer[to] - layer[from];
      if (span <= kLongestBent)
        for (let at = layer[from] + 1; at < layer[to]; ++at) {
          const bend = widths.length;
          widths.push(0);
          layerOf.push(at);
          above.push([last]);
          chain.push(bend);
          last = bend;
        }
      if (span <= kLongestBent) above[to].push(last);
      chains.push({ from, to, chain });
    }
  });
  const below: number[][] = widths.map(() => []);
  above.forEach((list, to) => list.forEach((from) => below[from].push(to)));

  const layers: number[][] = [];
  layerOf.forEach((at, box) => (layers[at] ??= []).push(box));
  const place = new Float64Array(widths.length);
  const number = (list: number[]) => list.forEach((box, i) => (place[box] = i));
  layers.forEach(number);
  for (let sweep = 0; sweep < kSweeps; ++sweep)
    for (const list of sweep % 2 ? layers.slice().reverse() : layers) {
      const neighbours = sweep % 2 ? below : above;
      const keys = new Map(list.map((box) => [box, mean(neighbours[box], place) ?? place[box]]));
      list.sort((a, b) => keys.get(a)! - keys.get(b)!);
      number(list);
    }

  const x = new Float64Array(widths.length);
  for (const list of layers) {
    let at = 0;
    for (const box of list) {
      x[box] = at + widths[box] / 2;
      at += widths[box] + kGapX;
    }
    for (const box of list) x[box] -= at / 2;
  }
  for (let sweep = 0; sweep < kSweeps; ++sweep)
    for (const list of sweep % 2 ? layers.slice().reverse() : layers)
      straighten(list, widths, x, (box) => {
        const both = sweep === kSweeps - 1 ? [...above[box], ...below[box]] : sweep % 2 ? below[box] : above[box];
        return mean(both, x) ?? x[box];
      });

  let top = 0;
  const y: number[] = [];
  layers.forEach((list, at) => {
    const height = Math.max(...list.map((box) => (box < count ? sizes[box].height : 0)));
    y[at] = top + height / 2;
    top += height + kGapY;
  });
  let left = Infinity;
  let right = -Infinity;
  for (let box = 0; box < count; ++box) {
    left = Math.min(left, x[box] - widths[box] / 2);
    right = Math.max(right, x[box] + widths[box] / 2);
  }
  const boxes = sizes.map((size, box) => ({ x: x[box] - left, y: y[layer[box]], width: size.width, height: size.height }));
  const edges = chains.map(({ from, to, chain }): Edge => {
    const points: [number, number][] = [
      [boxes[from].x, boxes[from].y + boxes[from].height / 2],
      ...chain.map((bend): [number, number] => [x[bend] - left, y[layerOf[bend]]]),
      [boxes[to].x, boxes[to].y - boxes[to].height / 2],
    ];
    const across = points.map(([at]) => at);
    return { from, to, points, left: Math.min(...across), right: Math.max(...across) };
  });
  return {
    boxes,
    edges,
    width: count ? right - left : 0,
    height: Math.max(0, top - kGapY),
    layers: layers.map((list) => list.filter((box) => box < count)),
  };
}

/// The longest path from what reads nothing. Chains from there that are read once stand right before their reader.
function layersOf(operands: number[][]): number[] {
  const layer = operands.map(() => 0);
  const readers = operands.map(() => 0);
  const first = operands.map(() => Infinity); // layer of a reader
  const floats: boolean[] = [];
  operands.forEach((list) => new Set(list).forEach((operand) => ++readers[operand]));
  operands.forEach((list, box) => {
    for (const operand of list) layer[box] = Math.max(layer[box], layer[operand] + 1);
    floats[box] = list.every((operand) => floats[operand] && readers[operand] === 1);
  });
  for (let box = operands.length - 1; box >= 0; --box) {
    if (floats[box] && first[box] < Infinity) layer[box] = first[box] - 1;
    for (const operand of operands[box]) first[operand] = Math.min(first[operand], layer[box]);
  }
  return layer;
}

function mean(list: number[], of: Float64Array): number | undefined {
  if (list.length === 0) return undefined;
  let sum = 0;
  for (const one of list) sum += of[one];
  return sum / list.length;
}

/// Moves the boxes of a layer as near to where they want to be as their order and widths permit.
function straighten(list: number[], widths: number[], x: Float64Array, wanted: (box: number) => number): void {
  // With the distances from the layer's first box taken away, positions must not fall.
  const blocks: { sum: number; count: number }[] = [];
  const offsets: number[] = [];
  let offset = 0;
  list.forEach((box, i) => {
    if (i > 0) offset += (widths[list[i - 1]] + widths[box]) / 2 + kGapX;
    offsets.push(offset);
    blocks.push({ sum: wanted(box) - offset, count: 1 });
    while (blocks.length > 1) {
      const last = blocks[blocks.length - 1];
      const before = blocks[blocks.length - 2];
      if (before.sum / before.count <= last.sum / last.count) break;
      blocks.pop();
      before.sum += last.sum;
      before.count += last.count;
    }
  });
  let i = 0;
  for (const block of blocks)
    for (let k = 0; k < block.count; ++k, ++i) x[list[i]] = block.sum / block.count + offsets[i];
}
