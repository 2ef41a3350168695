import { execFileSync } from "node:child_process";
import { mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { parseArgs } from "node:util";
import { SandboxService } from "../gen/ts/berth/v1/sandbox_pb.js";
import { Database } from "../src/state/database.ts";
import { BenchService } from "./service.ts";

/**
 * npm run soak: creates and deletes many sandboxes, several at a time, and runs a few commands in each. Then checks
 * whether the service is back in its initial state.
 *
 *   npm run soak -- --engine bubblewrap --lives 3000
 *   npm run soak -- --engine docker --lives 200 --image berth/test --write docs/soak.md
 */
const { values } = parseArgs({
  options: {
    engine: { type: "string", default: "docker" },
    image: { type: "string", default: "berth/test" },
    lives: { type: "string", default: "200" },
    "at-once": { type: "string", default: "4" },
    write: { type: "string" },
  },
});
const lives = Number(values.lives);
const dataDir = mkdtempSync(path.join(tmpdir(), "berth-soak-"));
const service = await BenchService.start(values.image, ["--engine", values.engine, "--data-dir", dataDir]);

interface Reading {
  readonly lives: number;
  readonly memoryMiB: number;
  readonly descriptors: number;
}

const read = (count: number): Reading => ({
  lives: count,
  memoryMiB: service.memory() / 2 ** 20,
  descriptors: readdirSync(`/proc/${service.pid}/fd`).length,
});

let begun = 0;
let ended = 0;
const readings: Reading[] = [];
async function live(until: number): Promise<void> {
  while (begun < until) {
    begun++;
    const id = await service.create();
    for (let i = 0; i < 3; i++) await service.exec(id, ["sh", "-c", "echo out; echo err >&2"]);
    await service.remove(id);
    if (++ended % Math.ceil(lives / 20) === 0) show(read(ended));
  }
}

function show(reading: Reading): void {
  readings.push(reading);
  const { memoryMiB, descriptors } = reading;
  console.error(`soak: ${reading.lives} lives, ${memoryMiB.toFixed(0)} MiB, ${descriptors} descriptors`);
}
const many = (until: number): Promise<unknown> =>
  Promise.all(Array.from({ length: Number(values["at-once"]) }, () => live(until))).catch(
    async (error: unknown) => {
      await service.stop();
      throw error;
    },
  );

const warmUp = Math.ceil(lives / 10);
await many(warmUp);
const before = read(ended);
const startedAt = performance.now();
await many(warmUp + lives);
const seconds = (performance.now() - startedAt) / 1000;
await new Promise((resolve) => setTimeout(resolve, 2_000));
const after = read(ended);
const { totalSandboxes, activeOperations } = await service.client.unary(SandboxService.method.getStats, {});
const left = values.engine === "docker" ? containers() : 0;
await service.stop();

const database = Database.open(path.join(dataDir, "berth.db"));
const rows = database.prepare("SELECT count(*) AS n FROM sandboxes WHERE state <> 'TERMINATED'").get()?.n;
database.close();
rmSync(dataDir, { recursive: true, force: true });

const half = readings.slice(Math.floor(readings.length / 2));
const slope =
  ((half.at(-1)?.memoryMiB ?? 0) - (half[0]?.memoryMiB ?? 0)) /
  ((half.at(-1)?.lives ?? 1) - (half[0]?.lives ?? 0));
const summary = [
  `## ${lives} lives on ${values.engine}`,
  "",
  "| | before | after |",
  "|---|---|---|",
  `| memory, MiB | ${before.memoryMiB.toFixed(1)} | ${after.memoryMiB.toFixed(1)} |`,
  `| descriptors | ${before.descriptors} | ${after.descriptors} |`,
  `| sandboxes, operations | 0, 0 | ${totalSandboxes}, ${activeOperations} |`,
  `| containers | 0 | ${left} |`,
  `| rows of live sandboxes | 0 | ${rows} |`,
  "",
  `${seconds.toFixed(0)} s, ${(lives / seconds).toFixed(1)} lives a second, each with three commands. Memory over the second half: ${(slope * 1024).toFixed(2)} KiB a life.`,
  "",
].join("\n");
console.log(summary);
if (values.write !== undefined) writeFileSync(values.write, summary);
const back = totalSandboxes === 0 && activeOperations === 0 && left === 0 && rows === 0;
process.exitCode = back && after.descriptors <= before.descriptors + 8 ? 0 : 1;

/** The number of containers of this run's instance. */
function containers(): number {
  const own = Database.open(path.join(dataDir, "berth.db"));
  const instance = String(own.prepare("SELECT instance_id FROM instance").get()?.instance_id);
  own.close();
  const filters = ["ps", "--all", "--quiet", "--filter", `label=berth.instance=${instance}`];
  return execFileSync("docker", filters, { encoding: "utf8" }).split("\n").filter(Boolean).length;
}
