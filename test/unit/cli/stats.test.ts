import { create } from "@bufbuild/protobuf";
import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import { expect, test } from "vitest";
import { GetStatsResponseSchema, WaitReason } from "../../../gen/ts/berth/v1/sandbox_pb.js";
import { statsRows } from "../../../src/cli/commands/stats.ts";

const since = timestampFromMs(Date.now() - 90_000);
const waitingOf = (rows: string[][]) => rows.filter(([what]) => what?.startsWith("waiting"));

test("what waits to start is counted, and shown with its reason on one line", () => {
  const stats = create(GetStatsResponseSchema, {
    waitingSandboxes: 3,
    waiting: [
      {
        sandboxId: "late",
        image: "image:1",
        reason: WaitReason.UNSCHEDULABLE,
        message: "0/1 nodes\nare left",
        since,
      },
      { warmPool: true, image: "image:1", reason: WaitReason.IMAGE, since },
      { image: "image:2", reason: WaitReason.STARTING, message: `\u001b[2J${"x".repeat(1_000)}`, since },
    ],
  });
  const [count, late, pooled, look] = waitingOf(statsRows(stats));
  expect(count).toEqual(["waiting to start", "3"]);
  expect(late).toEqual(["waiting", "late, 90 s, unschedulable: 0/1 nodes are left"]);
  expect(pooled).toEqual(["waiting", "warm pool, image:1, 90 s, image"]);
  expect(look?.[1]).toMatch(/^image:2, 90 s, starting: /);
  expect(look?.[1]?.length).toBeLessThan(300);
  expect(look?.[1]).not.toContain("\u001b");
});

test("ten of many are shown, and no line if nothing waits", () => {
  const waiting = Array.from({ length: 50 }, (_, index) => ({ sandboxId: `s${index}`, since }));
  const many = create(GetStatsResponseSchema, { waitingSandboxes: 70, waiting });
  expect(waitingOf(statsRows(many))).toHaveLength(11);
  expect(waitingOf(statsRows(create(GetStatsResponseSchema, {})))).toEqual([]);
});
