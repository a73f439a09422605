// Which lines of a kernel's region, schedule tree, loops and source belong together. Names carry that: operands and outputs have one
// name in all forms, values and loops one in the loops and in C and CUDA sources, axes and stages one in region and tree. LLVM IR and
// assembly say behind each instruction of which line of the loops it is, assembly of GPUs of which line of the source.

export type Form = "region" | "tree" | "loops" | "source" | "assembly";
type Kind = "line" | "source" | "value" | "register" | "loop" | "stage" | "axis" | "memory" | "op";
// A pane lights what shares a key of the first of these kinds that any of its lines shares.
const kKinds: Kind[] = ["line", "source", "value", "register", "loop", "stage", "axis", "memory", "op"];

export type Keys = Set<string>;
const key = (kind: Kind, name: string) => `${kind} ${name}`;

function regionKeys(lines: string[]): Keys[] {
  let axes = 0;
  let stage = "";
  return lines.map((line) => {
    const keys: Keys = new Set();
    let found: RegExpExecArray | null;
    if (/^\s*axis /.test(line)) keys.add(key("axis", String(axes++)));
    else if ((found = /^\s*operand\d+ (\S+):/.exec(line))) keys.add(key("memory", found[1]));
    else if ((found = /^\s*stage(\d+) .*?(?:\) (\w+) (?:reduce|scan))?/.exec(line))) {
      stage = found[1];
      keys.add(key("stage", stage));
      const reduces = /\) (\w+) (?:reduce|scan)/.exec(line);
      if (reduces) keys.add(key("op", reduces[1]));
    } else if ((found = /^\s*(output\d+):.*stage(\d+)/.exec(line))) {
      keys.add(key("memory", found[1].replace("output", "out")));
      keys.add(key("stage", found[2]));
    } else if (/^\s*yield /.test(line)) keys.add(key("stage", stage));
    else if ((found = /= stage(\d+)\./.exec(line))) keys.add(key("stage", found[1]));
    else if ((found = /= ([\w.]+)\[/.exec(line))) keys.add(key("memory", found[1]));
    else if ((found = /= (\w+)/.exec(line))) keys.add(key("op", found[1]));
    return keys;
  });
}

