// Records made up for tests: layers of a network, to any size.

/// A chain of `layers` blocks of a dozen ops each, as the lines of a record.
export function chainRecord(layers) {
  const lines = [
    { event: "record", format: "egret-record", version: 1 },
    { event: "program", program: 0, device: "cpu", effort: "none", begin: 0 },
  ];
  let count = 0;
  const node = (op, type, operands, more = {}) => {
    lines.push({ event: "node", program: 0, node: count, op, type, operands, ...more });
    return count++;
  };
  let x = node("input", "f32[64,512]", [], { name: "x" });
  for (let layer = 0; layer < layers; ++layer) {
    const w = node("input", "f32[512,512]", [], { name: `layers.${layer}.w` });
    const b = node("input", "f32[512]", [], { name: `layers.${layer}.b` });
    const rows = node("reshape", "f32[64,512,1]", [x]);
    const wide = node("expand", "f32[64,512,512]", [rows]);
    const columns = node("expand", "f32[64,512,512]", [w]);
    const product = node("mul", "f32[64,512,512]", [wide, columns]);
    const sum = node("sum", "f32[64,512]", [product], { attrs: "axes=[1]" });
    const bias = node("expand", "f32[64,512]", [b]);
    const biased = node("add", "f32[64,512]", [sum, bias]);
    const act = node("tanh", "f32[64,512]", [biased]);
    x = node("add", "f32[64,512]", [x, act]);
  }
  lines.push({ event: "graph", program: 0, graph: 0, nodes: Array.from({ length: count }, (_, i) => i), outputs: [x] });
  lines.push({ event: "end", begin: 1 });
  return lines.map((line) => JSON.stringify(line)).join("\n") + "\n";
}
