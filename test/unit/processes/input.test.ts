import { create } from "@bufbuild/protobuf";
import { createContextValues, type HandlerContext } from "@connectrpc/connect";
import { describe, expect, test } from "vitest";
import { ExecRequestSchema, OnDisconnect, ProcessService } from "../../../gen/ts/berth/v1/process_pb.js";
import { BerthError } from "../../../src/base/errors.ts";
import { ProcessHandler } from "../../../src/rpc/process-service.ts";
import { type Call, ownerKey, setCall } from "../../../src/server/call.ts";
import { ReceiveBudget } from "../../../src/server/limits.ts";
import { RequestLog } from "../../../src/state/request-log.ts";
import { ServiceTime } from "../../../src/state/service-time.ts";
import { settled } from "../../support/manual-clock.ts";
import { OWNER } from "../sandboxes/support.ts";
import { never, ProcessBench } from "./support.ts";

/** A promise that a test settles. */
const gate = () => Promise.withResolvers<void>();

describe("stdin", () => {
  test("that came with the request is written, and closed", async () => {
    const bench = await ProcessBench.start();
    await bench.exec({ stdin: Buffer.from("input") });
    expect(bench.job).toMatchObject({ stdin: "input", stdinClosed: true });
    expect(bench.job.request.stdin).toBe(true);
  });

  test("that is kept open accepts each byte once, and is closed when the caller asks for it", async () => {
    const bench = await ProcessBench.start();
    const { processId } = await bench.exec({ stdin: Buffer.from("one "), keepStdinOpen: true });
    const process = bench.processes.get(OWNER, processId);
    expect(bench.job).toMatchObject({ stdin: "one ", stdinClosed: false });
    expect(await process.writeStdin(4, Buffer.from("two "), false, never)).toBe(8);
    expect(await process.writeStdin(4, Buffer.from("two three"), true, never)).toBe(13);
    expect(bench.job).toMatchObject({ stdin: "one two three", stdinClosed: true });
  });

  test("refuses a write that leaves a gap, one after its close, and one to a process without open stdin", async () => {
    const bench = await ProcessBench.start();
    const open = await bench.exec({ keepStdinOpen: true });
    const process = bench.processes.get(OWNER, open.processId);
    const data = Buffer.from("data");
    await expect(process.writeStdin(1, data, false, never)).rejects.toMatchObject({
      reason: "OFFSET_OUT_OF_RANGE",
      metadata: { written: "0" },
    });
    await process.writeStdin(0, data, true, never);
    await expect(process.writeStdin(4, data, false, never)).rejects.toMatchObject({
      reason: "PROCESS_STATE",
    });
    const closed = bench.processes.get(OWNER, (await bench.exec()).processId);
    await expect(closed.writeStdin(0, data, false, never)).rejects.toMatchObject({ reason: "PROCESS_STATE" });
  });

  test("reports why the job accepts no input, also at each retry", async () => {
    const bench = await ProcessBench.start();
    const { processId } = await bench.exec({ keepStdinOpen: true });
    const process = bench.processes.get(OWNER, processId);
    bench.job.reading = () => Promise.reject(new BerthError("PROCESS_STATE", "nobody reads"));
    for (let i = 0; i < 2; i++) {
      const written = process.writeStdin(0, Buffer.from("data"), false, never);
      await expect(written).rejects.toThrow("nobody reads");
    }
    // Of a caller whose first bytes, such as those of its request, are the ones that were not taken.
    const next = process.writeStdin(4, Buffer.from("more"), false, never);
    await expect(next).rejects.toThrow("nobody reads");
  });

  test("that came with the request counts until the job has it, also when the caller has left", async () => {
    const bench = await ProcessBench.start();
    const budget = new ReceiveBudget(1_000_000, 0);
    const account = budget.open(OWNER);
    account.charge(100_000);
    const values = createContextValues();
    values.set(ownerKey, OWNER);
    setCall(values, { account } as Partial<Call> as Call);
    const caller = new AbortController();
    const { signal } = caller;
    const context = { values, signal, method: ProcessService.method.exec } as Partial<HandlerContext>;
    const { clock, store } = bench.world;
    const requests = new RequestLog(ServiceTime.resume(clock, store.time), store.requests);
    const handler = new ProcessHandler({ processes: bench.processes, requests });
    const reading = gate();
    bench.runner.reading = () => reading.promise;
    const request = create(ExecRequestSchema, {
      sandboxId: bench.sandbox.sandboxId,
      command: { case: "shell", value: "exec sleep 1000" },
      stdin: Buffer.alloc(100_000),
      onDisconnect: OnDisconnect.DETACH,
    });
    const events = handler.exec(request, context as HandlerContext);
    expect((await events.next()).value).toMatchObject({ event: { case: "started" } });
    caller.abort();
    await events.return(undefined);
    account.close();
    expect(budget.heldBytes).toBe(100_000);
    reading.resolve();
    await settled();
    expect(budget.heldBytes).toBe(0);
  });

  test("lets a caller leave while the job does not read", async () => {
    const bench = await ProcessBench.start();
    const { processId } = await bench.exec({ keepStdinOpen: true });
    const process = bench.processes.get(OWNER, processId);
    const reading = gate();
    bench.job.reading = () => reading.promise;
    const caller = new AbortController();
    const first = process.writeStdin(0, Buffer.from("one"), false, caller.signal);
    first.catch(() => {});
    const second = process.writeStdin(3, Buffer.from(" two"), false, never);
    await settled();
    caller.abort();
    await expect(first).rejects.toMatchObject({ reason: "CANCELED" });
    reading.resolve();
    expect(await second).toBe(7);
    expect(bench.job.stdin).toBe("one two");
  });

  test("that its caller no longer waited for when the job refused it is refused again", async () => {
    const bench = await ProcessBench.start();
    const { processId } = await bench.exec({ keepStdinOpen: true });
    const process = bench.processes.get(OWNER, processId);
    const reading = gate();
    bench.job.reading = () => reading.promise;
    const caller = new AbortController();
    const given = process.writeStdin(0, Buffer.from("data"), false, caller.signal);
    given.catch(() => {});
    await settled();
    caller.abort();
    await expect(given).rejects.toMatchObject({ reason: "CANCELED" });
    const outcome = (written: Promise<number>) => written.catch((error: unknown) => error);
    const early = outcome(process.writeStdin(0, Buffer.from("data"), false, never));
    await settled();
    reading.reject(new BerthError("PROCESS_STATE", "nobody reads"));
    const late = outcome(process.writeStdin(0, Buffer.from("data"), false, never));
    expect(await early).toMatchObject({ reason: "PROCESS_STATE" });
    expect(await late).toMatchObject({ reason: "PROCESS_STATE" });
  });
});

