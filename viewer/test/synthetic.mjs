// Records made up for tests: layers of a network, to any size.

/// A graph of three nodes with an e-graph of `classes` classes over it, and marks on two nodes.
export function egraphRecord(classes, mark = "<b>note</b>") {
  const lines = [
    { event: "record", format: "egret-record", version: 1 },
    { event: "program", program: 0, device: "", effort: "none", begin: 0 },
    { event: "node", program: 0, node: 0, op: "input", type: "f32[4]", operands: [], name: "x" },
    { event: "node", program: 0, node: 1, op: "exp", type: "f32[4]", operands: [0] },
    { event: "node", program: 0, node: 2, op: "sum", type: "f32", operands: [1], attrs: "axes=[0]" },
    { event: "graph", program: 0, graph: 0, nodes: [0, 1, 2], outputs: [2] },
    { event: "marks", program: 0, marks: [{ nodes: [1], colour: "#112233", note: mark }, { nodes: [0, 2], colour: "#ffee88", note: "" }] },
  ];
  const enodes = [{ op: "input", operands: [], class: 0, step: 0, cost: 1, chosen: true }];
  for (let i = 1; i < classes; ++i) enodes.push({ op: "exp", operands: [i - 1], class: i, step: i < classes / 2 ? 0 : 1, cost: i, chosen: i < 4, ...(i < classes / 2 ? {} : { rule: 0 }) });
  enodes.push({ op: "tanh", operands: [1], class: classes, step: 2, rule: 1, cost: 5 });
  lines.push({
    event: "egraph", program: 0, graph: 0, extracted: 0, rules: ["grow", "<i>join</i>"], enodes, left_out: 7,
    steps: [{ round: 0, group: "" }, { round: 1, group: "arithmetic" }, { round: 2, group: "views" }],
    joins: [{ class: classes, into: 1, step: 2, rule: 1 }],
    types: Array.from({ length: classes + 1 }, (_, i) => [i, "f32[4]"]),
    classes: [[0, 0], [1, 1], [2, 2]],
  });
  lines.push({ event: "end", begin: 1 });
  return lines.map((line) => JSON.stringify(line).replaceAll("<", "\\u003c")).join("\n") + "\n";
}

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
