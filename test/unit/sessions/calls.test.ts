import { describe, expect, test } from "vitest";
import { BerthError } from "../../../src/base/errors.ts";
import { TOOL_CODE } from "../../../src/sessions/backend.ts";
import { type BatchOptions, type BatchResult, runBatch } from "../../../src/sessions/tool-runner.ts";
import { keptBytes } from "../../support/kept-bytes.ts";
import { settled } from "../../support/manual-clock.ts";
import { OWNER } from "../sandboxes/support.ts";
import { gate, hasSettled, keyOf, never, requestOf, SessionBench } from "./support.ts";

/** The default timeout of commands. */
const COMMAND_TIMEOUT_MS = 60_000;

describe("calls", () => {
  test("on one session run one after the other, in the order of their arrival", async () => {
    const bench = await SessionBench.start();
    await bench.created("shell");
    const names = ["one", "two", "three"];
    const calls = await Promise.all(names.map((name) => bench.wait("shell", name)));
    expect(bench.listed).toMatchObject([{ activeCalls: 3 }]);
    for (const [index, name] of names.entries()) {
      expect(bench.shell.started).toEqual(names.slice(0, index + 1));
      bench.shell.call(name).finish();
      await calls[index]?.report;
      await settled();
    }
    expect(bench.listed).toMatchObject([{ activeCalls: 0 }]);
    expect(bench.shell.backends).toHaveLength(1);
  });

  test("on sessions of different types run in parallel", async () => {
    const bench = await SessionBench.start();
    await bench.create(["shell", "notebook"]);
    const first = await bench.wait("shell", "one");
    const second = await bench.wait("notebook", "two");
    expect([...bench.shell.started, ...bench.notebook.started]).toEqual(["one", "two"]);
    bench.notebook.call("two").finish();
    expect(await second.report).toMatchObject({ data: "two", meta: { fullName: "notebook:wait" } });
    expect(await hasSettled(first.report)).toBe(false);
  });

  test.each(["ends", "fails", "exceeds its timeout", "loses its caller"])(
    "that are commands count towards the tenant's quota, until one %s",
    async (end) => {
      const bench = await SessionBench.start();
      await bench.create(["shell", "notebook"]);
      bench.quota = { execs: 1 };
      const caller = new AbortController();
      const first = await bench.wait("shell", "one", { timeoutMs: 1_000 }, caller.signal);
      expect(bench.quotas.usage(OWNER).execs).toBe(1);
      const refused = await bench.wait("notebook", "two");
      expect(await hasSettled(refused.report)).toBe(true);
      await expect(refused.report).rejects.toMatchObject({
        reason: "TENANT_QUOTA",
        metadata: { quota: "execs" },
      });
      // Another kind of tool is none.
      expect(await bench.answer("notebook")).toMatchObject({ backend: 0 });
      if (end === "ends") bench.shell.call("one").finish();
      if (end === "fails") bench.shell.call("one").fail(new Error("on purpose"));
      if (end === "exceeds its timeout") await bench.clock.advance(1_000);
      if (end === "loses its caller") caller.abort(new BerthError("CANCELED", "on purpose"));
      await first.report.catch(() => {});
      expect(bench.quotas.usage(OWNER).execs).toBe(0);
      await bench.wait("notebook", "three");
      expect(bench.notebook.started).toEqual(["three"]);
    },
  );

  test("do not wait for a caller that left the queue", async () => {
    const bench = await SessionBench.start();
    await bench.created("shell");
    const caller = new AbortController();
    await bench.wait("shell", "one");
    const second = await bench.wait("shell", "two", {}, caller.signal);
    await bench.wait("shell", "three");
    caller.abort();
    await expect(second.report).rejects.toMatchObject({ reason: "CANCELED" });
    expect(bench.listed).toMatchObject([{ activeCalls: 2 }]);
    bench.shell.call("one").finish();
    await settled();
    expect(bench.shell.started).toEqual(["one", "three"]);
  });

  test("whose callers left the queue take no memory until their turn would have come", async () => {
    const bench = await SessionBench.start();
    await bench.created("shell");
    await bench.wait("shell", "long");
    const leave = async (): Promise<void> => {
      const caller = new AbortController();
      const left = bench.sessions.withSession(keyOf("shell"), caller.signal, async () => {});
      caller.abort();
      await left.catch(() => {});
    };
    // Until the code is compiled, and the pools that it uses have their size.
    for (let count = 0; count < 300; count++) await leave();
    const before = await keptBytes();
    for (let count = 0; count < 3_000; count++) await leave();
    // A call that waits takes some kilobytes.
    expect((await keptBytes()) - before).toBeLessThan(3_000 * 500);
    expect(bench.shell.started).toEqual(["long"]);
  });

  test("continue after one whose caller left while its sandbox seemed to end", async () => {
    const bench = await SessionBench.start();
    await bench.created("shell");
    const caller = new AbortController();
    const first = await bench.wait("shell", "one", {}, caller.signal);
    await bench.wait("shell", "two");
    bench.isEnding = true;
    bench.shell.call("one").fail(new BerthError("SANDBOX_TERMINATED", "The sandbox's container is gone."));
    expect(await hasSettled(first.report)).toBe(false);
    expect(bench.shell.started).toEqual(["one"]);
    caller.abort();
    await settled();
    expect(bench.shell.started).toEqual(["one", "two"]);
    await expect(first.report).rejects.toMatchObject({ reason: "CANCELED" });
  });

  test("continue after one whose caller left and one that failed", async () => {
    const bench = await SessionBench.start();
    await bench.created("shell");
    const caller = new AbortController();
    const first = await bench.wait("shell", "one", {}, caller.signal);
    const second = await bench.wait("shell", "two");
    const third = await bench.wait("shell", "three");
    caller.abort();
    await expect(first.report).rejects.toMatchObject({ reason: "CANCELED" });
    await settled();
    bench.shell.call("two").fail(new BerthError("ENGINE_UNAVAILABLE", "on purpose"));
    await expect(second.report).rejects.toMatchObject({ reason: "ENGINE_UNAVAILABLE" });
    await settled();
    bench.shell.call("three").finish();
    expect(await third.report).toMatchObject({ code: TOOL_CODE.success });
  });

  test("beyond 1000 on one session are refused", async () => {
    const bench = await SessionBench.start();
    await bench.created("shell");
    const endless = gate();
    const calls = Array.from({ length: 1001 }, () =>
      bench.sessions.withSession(keyOf("shell"), never, () => endless.promise),
    );
    await expect(calls[1000]).rejects.toMatchObject({ reason: "TOO_MANY_OPERATIONS" });
    expect(await hasSettled(Promise.race(calls.slice(0, 1000)))).toBe(false);
    endless.resolve();
    await Promise.all(calls.slice(0, 1000));
    expect(await bench.answer("shell")).toEqual({ backend: 0, restarted: false });
  });

  test.each([
    ["the request's", { timeoutMs: 400, params: { name: "one", timeout_ms: 500 } }, 400],
    ["that of its params", { params: { name: "one", timeout_ms: 500 } }, 500],
    [
      "the request's, over the tool's default",
      { timeoutMs: 600, params: { name: "one", default_timeout_ms: 500 } },
      600,
    ],
    ["the tool's default", { params: { name: "one", default_timeout_ms: 500 } }, 500],
    ["the sandbox's", { params: { name: "one" } }, COMMAND_TIMEOUT_MS],
  ])("stop at their timeout, which is %s", async (_, given, timeoutMs) => {
    const bench = await SessionBench.start();
    const { sandboxId } = await bench.sandboxes.create(
      OWNER,
      { commandTimeoutMs: COMMAND_TIMEOUT_MS },
      { signal: never },
    );
    await bench.created("shell", { sandbox: { sandboxId } });
    const { report } = await bench.call({ tool: "shell:wait", ...given });
    await bench.clock.advance(timeoutMs - 1);
    expect(await hasSettled(report)).toBe(false);
    await bench.clock.advance(1);
    expect(await report).toMatchObject({ code: TOOL_CODE.timeout, meta: { executionTimeMs: timeoutMs } });
    expect(await bench.answer("shell")).toEqual({ backend: 0, restarted: false });
  });

  test("do not count the time that they wait for their turn", async () => {
    const bench = await SessionBench.start();
    await bench.created("shell");
    await bench.wait("shell", "one", { timeoutMs: 5_000 });
    const { report } = await bench.wait("shell", "two", { timeoutMs: 100 });
    await bench.clock.advance(3_000);
    bench.shell.call("one").finish();
    await settled();
    await bench.clock.advance(99);
    bench.shell.call("two").finish();
    expect(await report).toMatchObject({ code: TOOL_CODE.success, meta: { executionTimeMs: 99 } });
  });

  test.each([
    ["an unknown tool", { tool: "shell:fly" }, "TOOL_NOT_FOUND"],
    ["a tool of several types", { tool: "wait", params: { name: "one" } }, "INVALID_ARGUMENT"],
    ["bad params", { tool: "shell:wait", params: { name: 5 } }, "INVALID_ARGUMENT"],
  ])("of %s are refused, and start nothing", async (_, call, reason) => {
    const bench = await SessionBench.start();
    const { report } = await bench.call(call);
    await expect(report).rejects.toMatchObject({ reason });
    expect(bench.containers).toEqual([]);
  });
});

