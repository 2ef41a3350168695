import { existsSync, writeFileSync } from "node:fs";
import { cpus, loadavg, totalmem } from "node:os";
import path from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { parseArgs } from "node:util";
import { randomBase32 } from "../../src/base/ids.ts";
import { timed } from "../stats.ts";
import { berth } from "./berth.ts";
import { Containers } from "./containers.ts";
import { dockerExec } from "./docker-exec.ts";
import { envd } from "./envd.ts";
import { execd } from "./execd.ts";
import { llmSandbox } from "./llm-sandbox.ts";
import type { Peer, PeerContext, PeerSandbox } from "./peer.ts";
import { installPythonPeers, type PythonPeers } from "./python.ts";
import { Results } from "./results.ts";
import { sweRex } from "./swe-rex.ts";
import { exactness, exec, files, memory, output, throughput, timeouts, type Work } from "./works.ts";

const USAGE = `Compares Berth with other programs that run commands in containers. All do the same work, alternating:
  npm run bench:peers -- [--rounds 5] [--scale 1] [--only NAME]… [--big] [--json FILE] [--markdown FILE]
                         [--envd PROGRAM] [--execd PROGRAM] [--image NAME]

--envd and --execd name the statically linked daemons of E2B and OpenSandbox.
--big also transfers a file of 1 GiB, once.`;

/** How long a peer may take for one piece of work. After that its line has no value. */
const WORK_MS = 60_000;
/** How long abandoned work may take to end before everything is removed. */
const GIVEN_UP_MS = 10_000;

const { values } = parseArgs({
  options: {
    rounds: { type: "string", default: "5" },
    scale: { type: "string", default: "1" },
    only: { type: "string", multiple: true },
    big: { type: "boolean", default: false },
    envd: { type: "string" },
    execd: { type: "string" },
    image: { type: "string", default: "berth/base:latest" },
    json: { type: "string" },
    markdown: { type: "string" },
    help: { type: "boolean", short: "h", default: false },
  },
});
if (values.help) {
  console.log(USAGE);
  process.exit();
}
const rounds = Number(values.rounds);
const scale = Number(values.scale);
if (!(rounds >= 1 && rounds <= 100)) fail("--rounds takes a number from 1 to 100.");
if (!(scale > 0 && scale <= 10)) fail("--scale takes a number above 0, up to 10.");

const stopping = new AbortController();
for (const name of ["SIGINT", "SIGTERM"] as const)
  process.once(name, () => stopping.abort(new Error(`stopped by ${name}`)));
// A bug in this program must not leave containers behind either.
process.on("uncaughtException", (error) => {
  console.error(error);
  stopping.abort(error);
});
const { signal } = stopping;

const containers = new Containers(randomBase32(8));
const context: PeerContext = { image: values.image, signal };
let python: Promise<PythonPeers> | undefined;
const pythonPeers = (): Promise<PythonPeers> => {
  python ??= installPythonPeers(signal);
  return python;
};
const MAKERS: Readonly<Record<string, () => Promise<Peer> | Peer>> = {
  Berth: () => berth(context, containers, "Connect"),
  "Berth, gRPC": () => berth(context, containers, "gRPC"),
  "docker exec": () => dockerExec(context, containers),
  "E2B envd": () => envd(context, containers, program("envd", values.envd)),
  "OpenSandbox execd": () => execd(context, containers, program("execd", values.execd)),
  "SWE-ReX": async () => sweRex(context, containers, await pythonPeers()),
  "llm-sandbox": async () => llmSandbox(context, containers, await pythonPeers()),
};
const wanted = values.only ?? Object.keys(MAKERS);
const unknown = wanted.filter((name) => !(name in MAKERS));
if (unknown.length > 0) {
  fail(`There is no peer ${unknown.join(", ")}. There are ${Object.keys(MAKERS).join(", ")}.`);
}

const options = {
  execs: Math.max(10, Math.round(60 * scale)),
  throughputMs: Math.max(500, 2000 * scale),
  outputMb: Math.max(5, Math.round(50 * scale)),
  fileMib: 40,
};
const WORKS: readonly [string, Work][] = Object.entries({
  ...{ memory, exec, throughput, output, files, exactness, timeouts },
});

