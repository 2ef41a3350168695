import { randomInt } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import { beforeAll, describe, expect, test } from "vitest";
import { useApp } from "../../support/app.ts";
import { eventually } from "../../support/eventually.ts";
import { scaled } from "../../support/scale.ts";
import { SHELL_IMAGES } from "../../support/shell-images.ts";
import type { Gap, ProcessEvent } from "../../support/wire.ts";

const MIB = 1024 * 1024;
/** The output of the process with many readers, and how much of it is kept for late ones. */
const TOTAL_BYTES = scaled(100, 32) * MIB;
const WINDOW_BYTES = scaled(64, 16) * MIB;

/** Readers that get nothing for this long are stuck, however busy the machine is. */
const STUCK_MS = 60_000;

const LINE_BYTES = 16;

/** Writes this many lines to stdout, in any shell's awk. */
const count = (lines: number): string =>
  `awk 'BEGIN { for (i = 0; i < ${lines}; i++) printf "%015d\\n", i }'`;

/** The output of {@link count}: lines that contain their own position. */
function counted(bytes: number): Buffer {
  const output = Buffer.alloc(bytes);
  for (let at = 0; at < bytes; at += LINE_BYTES)
    output.write(`${String(at / LINE_BYTES).padStart(LINE_BYTES - 1, "0")}\n`, at, "latin1");
  return output;
}

describe("many readers of one process", () => {
  const service = useApp({ transcriptWindowBytes: WINDOW_BYTES });
  const output = counted(TOTAL_BYTES);
  const expectCounted = (data: Buffer, at: number): void => {
    if (!data.equals(output.subarray(at, at + data.length))) throw new Error(`wrong bytes at ${at}`);
  };
  let sandboxId = "";

  beforeAll(async () => {
    sandboxId = (await service.client.createSandbox({ image: SHELL_IMAGES[0][1] })).sandbox_id;
  });

  /** Follows a process from an offset, and checks every byte. */
  async function follow(processId: string, from: number, pace: (bytes: number) => Promise<void> | undefined) {
    const call = service.client.stream("ProcessService/AttachProcess", {
      process_id: processId,
      stdout_offset: from,
    });
    let at = from;
    const gaps: Gap[] = [];
    let exit: ProcessEvent["exited"];
    for await (const event of call as AsyncIterable<ProcessEvent>) {
      if (event.output) {
        expect(event.output.offset).toBe(at);
        const { data } = event.output;
        expectCounted(data, at);
        at += data.length;
        await pace(data.length);
      } else if (event.gap) {
        expect(event.gap.from_offset).toBe(at);
        at = event.gap.to_offset;
        gaps.push(event.gap);
      } else if (event.exited) exit = event.exited;
    }
    return { at, gaps, exit };
  }

  test("ten at different speeds and offsets get the exact bytes or a gap; one that stops slows nobody", {
    timeout: 600_000,
  }, async () => {
    const lines = TOTAL_BYTES / LINE_BYTES;
    const execution = service.client.exec(
      sandboxId,
      `${count(1000)}; sleep 0.5; ${count(lines).replace("i = 0", "i = 1000")}`,
      {
        on_disconnect: "ON_DISCONNECT_DETACH",
      },
    );
    const processId = await execution.processId;
    execution.cancel();
    await execution.result.catch(() => {});
    await eventually(async () => {
      const { process } = await service.client.call("ProcessService/GetProcess", { process_id: processId });
      return process.stdout_bytes >= 1000 * LINE_BYTES;
    });
    // One opens the stream and never reads on: its window fills up, which must not affect others.
    const stopped = service.client.stream("ProcessService/AttachProcess", { process_id: processId });
    stopped.once("data", () => stopped.pause());
    stopped.on("error", () => {});
    let received = 0;
    const following = Promise.all(
      Array.from({ length: 10 }, (_, i) =>
        follow(processId, i * 1600 - (i % 3), (bytes) => {
          received += bytes;
          return i < 5 ? undefined : sleep((bytes / MIB) * i);
        }),
      ),
    );
    // Blocked by the reader that stopped, the others would get nothing more.
    const over = new AbortController();
    const stuck = async (): Promise<undefined> => {
      let before: number;
      do {
        before = received;
        await sleep(STUCK_MS, undefined, { signal: over.signal });
      } while (received > before);
    };
    const readers = (await Promise.race([following, stuck()]).finally(() => over.abort())) ?? [];
    expect(readers).toHaveLength(10);
    for (const { at, gaps, exit } of readers) {
      expect(at).toBe(TOTAL_BYTES);
      expect(exit?.exit_code).toBe(0);
      const missing = gaps.reduce((sum, gap) => sum + gap.to_offset - gap.from_offset, 0);
      expect(missing).toBeLessThan(TOTAL_BYTES);
    }
    stopped.cancel();
  });

  test("a connection killed at 50 random places and attached again gives the exact transcript", async () => {
    const total = (WINDOW_BYTES * 3) / 8;
    const first = service.client.exec(sandboxId, count(total / LINE_BYTES), {
      on_disconnect: "ON_DISCONNECT_KILL",
      disconnect_grace: { seconds: 600 },
    });
    const processId = await first.processId;
    first.cancel();
    await first.result.catch(() => {});
    const cuts = Array.from({ length: 50 }, () => randomInt(total)).sort((a, b) => a - b);
    let at = 0;
    for (const cut of [...cuts, Number.POSITIVE_INFINITY]) {
      const call = service.client.stream("ProcessService/AttachProcess", {
        process_id: processId,
        stdout_offset: at,
      });
      call.on("error", () => {});
      let ended = false;
      try {
        for await (const event of call as AsyncIterable<ProcessEvent>) {
          if (event.gap) throw new Error(`a gap at ${event.gap.from_offset}`);
          if (event.exited) ended = true;
          if (!event.output) continue;
          expect(event.output.offset).toBe(at);
          const { data } = event.output;
          expectCounted(data, at);
          at += data.length;
          if (at >= cut) break;
        }
      } finally {
        call.cancel();
      }
      if (ended) break;
    }
    expect(at).toBe(total);
  });
});