function treeKeys(lines: string[]): Keys[] {
  return lines.map((line) => {
    const keys: Keys = new Set();
    for (const [, axis] of line.matchAll(/\b(?:for|mask)\((\d+)/g)) keys.add(key("axis", axis));
    for (const [, stage] of line.matchAll(/\b(?:acc|body)\((\d+)/g)) keys.add(key("stage", stage));
    return keys;
  });
}

function loopsKeys(lines: string[]): Keys[] {
  return lines.map((line, i) => {
    const keys: Keys = new Set([key("line", String(i + 1))]);
    let found: RegExpExecArray | null;
    if ((found = /^\s*(?:argument|worker|shared) (\S+):/.exec(line))) keys.add(key("memory", found[1]));
    if ((found = /^\s*for (i\d+) /.exec(line))) keys.add(key("loop", found[1]));
    if ((found = /^\s*(r\d+)(?:\[.*\])? = /.exec(line))) keys.add(key("register", found[1]));
    if ((found = /^\s*(v\d+): \S+ = (\w+)/.exec(line))) {
      keys.add(key("value", found[1]));
      if (found[2] === "fma") ["mul", "sum"].forEach((op) => keys.add(key("op", op)));
      else if (found[2] === "reduce_threads") keys.add(key("op", /, (\w+)/.exec(line)?.[1] ?? ""));
      else if (!["load", "splat"].includes(found[2]) && !/^[rv]\d+$/.test(found[2])) keys.add(key("op", found[2]));
    }
    for (const [, name] of line.matchAll(/(?:load |store |to=|from=)([A-Za-z_]\w*)\[/g)) keys.add(key("memory", name));
    return keys;
  });
}

function instructionKeys(lines: string[]): Keys[] {
  return lines.map((line) => {
    const of = / [;#] line (\d+)$/.exec(line);
    const from = / \/\/ source (\d+)$/.exec(line);
    return new Set([...(of ? [key("line", of[1])] : []), ...(from ? [key("source", from[1])] : [])]);
  });
}

/// Of C and CUDA.
function sourceKeys(lines: string[]): Keys[] {
  const memory = new Map<string, string>(); // "b0": "x"
  for (const line of lines) {
    const found = /\b(b\d+) = .*; (?:\/\/ (\S+)|\/\* (\S+) \*\/)\s*$/.exec(line);
    if (found) memory.set(found[1], found[2] ?? found[3]);
  }
  if (memory.size === 0) return instructionKeys(lines);
  return lines.map((line, i) => {
    const keys: Keys = new Set([key("source", String(i + 1))]);
    const made = /^\s*(?:(?:const |unsigned |long |int |bool |float |double |\w+_t )+)?([vr])(\d+)(?:_\d+)?(?:\[\w+\])*\s*(?:=|\+=|\{)/.exec(line) ?? /\) ([vr])(\d+)\[l\] = /.exec(line);
    if (made) keys.add(key(made[1] === "v" ? "value" : "register", `${made[1]}${made[2]}`));
    const loop = /\bfor \(\w+ (i\d+) = /.exec(line);
    if (loop) keys.add(key("loop", loop[1]));
    for (const [name] of line.matchAll(/\bb\d+\b/g)) if (memory.has(name)) keys.add(key("memory", memory.get(name)!));
    return keys;
  });
}

export function keysOf(form: Form, text: string): Keys[] {
  const lines = text.split("\n");
  if (form === "region") return regionKeys(lines);
  if (form === "tree") return treeKeys(lines);
  if (form === "loops") return loopsKeys(lines);
  return form === "source" ? sourceKeys(lines) : instructionKeys(lines);
}

/// The lines that share the nearest kind of key with `wanted`.
export function linesOf(keys: Keys[], wanted: Keys): number[] {
  for (const kind of kKinds) {
    const names = [...wanted].filter((one) => one.startsWith(`${kind} `));
    if (names.length === 0) continue;
    const lines = keys.flatMap((own, line) => (names.some((name) => own.has(name)) ? [line] : []));
    if (lines.length > 0) return lines;
  }
  return [];
}

/// By form, the lines that belong to one: by a key that both have, or by way of the loops, which stand between region and source, and of
/// the source, which stands between loops and assembly.
export function linked(forms: { form: Form; keys: Keys[] }[], of: Form, line: number): number[][] {
  const found = new Map<Form, number[]>([[of, [line]]]);
  const reach = (from: Keys[], lines: number[]) => {
    const reached = forms
      .filter(({ form }) => !found.has(form))
      .map(({ form, keys }): [Form, number[]] => [form, [...new Set(lines.flatMap((one) => linesOf(keys, from[one])))].sort((a, b) => a - b)]);
    for (const [form, own] of reached) if (own.length > 0) found.set(form, own);
  };
  reach(forms.find(({ form }) => form === of)!.keys, [line]);
  for (const between of ["loops", "source", "loops"] as Form[]) {
    const lines = found.get(between);
    if (lines && between !== of) reach(forms.find(({ form }) => form === between)!.keys, lines);
  }
  return forms.map(({ form }) => found.get(form) ?? []);
}

/// A tree with each part on a line of its own, indented by depth.
export function treeLines(tree: string): string {
  const at = tree.search(/@tree=/);
  if (at < 0) return tree.replace(/ (?=[\w@]+=)/g, "\n  ");
  let text = `${tree.slice(0, at)}@tree=`.replace(/ (?=[\w@]+=)/g, "\n  ");
  let depth = 2;
  let word = "";
  for (const part of tree.slice(at + 6).split(/(?<=[(),])/)) {
    word += part;
    const opens = /^(?:for|acc|then|mask|body|[a-z]+)\($/.test(part);
    if (opens) {
      text += `\n${"  ".repeat(depth)}`;
      ++depth;
    }
    text += part;
    depth -= part.split(")").length - 1;
  }
  return text;
}
