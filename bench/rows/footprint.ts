import { setTimeout as sleep } from "node:timers/promises";
import { buildProgram } from "../build.ts";
import type { Figure, Row } from "../row.ts";
import type { BenchService } from "../service.ts";

const REST_MS = 5_000;
/** How long the service has to release the memory of much output. */
const RETURN_MS = 10_000;
const OUTPUT_MB = 300;
const MIB = 1024 * 1024;

/** The memory of the built service itself: after its start, during much output, and ten seconds later. */
export const footprint: Row = {
  name: "footprint",
  limitSeconds: 180,
  run: async ({ start, scale, progress }) => {
    progress("building");
    await buildProgram();
    const service = await start([], true);
    await sleep(REST_MS);
    const idle = memory("service memory, nothing made yet", service, 90);
    const id = await service.create();
    const megabytes = Math.max(20, Math.round(OUTPUT_MB * scale));
    await service.exec(id, ["head", "-c", `${megabytes}M`, "/dev/zero"]);
    const name = `service memory, after ${megabytes} MB of output`;
    const after = memory(name, service, 130);
    await sleep(RETURN_MS);
    return [idle, after, memory(`${name}, ${RETURN_MS / 1000} s later`, service, 90)];
  },
};

function memory(name: string, service: BenchService, most: number): Figure {
  const p50 = service.memory() / MIB;
  return { name, unit: "MiB", p50, goal: `≤ ${most} MiB`, reached: p50 <= most };
}