describe("a backend that died", () => {
  test("is replaced in the same sandbox before the next call, which is informed once", async () => {
    const bench = await SessionBench.start();
    const { sandboxId } = await bench.created("shell");
    expect(await bench.answer("shell")).toEqual({ backend: 0, restarted: false });
    bench.shell.backend.alive = false;
    expect(await bench.answer("shell")).toEqual({ backend: 1, restarted: true });
    expect(await bench.answer("shell")).toEqual({ backend: 1, restarted: false });
    expect(bench.shell.backends.map(({ cleanups }) => cleanups)).toEqual([[false], []]);
    expect(bench.shell.backend.host).toMatchObject({ name: { sandboxId } });
    expect(bench.containers).toEqual([sandboxId]);
  });

  test("fails the call if no new one starts, and the next call tries again", async () => {
    const bench = await SessionBench.start();
    await bench.created("shell");
    bench.shell.backend.alive = false;
    bench.shell.initializing = () => Promise.reject(new BerthError("SESSION_START_FAILED", "on purpose"));
    const { report } = await bench.call({ tool: "shell:answer" });
    await expect(report).rejects.toMatchObject({ reason: "SESSION_START_FAILED" });
    bench.shell.initializing = async () => {};
    expect(await bench.answer("shell")).toEqual({ backend: 1, restarted: true });
  });

  test("fails the call with DEADLINE_EXCEEDED if the new one takes too long", async () => {
    const bench = await SessionBench.start();
    await bench.created("shell");
    bench.shell.backend.alive = false;
    bench.shell.initializing = () => gate().promise;
    const { report } = await bench.wait("shell", "one", { timeoutMs: 20_000 });
    await bench.clock.advance(20_000);
    expect(await hasSettled(report)).toBe(false);
    await bench.clock.advance(2_000);
    await expect(report).rejects.toMatchObject({ reason: "DEADLINE_EXCEEDED" });
    expect(bench.listed).toMatchObject([{ state: "ACTIVE", activeCalls: 0 }]);
  });
});

