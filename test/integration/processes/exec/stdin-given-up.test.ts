import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { Client, failureOf } from "../../../support/client.ts";
import { ENGINES } from "../../../support/engines.ts";
import { MeasuredService } from "../../../support/memory.ts";
import { withTimeEnough } from "../../../support/time-enough.ts";

const MIB = 1024 * 1024;

describe.each(ENGINES)("on $name", ({ name }) => {
  let service: MeasuredService;
  let client: Client;
  let sandboxId = "";
  beforeAll(async () => {
    service = await MeasuredService.start(["--engine", name]);
    client = new Client(service.process.address);
    ({ sandbox_id: sandboxId } = await client.createSandbox());
  });
  afterAll(async () => {
    client.close();
    await service.process.stop();
  });

  /** A process that reads its stdin to EOF once the file `go` exists. */
  const reader = (go: string) =>
    client.exec(sandboxId, `while ! [ -e ${go} ]; do sleep 0.05; done; cat`, { keep_stdin_open: true });
  const write = (process_id: string, offset: number, data: Buffer, more: object = {}, ms = 60_000) =>
    client.call(
      "ProcessService/WriteStdin",
      { process_id, offset, data, ...more },
      { deadline: Date.now() + ms },
    );

  /** Abandons writes to a process that does not read, several at a time. */
  const giveUpWrites = async (rounds: number): Promise<() => Promise<unknown>> => {
    const execution = client.exec(sandboxId, "sleep 1000", { keep_stdin_open: true });
    const processId = await execution.processId;
    const data = Buffer.alloc(3 * MIB, "x");
    for (let round = 0; round < rounds; round++) {
      const failures = await Promise.all(
        Array.from({ length: 10 }, () => failureOf(write(processId, 0, data, {}, 400))),
      );
      for (const { code } of failures) expect(code).toBe("DEADLINE_EXCEEDED");
    }
    return async () => {
      await client.call("ProcessService/SignalProcess", { process_id: processId, signal: 9 });
      await execution.result;
    };
  };

  test("of 40 abandoned writes only a piece in transit is kept", async () => {
    const end = await giveUpWrites(1);
    await end();
    const before = await service.live();
    const endThese = await giveUpWrites(4);
    // An abandoned call ends in the service a moment later.
    await expect.poll(async () => (await service.live()) - before).toBeLessThan(1.5 * MIB);
    await endThese();
  });

  test("a message of which only the last byte is new is not kept with that byte", async () => {
    const taken = 3 * MIB;
    const command = `head -c ${taken} >/dev/null; exec sleep 1000`;
    const execution = client.exec(sandboxId, command, { keep_stdin_open: true });
    const processId = await execution.processId;
    const data = Buffer.alloc(taken);
    await write(processId, 0, data);
    // Fills the pipe, which then holds 1 MiB.
    const page = Buffer.alloc(4096);
    let offset = taken;
    for (let i = 0; i < MIB / page.length; i++) {
      await write(processId, offset, page, {}, 5_000);
      offset += page.length;
    }
    const before = await service.live();
    // A call would end at once if the service kept what the pipe has no room for.
    for (let i = 1; i <= 6; i++) await write(processId, offset + i - taken, data, {}, 200).catch(() => {});
    await expect.poll(async () => (await service.live()) - before).toBeLessThan(1.5 * MIB);
    await client.call("ProcessService/SignalProcess", { process_id: processId, signal: 9 });
    await execution.result;
  });

  test("the accepted part of an abandoned write is not written twice, and nothing is left out", async () => {
    const execution = reader("/tmp/go-2");
    const processId = await execution.processId;
    const data = Buffer.alloc(2 * MIB);
    for (let at = 0; at < data.length; at += 4) data.writeUInt32LE(at, at);
    const giveUpTwice = async (timeout: number): Promise<number> => {
      for (let i = 0; i < 2; i++) {
        const failure = await failureOf(write(processId, 0, data, {}, timeout * 1000));
        expect(failure.code).toBe("DEADLINE_EXCEEDED");
      }
      const hole = await failureOf(write(processId, data.length, Buffer.from("!")));
      expect(hole).toMatchObject({ reason: "OFFSET_OUT_OF_RANGE" });
      return Number(hole.metadata.written);
    };
    // Part of it was accepted, and the next writer may continue after it.
    const written = await withTimeEnough(0.3, giveUpTwice, (bytes) => bytes > 0);
    expect(written).toBeGreaterThan(0);
    expect(written).toBeLessThan(data.length);
    await client.exec(sandboxId, "touch /tmp/go-2").result;
    expect((await write(processId, 0, data, { close: true })).offset).toBe(data.length);
    expect((await execution.result).stdout.equals(data)).toBe(true);
  });
});
