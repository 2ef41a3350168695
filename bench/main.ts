import { writeFileSync } from "node:fs";
import { cpus, release, totalmem } from "node:os";
import { parseArgs } from "node:util";
import { drawLatencies } from "./picture.ts";
import { writeReport } from "./report.ts";
import type { Figure, Row } from "./row.ts";
import { audit } from "./rows/audit.ts";
import { browser } from "./rows/browser.ts";
import { connect } from "./rows/connect.ts";
import { cpu } from "./rows/cpu.ts";
import { createCold } from "./rows/create.ts";
import { createBubblewrap } from "./rows/create-bubblewrap.ts";
import { createWarm } from "./rows/create-warm.ts";
import { desktop } from "./rows/desktop.ts";
import { execLatency } from "./rows/exec.ts";
import { files } from "./rows/files.ts";
import { footprint } from "./rows/footprint.ts";
import { gvisor } from "./rows/gvisor.ts";
import { lists } from "./rows/lists.ts";
import { idleMemory } from "./rows/memory.ts";
import { execOutput } from "./rows/output.ts";
import { pythonClient } from "./rows/python-client.ts";
import { restart } from "./rows/restart.ts";
import { sessions } from "./rows/sessions.ts";
import { start } from "./rows/start.ts";
import { execTail } from "./rows/tail.ts";
import { execThroughput } from "./rows/throughput.ts";
import { typescriptClient } from "./rows/typescript-client.ts";
import { unary } from "./rows/unary.ts";
import { workspaces } from "./rows/workspaces.ts";
import { runRow } from "./run-row.ts";
import { table } from "./table.ts";

const USAGE = `Measures Berth, against raw Docker in the same run:
  npm run bench -- [--rows exec,output] [--scale 0.5] [--engine docker|bubblewrap]
                   [--image NAME] [--json FILE] [--svg FILE] [--markdown FILE]`;

const ROWS: readonly Row[] = [
  createWarm,
  createCold,
  createBubblewrap,
  execLatency,
  execOutput,
  execThroughput,
  execTail,
  cpu,
  sessions,
  desktop,
  browser,
  files,
  unary,
  connect,
  workspaces,
  lists,
  pythonClient,
  typescriptClient,
  start,
  restart,
  idleMemory,
  footprint,
];
/** Rows that need something few machines have, or that answer a single question. They run only if named. */
const NAMED: readonly Row[] = [audit, gvisor];
const DEFAULT = ROWS.map(({ name }) => name);
const NAMES = [...ROWS, ...NAMED].map(({ name }) => name);

const { values } = parseArgs({
  options: {
    rows: { type: "string", default: DEFAULT.join(",") },
    scale: { type: "string", default: "1" },
    engine: { type: "string" },
    image: { type: "string", default: "berth/base:latest" },
    json: { type: "string" },
    svg: { type: "string" },
    markdown: { type: "string" },
    help: { type: "boolean", short: "h" },
  },
});
if (values.help) {
  console.log(`${USAGE}\nRows: ${NAMES.join(", ")}`);
  process.exit();
}
const wanted = values.rows.split(",");
const unknown = wanted.filter((name) => !NAMES.includes(name));
if (unknown.length > 0) fail(`There is no row ${unknown.join(", ")}. There are ${NAMES.join(", ")}.`);
const scale = Number(values.scale);
if (!(scale > 0 && scale <= 10)) fail("--scale takes a number above 0, up to 10.");

const stopping = new AbortController();
for (const signal of ["SIGINT", "SIGTERM"] as const)
  process.once(signal, () => stopping.abort(new Error(`stopped by ${signal}`)));

const serve = values.engine === undefined ? [] : ["--engine", values.engine];
const figures: Figure[] = [];
const failed: string[] = [];
for (const row of [...ROWS, ...NAMED].filter(({ name }) => wanted.includes(name))) {
  if (stopping.signal.aborted) break;
  try {
    const { signal } = stopping;
    figures.push(...(await runRow(row, { image: values.image, scale, serve, signal })));
  } catch (error) {
    console.error(`${row.name} failed:`, error);
    failed.push(row.name);
  }
}

const machine = {
  cpus: cpus().length,
  cpu: cpus()[0]?.model,
  memoryGiB: Math.round(totalmem() / 2 ** 30),
  kernel: release().split("-")[0] ?? "",
  node: process.version,
};
console.log(table(figures));
const result = { date: new Date().toISOString(), machine, image: values.image, scale, figures };
if (values.json) writeFileSync(values.json, `${JSON.stringify(result, rounded, 1)}\n`);
if (values.svg && figures.some((figure) => figure.values)) writeFileSync(values.svg, drawLatencies(figures));
if (values.markdown) writeReport(values.markdown, table(figures), machine, scale);
if (failed.length > 0) console.error(`These rows failed: ${failed.join(", ")}.`);
// An abandoned row may still hold something open.
process.exit(failed.length > 0 || stopping.signal.aborted ? 1 : 0);

/** More than four digits would be noise. */
function rounded(_key: string, value: unknown): unknown {
  return typeof value === "number" ? Number(value.toPrecision(4)) : value;
}

function fail(message: string): never {
  console.error(`${message}\n${USAGE}`);
  process.exit(2);
}