describe("a temporary session", () => {
  const expectNothingLeft = async (bench: SessionBench): Promise<void> => {
    await settled();
    expect([bench.listed, bench.stored, bench.containers]).toEqual([[], [], []]);
    expect(bench.shell.backends.map(({ cleanups }) => cleanups)).toEqual(
      bench.shell.backends.map(() => [true]),
    );
  };

  test("serves a call without a session, and is gone after it", async () => {
    const bench = await SessionBench.start();
    const { report } = await bench.wait("shell", "one");
    expect(bench.listed).toEqual([]);
    expect(bench.containers).toHaveLength(1);
    bench.shell.call("one").finish();
    expect(await report).toMatchObject({ data: "one", meta: { temporarySession: true } });
    await expectNothingLeft(bench);
    expect(bench.shell.backends).toHaveLength(1);
  });

  test("is gone after a call that failed", async () => {
    const bench = await SessionBench.start();
    const { report } = await bench.wait("shell", "one");
    bench.shell.call("one").fail(new BerthError("ENGINE_UNAVAILABLE", "on purpose"));
    await expect(report).rejects.toMatchObject({ reason: "ENGINE_UNAVAILABLE" });
    await expectNothingLeft(bench);
  });

  test("is gone after a call whose caller left", async () => {
    const bench = await SessionBench.start();
    const caller = new AbortController();
    const { report } = await bench.wait("shell", "one", {}, caller.signal);
    caller.abort();
    await expect(report).rejects.toMatchObject({ reason: "CANCELED" });
    await expectNothingLeft(bench);
  });

  test("whose caller leaves while it starts is gone too", async () => {
    const bench = await SessionBench.start();
    const caller = new AbortController();
    bench.shell.initializing = () => gate().promise;
    const { report } = await bench.wait("shell", "one", {}, caller.signal);
    expect(bench.stored).toHaveLength(1);
    caller.abort();
    await expect(report).rejects.toMatchObject({ reason: "CANCELED" });
    await expectNothingLeft(bench);
    expect(bench.shell.backends).toEqual([]);
  });

  test("that does not start fails its call, and leaves nothing", async () => {
    const bench = await SessionBench.start();
    bench.shell.initializing = () => Promise.reject(new BerthError("SESSION_START_FAILED", "on purpose"));
    const { report } = await bench.wait("shell", "one");
    await expect(report).rejects.toMatchObject({ reason: "SESSION_START_FAILED" });
    await expectNothingLeft(bench);
  });

  test("belongs to one call: two concurrent calls run in parallel", async () => {
    const bench = await SessionBench.start();
    await bench.wait("shell", "one");
    await bench.wait("shell", "two");
    expect(bench.shell.started).toEqual(["one", "two"]);
    expect(bench.containers).toHaveLength(2);
  });
});

