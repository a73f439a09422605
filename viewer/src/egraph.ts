// The e-graph as it stood behind a step of its growth.
import type { EGraphRecord, ENode, Program } from "./record";

export interface Alternative {
  enode: ENode;
  operands: number[]; // classes, as they are called behind the step
  ways: number; // how many e-nodes became this one
}
export interface EClass {
  id: number; // the oldest of those that were joined
  type: string;
  alternatives: Alternative[];
  fresh: boolean; // the step made or joined something of it
}

export class EGraph {
  readonly classes = new Map<number, EClass>();
  readonly size: number; // e-nodes
  private readonly parent = new Map<number, number>();
  private readonly readers = new Map<number, Set<number>>();

  constructor(
    readonly record: EGraphRecord,
    readonly step: number,
  ) {
    const touched = new Set<number>();
    for (const join of record.joins) {
      if (join.step > step) continue;
      this.parent.set(join.class, join.into);
      if (join.step === step) touched.add(join.into);
    }
    const types = new Map(record.types);
    const known = new Map<string, Alternative>();
    for (const enode of record.enodes) {
      if (enode.step > step) continue;
      const id = this.find(enode.class);
      const operands = enode.operands.map((operand) => this.find(operand));
      const key = `${id} ${enode.op} ${operands.join(",")} ${enode.attrs ?? ""}`;
      const same = known.get(key);
      if (same) {
        ++same.ways;
        if (enode.chosen) same.enode = { ...same.enode, chosen: true };
        continue;
      }
      const alternative = { enode, operands, ways: 1 };
      known.set(key, alternative);
      let of = this.classes.get(id);
      if (!of) this.classes.set(id, (of = { id, type: types.get(id) ?? "", alternatives: [], fresh: false }));
      of.alternatives.push(alternative);
      if (enode.step === step && step > 0) of.fresh = true;
      for (const operand of operands) {
        if (!this.readers.has(operand)) this.readers.set(operand, new Set());
        this.readers.get(operand)!.add(id);
      }
    }
    for (const id of touched) {
      const of = this.classes.get(this.find(id));
      if (of && step > 0) of.fresh = true;
    }
    this.size = known.size;
  }

  /// What a class is called behind the step.
  find(id: number): number {
    let at = id;
    for (let next = this.parent.get(at); next !== undefined; next = this.parent.get(at)) at = next;
    return at;
  }

  /// Classes with e-nodes that read it.
  readersOf(id: number): EClass[] {
    return [...(this.readers.get(id) ?? [])].map((one) => this.classes.get(one)!);
  }
}

/// Classes by node of a graph; those of nodes that later passes made are the ones of the nodes whose place they took.
export function classOfNode(program: Program, node: number): { id: number; own: boolean } | undefined {
  const record = program.egraph;
  if (!record) return undefined;
  const classes = new Map(record.classes);
  const seen = new Set<number>();
  const open = [node];
  for (let at = open.shift(); at !== undefined; at = open.shift()) {
    if (seen.has(at)) continue;
    seen.add(at);
    const id = classes.get(at);
    if (id !== undefined) return { id, own: at === node };
    open.push(...(program.nodes[at].replaces ?? []));
  }
  return undefined;
}
