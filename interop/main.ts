import { writeFileSync } from "node:fs";
import path from "node:path";
import { parseArgs } from "node:util";
import { InteropPage } from "./browser.ts";
import { CELLS, type Cell, problemOf, taskOf } from "./cells.ts";
import { type InteropClient, NotThere, type ReadyClient } from "./client.ts";
import { LIBRARIES } from "./libraries.ts";
import { type ClientReport, type Outcome, page, table } from "./report.ts";
import { needsImage, ROOT } from "./run.ts";
import { InteropService } from "./service.ts";
import { TOOLS } from "./tools.ts";

const USAGE = `Runs clients of many libraries against a real service, and prints a table:
  npm run interop -- [--yes] [--only NAME,NAME…] [--cells CELL,CELL…]

A run of everything writes docs/interop.md.`;

/** How long one call may take, and getting a client ready. */
const CALL_MS = 120_000;
const PREPARE_MS = 20 * 60_000;

const { values } = parseArgs({
  options: {
    yes: { type: "boolean", default: process.env.CI === "true" },
    only: { type: "string" },
    cells: { type: "string" },
    help: { type: "boolean", short: "h" },
  },
});
if (values.help) {
  console.log(USAGE);
  process.exit();
}

const stopped = new AbortController();
for (const name of ["SIGINT", "SIGTERM"] as const) process.once(name, () => stopped.abort(new Error(name)));

await using pageServer = await InteropPage.start();
const everyone = [
  ...LIBRARIES,
  pageServer.client("Chromium connect-web", "connect"),
  pageServer.client("Chromium gRPC-Web", "grpc-web"),
  ...TOOLS,
];
const clients = chosen(
  values.only,
  everyone.map(({ name }) => name),
).map((name) => everyone.find((client) => client.name === name) as InteropClient);
const cells = chosen(values.cells, CELLS);

await needsImage("base", { agreed: values.yes, signal: within(PREPARE_MS) }).catch((error: unknown) => {
  console.error(messageOf(error));
  process.exit(1);
});
await using service = await InteropService.start(pageServer.origin);
const reports: ClientReport[] = [];
let unique = 0;
for (const client of clients) {
  if (stopped.signal.aborted) break;
  reports.push(await reportOf(client));
}
console.log(`\n${table(reports)}`);
if (values.only === undefined && values.cells === undefined && !stopped.signal.aborted) {
  writeFileSync(path.join(ROOT, "docs/interop.md"), page(reports));
}
const bad = reports.flatMap(({ outcomes }) =>
  Object.values(outcomes).filter(({ kind }) => kind === "failed" || kind === "not run"),
);
if (bad.length > 0 || stopped.signal.aborted) process.exitCode = 1;

async function reportOf(client: InteropClient): Promise<ClientReport> {
  console.log(`${client.name} …`);
  const everywhere = (outcome: Outcome) =>
    Object.fromEntries(CELLS.map((cell) => [cell, outcome])) as Record<Cell, Outcome>;
  let ready: ReadyClient;
  try {
    ready = await client.prepare({ agreed: values.yes, signal: within(PREPARE_MS) });
  } catch (error) {
    const kind = error instanceof NotThere ? "not run" : "failed";
    return { name: client.name, version: "", outcomes: everywhere({ kind, why: messageOf(error) }) };
  }
  const outcomes = everywhere({ kind: "not run", why: "This run left it out." });
  try {
    for (const cell of cells) {
      const why = client.cannot?.[cell];
      const outcome = why === undefined ? await outcomeOf(ready, cell) : ({ kind: "cannot", why } as const);
      console.log(
        `  ${cell}: ${outcome.kind}${outcome.kind === "passed" ? ` (${outcome.ms} ms)` : `: ${outcome.why}`}`,
      );
      outcomes[cell] = outcome;
    }
  } finally {
    await ready.dispose?.();
  }
  return { name: client.name, version: ready.version, outcomes };
}

async function outcomeOf(client: ReadyClient, cell: Cell): Promise<Outcome> {
  unique += 1;
  const task = taskOf(cell, unique, service.largeSha256);
  const start = performance.now();
  try {
    const signal = within(CALL_MS);
    const { address, sandboxId } = service;
    const result = await Promise.race([client.call(task, { address, sandboxId, signal }), rejected(signal)]);
    const ms = Math.round(performance.now() - start);
    const problem = problemOf(task, result) ?? (task.mustEnd && (await service.leftOf(task)));
    return problem === undefined ? { kind: "passed", ms } : { kind: "failed", why: problem };
  } catch (error) {
    return { kind: "failed", why: messageOf(error) };
  }
}

function within(ms: number): AbortSignal {
  return AbortSignal.any([stopped.signal, AbortSignal.timeout(ms)]);
}

function rejected(signal: AbortSignal): Promise<never> {
  return new Promise((_, reject) => {
    signal.addEventListener("abort", () => reject(signal.reason), { once: true });
  });
}

function chosen<T extends string>(list: string | undefined, all: readonly T[]): readonly T[] {
  const names = list?.split(",") ?? all;
  for (const name of names) {
    if (all.includes(name as T)) continue;
    console.error(`There is no "${name}". There are: ${all.join(", ")}.`);
    process.exit(2);
  }
  return all.filter((name) => names.includes(name));
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