describe("a signal and a resize", () => {
  test("reach the process", async () => {
    const bench = await ProcessBench.start();
    const { processId } = await bench.exec({ terminal: { columns: 80, rows: 24 } });
    const process = bench.processes.get(OWNER, processId);
    bench.job.onSignal = () => {};
    await process.signal(2);
    await process.resize({ columns: 100, rows: 30 });
    expect(bench.job).toMatchObject({ signals: [2], sizes: [{ columns: 100, rows: 30 }] });
    expect(process.status).toBeUndefined();
  });

  test("that ends the process is its cause", async () => {
    const bench = await ProcessBench.start();
    const stream = await bench.exec();
    await bench.processes.get(OWNER, stream.processId).signal(2);
    await stream.over;
    expect(stream.status).toMatchObject({ cause: "SIGNALED", signal: 2, exitCode: 130 });
  });

  test("are refused after its end, and a resize without a terminal", async () => {
    const bench = await ProcessBench.start();
    const stream = await bench.exec({ keepStdinOpen: true });
    const process = bench.processes.get(OWNER, stream.processId);
    const size = { columns: 100, rows: 30 };
    const refused = { reason: "PROCESS_STATE" };
    await expect(process.resize(size)).rejects.toMatchObject(refused);
    bench.job.exit(0);
    await stream.over;
    await expect(process.signal(2)).rejects.toMatchObject(refused);
    await expect(process.resize(size)).rejects.toMatchObject(refused);
    await expect(process.writeStdin(0, Buffer.from("x"), false, never)).rejects.toMatchObject(refused);
    expect(bench.job).toMatchObject({ signals: [], sizes: [], stdin: "" });
  });
});
