import { readFileSync, writeFileSync } from "node:fs";

const BEGIN = "<!-- figures: written by npm run bench -->";
const END = "<!-- end of figures -->";

/** The machine of a run. */
export interface Machine {
  readonly cpus: number;
  readonly cpu: string | undefined;
  readonly memoryGiB: number;
  readonly kernel: string;
  readonly node: string;
}

/** Puts the figures of a run into a document, instead of those of the previous run. */
export function writeReport(file: string, table: string, machine: Machine, scale: number): void {
  const text = readFileSync(file, "utf8");
  const begin = text.indexOf(BEGIN);
  const end = text.indexOf(END);
  if (begin < 0 || end < begin) throw new Error(`${file} has no place for figures: ${BEGIN} … ${END}`);
  const { cpus, cpu, memoryGiB, kernel, node } = machine;
  const on = `Measured on ${new Date().toISOString().slice(0, 10)}, scale ${scale}, on ${cpus} × ${cpu}, ${memoryGiB} GiB, Linux ${kernel}, Node ${node}.`;
  writeFileSync(file, `${text.slice(0, begin)}${BEGIN}\n\n${on}\n\n${table}\n\n${text.slice(end)}`);
}
