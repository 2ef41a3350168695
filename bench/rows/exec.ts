import type { Figure, Row } from "../row.ts";
import { inTurn, quantile, timed } from "../stats.ts";

const TRUE = ["true"];
/** A user other than the sandbox's, so that commands do not run in a lane. */
const OTHER_USER = "0:0";

/** One command after another, in a lane and outside of lanes, compared with docker exec and inspect. */
export const execLatency: Row = {
  name: "exec",
  limitSeconds: 240,
  run: async ({ start, raw, scale, oneUser, progress }) => {
    const service = await start();
    const id = await service.create();
    const container = await raw.start();
    for (let i = 0; i < 300; i++) await service.exec(id, TRUE);
    progress("alternating with docker exec");
    const lane = await inTurn(
      Math.max(20, 100 * scale),
      () => service.exec(id, TRUE),
      () => raw.exec(container, TRUE),
    );
    // A p99 of the lanes needs more rounds, for which raw Docker is too slow.
    progress("on its own");
    for (let i = 0; i < 1900 * scale; i++) lane.berth.push(await timed(() => service.exec(id, TRUE)));
    const p50 = quantile(lane.berth, 0.5);
    const p99 = quantile(lane.berth, 0.99);
    const rawP50 = quantile(lane.raw, 0.5);
    const inLane: Figure = {
      name: "Exec of true, to exited",
      unit: "ms",
      p50,
      p99,
      rawP50,
      ratio: rawP50 / p50,
      goal: "p50 ≤ 2.5 ms, p99 ≤ 12 ms, ≥ 15 × raw",
      reached: p50 <= 2.5 && p99 <= 12 && rawP50 / p50 >= 15,
      values: lane,
    };
    if (oneUser) return [inLane];
    progress("outside the lanes");
    const plain = await inTurn(
      Math.max(10, 40 * scale),
      () => service.exec(id, TRUE, OTHER_USER),
      () => raw.exec(container, TRUE),
    );
    for (let i = 0; i < 400 * scale; i++)
      plain.berth.push(await timed(() => service.exec(id, TRUE, OTHER_USER)));
    const plainP50 = quantile(plain.berth, 0.5);
    const plainRaw = quantile(plain.raw, 0.5);
    return [
      inLane,
      {
        name: "Exec of true as another user",
        unit: "ms",
        p50: plainP50,
        p99: quantile(plain.berth, 0.99),
        rawP50: plainRaw,
        ratio: plainRaw / plainP50,
        goal: "p50 ≤ 8 ms",
        reached: plainP50 <= 8,
        values: plain,
      },
    ];
  },
};