describe("a batch", () => {
  const waits = (...names: readonly string[]) =>
    names.map((name) => {
      const [type = ""] = name.split(" ");
      return requestOf({ tool: `${type}:wait`, params: { name } });
    });
  const anyMemory = () => true;
  const run = (
    bench: SessionBench,
    requests: ReturnType<typeof waits>,
    options: Partial<BatchOptions>,
    take = anyMemory as (bytes: number) => boolean,
  ) => {
    const all = { parallel: false, stopOnError: false, traceId: "trace_batch", ...options };
    const results = runBatch(bench.tools, requests, all, take, never);
    results.catch(() => {});
    return results;
  };
  const outline = (results: readonly BatchResult[]) =>
    results.map((result) => (result.kind === "report" ? result.report.data : result.kind));
  const started = (bench: SessionBench) => [...bench.shell.started, ...bench.notebook.started];

  test("in sequence starts a call when the one before has ended", async () => {
    const bench = await SessionBench.start();
    await bench.create(["shell", "notebook"]);
    const results = run(bench, waits("shell 1", "notebook 2"), {});
    await settled();
    expect(started(bench)).toEqual(["shell 1"]);
    bench.shell.call("shell 1").finish();
    await settled();
    expect(started(bench)).toEqual(["shell 1", "notebook 2"]);
    bench.notebook.call("notebook 2").finish();
    expect(outline(await results)).toEqual(["shell 1", "notebook 2"]);
  });

  test("in parallel keeps the order on each session, and that of the results", async () => {
    const bench = await SessionBench.start();
    await bench.create(["shell", "notebook"]);
    const results = run(bench, waits("shell 1", "shell 2", "notebook 3"), { parallel: true });
    await settled();
    expect(started(bench)).toEqual(["shell 1", "notebook 3"]);
    bench.notebook.call("notebook 3").finish();
    bench.shell.call("shell 1").finish();
    await settled();
    bench.shell.call("shell 2").finish();
    expect(outline(await results)).toEqual(["shell 1", "shell 2", "notebook 3"]);
  });

  test("in parallel runs at most 16 calls", async () => {
    const bench = await SessionBench.start();
    const names = Array.from({ length: 17 }, (_, i) => `shell ${i}`);
    const results = run(bench, waits(...names), { parallel: true });
    await settled();
    expect(bench.shell.started).toHaveLength(16);
    bench.shell.call("shell 4").finish();
    await settled();
    expect(bench.shell.started.at(-1)).toBe("shell 16");
    for (const call of bench.shell.calls) call.finish();
    expect(outline(await results)).toEqual(names);
  });

  test.each([true, false])("has room for 32 MiB of results (in parallel: %s)", async (parallel) => {
    const bench = await SessionBench.start();
    await bench.created("shell");
    const results = run(bench, waits("shell 1", "shell 2", "shell 3", "shell 4"), { parallel });
    for (const name of ["shell 1", "shell 2"]) {
      await settled();
      const content = Buffer.alloc(20 * 2 ** 20);
      bench.shell.call(name).finish({ attachments: [{ name, mediaType: "text/plain", content }] });
    }
    for (const name of ["shell 3", "shell 4"]) {
      await settled();
      if (parallel) bench.shell.call(name).finish();
    }
    const failures = (await results).map((result) => result.kind === "failure" && result.failure);
    const tooLarge = (what: string) => ({
      reason: "MESSAGE_TOO_LARGE",
      message: expect.stringContaining(what),
    });
    const rest = parallel ? false : tooLarge("did not run");
    expect(failures).toMatchObject([false, tooLarge("ran, and its code is 0"), rest, rest]);
  });

  test("holds results as long as there is memory for them", async () => {
    const bench = await SessionBench.start();
    await bench.created("shell");
    let left = 1_500;
    const take = (bytes: number) => {
      left -= bytes;
      return left >= 0;
    };
    const results = run(bench, waits("shell 1", "shell 2", "shell 3"), {}, take);
    for (const name of ["shell 1", "shell 2", "shell 3"]) {
      await settled();
      if (!bench.shell.started.includes(name)) continue;
      const content = Buffer.alloc(1_000);
      bench.shell.call(name).finish({ attachments: [{ name, mediaType: "text/plain", content }] });
    }
    const failures = (await results).map((result) => result.kind === "failure" && result.failure);
    const tooLarge = { reason: "MESSAGE_TOO_LARGE" };
    expect(failures).toMatchObject([false, tooLarge, tooLarge]);
  });

  test.each([
    ["fails", { code: TOOL_CODE.failed }],
    ["ran a program that failed", { programFailed: true }],
  ])("that stops on errors starts nothing after a call that %s", async (_, failed) => {
    const bench = await SessionBench.start();
    await bench.created("shell");
    const requests = waits("shell 1", "shell 2", "shell 3");
    const results = run(bench, requests, { stopOnError: true });
    await settled();
    bench.shell.call("shell 1").finish();
    await settled();
    bench.shell.call("shell 2").finish(failed);
    expect(outline(await results)).toEqual(["shell 1", "shell 2", "skipped"]);
    expect(bench.shell.started).toHaveLength(2);
  });

  test("that stops on errors, in parallel, lets running calls end", async () => {
    const bench = await SessionBench.start();
    await bench.create(["shell", "notebook"]);
    const many = Array.from({ length: 15 }, (_, i) => `shell ${i}`);
    const results = run(bench, waits(...many, "notebook 1", "notebook 2"), {
      parallel: true,
      stopOnError: true,
    });
    await settled();
    bench.notebook.call("notebook 1").finish({ code: TOOL_CODE.failed });
    for (const name of many) {
      await settled();
      bench.shell.call(name).finish();
    }
    expect(outline(await results)).toEqual([...many, "notebook 1", "skipped"]);
  });

  test("that does not stop on errors reports each call, also one that cannot run", async () => {
    const bench = await SessionBench.start();
    await bench.created("shell");
    const results = run(bench, [requestOf({ tool: "shell:fly" }), ...waits("shell 1")], {});
    await settled();
    bench.shell.call("shell 1").finish({ code: TOOL_CODE.failed });
    expect(await results).toMatchObject([
      { kind: "failure", failure: { reason: "TOOL_NOT_FOUND" } },
      { kind: "report", report: { code: TOOL_CODE.failed } },
    ]);
  });

  test("gives its trace to calls without one", async () => {
    const bench = await SessionBench.start();
    await bench.created("shell");
    const answer = { tool: "shell:answer" };
    const results = await run(bench, [requestOf(answer), requestOf({ ...answer, traceId: "own" })], {});
    expect(results).toMatchObject([
      { report: { meta: { traceId: "trace_batch" } } },
      { report: { meta: { traceId: "own" } } },
    ]);
  });

  test("ends with its caller", async () => {
    const bench = await SessionBench.start();
    await bench.created("shell");
    const caller = new AbortController();
    const options = { parallel: false, stopOnError: false, traceId: undefined };
    const results = runBatch(bench.tools, waits("shell 1", "shell 2"), options, anyMemory, caller.signal);
    results.catch(() => {});
    await settled();
    caller.abort();
    await expect(results).rejects.toMatchObject({ reason: "CANCELED" });
    expect(bench.shell.started).toEqual(["shell 1"]);
    expect(bench.listed).toMatchObject([{ activeCalls: 0 }]);
  });
});
