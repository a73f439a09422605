// Where the viewer is, as the address's fragment, so that links to it can be shared.
import type { Program, Record } from "./record";

export interface Place {
  page: string;
  program: number;
  graph?: string; // a graph's number, or "launches"
  node?: number;
  pass?: number;
  launch?: number;
  step?: number; // of the e-graph's growth
  class?: number;
  colour?: string;
  level?: string; // "nodes", "modules"
  within?: string; // the group that is open
}

export interface View {
  record: Record;
  program: Program;
  place: Place;
  go(change: Partial<Place>): void;
  /// Notes where the reader is without drawing the page again.
  note(change: Partial<Place>): void;
}

const numbers = ["program", "node", "pass", "launch", "step", "class"];

export function readPlace(fragment: string): Place {
  const place: any = { page: "graph", program: 0 };
  for (const [name, value] of new URLSearchParams(fragment.replace(/^#/, "")))
    if (numbers.includes(name)) {
      if (/^\d+$/.test(value)) place[name] = Number(value);
    } else if (["page", "graph", "colour", "level", "within"].includes(name)) place[name] = value;
  return place;
}

export function writePlace(place: Place): string {
  const words = new URLSearchParams();
  for (const [name, value] of Object.entries(place)) if (value !== undefined) words.set(name, String(value));
  return `#${words}`;
}