const results = new Results();
const peers: Peer[] = [];
const loads: number[] = [];
/** Running work, which may exceed its time and still create containers. */
const underWay = new Set<Promise<unknown>>();
try {
  for (const name of wanted) await make(name);
  for (let round = 0; round < rounds && !signal.aborted; round++) {
    // Each peer comes first once in a while.
    const order = [...peers.slice(round % peers.length), ...peers.slice(0, round % peers.length)];
    loads.push(loadavg()[0] ?? 0);
    await playRound(round, order);
  }
} catch (error) {
  if (!signal.aborted) throw error;
} finally {
  await Promise.race([Promise.allSettled(underWay), sleep(GIVEN_UP_MS)]);
  await Promise.allSettled(peers.map((peer) => peer.close()));
  await containers.removeAll();
}
const machine = {
  cpus: cpus().length,
  cpu: cpus()[0]?.model ?? "",
  memoryGiB: Math.round(totalmem() / 2 ** 30),
  loads: loads.map((load) => Number(load.toFixed(1))),
};
const table = results.table(wanted);
console.log(`\n${table}\n`);
const note = `${new Date().toISOString().slice(0, 10)}, ${rounds} rounds, scale ${scale}, ${machine.cpus} × ${machine.cpu}, load ${machine.loads.join(" ")}`;
console.log(note);
if (values.markdown) writeFileSync(values.markdown, `${table}\n\n${note}\n`);
if (values.json) {
  const date = new Date().toISOString();
  writeFileSync(
    values.json,
    `${JSON.stringify({ date, machine, rounds, scale, ...results.json }, null, 1)}\n`,
  );
}
// Abandoned work may still hold something open.
process.exit(signal.aborted ? 1 : 0);

async function make(name: string): Promise<void> {
  signal.throwIfAborted();
  try {
    const peer = await MAKERS[name]?.();
    if (peer) peers.push(peer);
  } catch (error) {
    results.missing(name, messageOf(error));
    console.error(`${name} is skipped: ${messageOf(error)}`);
  }
}

async function playRound(round: number, order: readonly Peer[]): Promise<void> {
  const sandboxes = new Map<Peer, PeerSandbox>();
  for (const peer of order) {
    await attempt(peer, `round ${round + 1}: create`, async () => {
      const started = performance.now();
      const sandbox = await peer.create();
      sandboxes.set(peer, sandbox);
      const created = performance.now();
      await sandbox.run("true");
      const first = performance.now();
      return {
        "cold create to the first exit code, ms": first - started,
        "first exec in a new sandbox, ms": first - created,
      };
    });
  }
  const works = WORKS.filter(([, work]) => round === 0 || !work.once);
  if (values.big && round === rounds - 1) {
    works.push(["1 GiB", { run: (given) => files.run({ ...given, fileMib: 1024 }) }]);
  }
  for (const [name, work] of works) {
    for (const peer of order) {
      const sandbox = sandboxes.get(peer);
      if (sandbox === undefined) continue;
      await attempt(peer, `round ${round + 1}: ${name}`, () =>
        work.run({ ...options, peer, sandbox, containers }),
      );
    }
  }
  for (const peer of order) {
    const sandbox = sandboxes.get(peer);
    if (sandbox === undefined) continue;
    await attempt(peer, `round ${round + 1}: remove`, async () => ({
      "remove, ms": await timed(() => sandbox.remove()),
    }));
  }
}

/** Does one piece of work with a peer, within its time. A failure is recorded, and the run continues. */
async function attempt(
  peer: Peer,
  what: string,
  act: () => Promise<Readonly<Record<string, number | readonly number[]>>>,
): Promise<void> {
  signal.throwIfAborted();
  const over = Promise.withResolvers<never>();
  const timer = setTimeout(() => over.reject(new Error(`not done in ${WORK_MS / 1000} s`)), WORK_MS);
  const onAbort = (): void => over.reject(signal.reason);
  signal.addEventListener("abort", onAbort, { once: true });
  const acting = act();
  const done = acting.catch(() => {}).finally(() => underWay.delete(done));
  underWay.add(done);
  try {
    results.add(peer.name, await Promise.race([acting, over.promise]));
    console.error(`${what}: ${peer.name}`);
  } catch (error) {
    signal.throwIfAborted();
    results.failed(peer.name, what, messageOf(error));
    console.error(`${what}: ${peer.name} failed: ${messageOf(error)}`);
  } finally {
    clearTimeout(timer);
    signal.removeEventListener("abort", onAbort);
  }
}

/** @throws if the program is not named, or does not exist. */
function program(name: string, file: string | undefined): string {
  if (file === undefined) throw new Error(`name its program by --${name}`);
  if (!existsSync(file)) throw new Error(`there is no ${file}`);
  return path.resolve(file);
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

function fail(message: string): never {
  console.error(`${message}\n${USAGE}`);
  process.exit(2);
}
