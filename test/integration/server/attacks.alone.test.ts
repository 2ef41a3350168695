import { afterAll, beforeAll, expect, test } from "vitest";
import { AttackedService, type AttackReport } from "../../support/attacks/attacked-service.ts";
import type { AttackName } from "../../support/attacks/attacks.ts";
import { eventually } from "../../support/eventually.ts";

const MIB = 1 << 20;

let service: AttackedService;
let descriptors: number;
beforeAll(async () => {
  service = await AttackedService.start();
  expect(await service.freshOutput()).toBe("fine\n");
  // With as many idle shells as attacks leave behind, which stay for a minute.
  // SQLite keeps one that copied the log, and uses it for the next copy.
  descriptors = (await service.descriptorsAfter(4)) + 1;
});
afterAll(() => service?.[Symbol.asyncDispose]());

/**
 * How long a call may take however fast it was before, in milliseconds: the longest pause of the event loop that
 * anything may cause. Three times a few milliseconds would be less than one time slice of the kernel's scheduler. If
 * others use half of the CPU time, everything takes twice as long.
 */
const FLOOR_MS = 100;

const endsAll = ({ count, ended }: AttackReport) => expect(ended).toBe(count);
const endsConnection = ({ ended }: AttackReport) => expect(ended).toBe(1);
const keepsCalls = ({ ended, commands }: AttackReport) =>
  expect({ ended, commands }).toEqual({ ended: 0, commands: 1 });
const keepsConnections = ({ count, ended, descriptors: open }: AttackReport) => {
  expect(ended).toBe(0);
  expect(open).toBeGreaterThan(count / 2);
};

// How the service withstands an attack, besides serving others.
test.each<[string, AttackName, (report: AttackReport) => void]>([
  ["gzip that becomes a thousand times as much, in every codec", "gzipBomb", endsAll],
  ["10,000 calls that are canceled as they come", "rapidReset", endsConnection],
  ["headers that point at a long one thousands of times", "hpackBomb", () => {}],
  ["headers that do not end", "continuationFlood", endsAll],
  ["pings, settings and empty data without end", "controlFlood", () => {}],
  ["1,000 idle connections", "idleConnections", keepsConnections],
  ["600 connections whose headers come slowly", "slowHeaders", keepsConnections],
  ["output that is not read", "stoppedReader", keepsCalls],
  ["lines of output that are not read", "stoppedLineReader", keepsCalls],
])(
  "%s: other clients are served, memory stays bounded, and everything recovers",
  async (_title, name, answer) => {
    // V8 collects buffers of output only after 64 MB of them, whether or not the output is read.
    const before = name.startsWith("stopped") ? () => service.carryOutput() : undefined;
    const { unary, exec, share, grownBytes, reports } = await service.measure(name, before);
    const told = JSON.stringify({ name, unary, exec, share, grownMiB: grownBytes / MIB, reports });
    if (process.env.BERTH_TEST_FIGURES) console.log(told);
    for (const report of reports) answer(report);
    expect(unary.attacked, told).toBeLessThan(Math.max(3 * unary.quiet, FLOOR_MS / share));
    expect(exec.attacked, told).toBeLessThan(Math.max(3 * exec.quiet, FLOOR_MS / share));
    expect(grownBytes, told).toBeLessThan(50 * MIB);
    await eventually(async () => (await service.runningCommands()) === 0);
    await eventually(async () => (await service.descriptors()) <= descriptors, {
      describe: () => ({ name, descriptors }),
    });
    expect(await service.freshOutput()).toBe("fine\n");
  },
);
