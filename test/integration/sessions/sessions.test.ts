import { beforeAll, describe, expect, test } from "vitest";
import { useApp } from "../../support/app.ts";
import { failureOf } from "../../support/client.ts";
import { ENGINES } from "../../support/engines.ts";
import { eventually } from "../../support/eventually.ts";
import { fromStruct } from "../../support/wire-sessions.ts";
import { type BashData, Worker } from "../../support/worker.ts";

const SECOND = { seconds: 1 };

// Each test has its own worker, so they run concurrently.
describe.concurrent.each(ENGINES)("on $name", ({ settings }) => {
  const app = useApp(settings);
  let sandboxId = "";
  let serial = 0;
  /** A new worker for each test. Its sessions live in one sandbox unless the test says otherwise. */
  const newWorker = (): Worker => new Worker(app.client, `worker ${++serial}`);
  /** Live sandboxes that were created for sessions of a worker. */
  const sandboxesOf = async (worker: Worker): Promise<number> => {
    const { sandboxes } = await app.client.call("SandboxService/ListSandboxes");
    return sandboxes.filter(({ spec }) => spec?.labels?.session_id?.includes(`_${worker.id}_`)).length;
  };
  const here = () => ({ sandbox_id: sandboxId });

  beforeAll(async () => {
    sandboxId = (await app.client.createSandbox()).sandbox_id;
  });

  test("identity: one session of a type for each worker, named by type, worker and number", async () => {
    const worker = newWorker();
    const { session } = await worker.create("bash", { custom_name: "mine" }, here());
    expect(session?.name).toBe(`bash_${worker.id}_001_mine`);
    expect(session?.session_id).toMatch(/^bash_worker \d+_001_mine_[0-9a-f]{8}$/);
    expect(session).toMatchObject({
      worker_id: worker.id,
      status: "SESSION_STATUS_ACTIVE",
      sandbox_id: sandboxId,
    });
    await worker.destroy("bash");
    expect((await worker.create("bash", undefined, here())).session?.name).toBe(`bash_${worker.id}_002`);
  });

  test("explicit: creating again returns the same session, with its config", async () => {
    const worker = newWorker();
    const first = await worker.create("bash", { env: { A: "1" } }, here());
    const again = await worker.create("bash", { env: { A: "2" } }, here());
    expect(again.status).toBe("SESSION_RESULT_STATUS_EXISTS");
    expect(again.session?.session_id).toBe(first.session?.session_id);
    expect(fromStruct(again.session?.config ?? null)).toEqual({ env: { A: "1" } });
    expect((await worker.bash("echo $A")).stdout).toBe("1\n");
  });

  test("explicit: a failure is reported per type, and leaves nothing", async () => {
    const worker = newWorker();
    const { results } = await app.client.call("SessionService/CreateSessions", {
      worker_id: worker.id,
      resources: [
        { resource_type: "bash", ...here() },
        { resource_type: "hologram" },
        { resource_type: "python", sandbox_id: "sbx_none" },
        { resource_type: "files", ...here() },
      ],
    });
    expect(results.map(({ status, failure }) => [status.split("_").pop(), failure?.detail?.reason])).toEqual([
      ["CREATED", undefined],
      ["FAILED", "ERROR_REASON_INVALID_ARGUMENT"],
      ["FAILED", "ERROR_REASON_SANDBOX_NOT_FOUND"],
      ["CREATED", undefined],
    ]);
    expect((await worker.list()).map(({ resource_type }) => resource_type).sort()).toEqual(["bash", "files"]);
  });

  test("a resource that cannot be initialized leaves no session, and says why", async () => {
    const worker = newWorker();
    const { status, failure } = await worker.create("python", { env: { PATH: "/nowhere" } });
    expect(status).toBe("SESSION_RESULT_STATUS_FAILED");
    expect(failure).toMatchObject({
      message: expect.stringContaining("has no python3"),
      detail: { reason: "ERROR_REASON_SESSION_START_FAILED" },
    });
    expect(await worker.list()).toEqual([]);
    expect(await sandboxesOf(worker)).toBe(0);
  });

  test("temporary: a session for one call, removed after it, whatever the result", async () => {
    const worker = newWorker();
    const answers = [
      await worker.execute<BashData>("bash:run", { command: "pwd; x=1" }),
      await worker.execute<BashData>("bash:run", { command: "echo [$x]; false" }),
      await worker.execute<BashData>("bash:run", { command: "sleep 100", timeout: 0.2 }),
    ];
    expect(answers.map(({ data }) => data.stdout)).toEqual(["/workspace\n", "[]\n", ""]);
    expect(answers.map(({ meta }) => meta.temporary_session)).toEqual([true, true, true]);
    expect(new Set(answers.map(({ meta }) => meta.session_id)).size).toBe(3);
    expect(await worker.list()).toEqual([]);
    await eventually(async () => (await sandboxesOf(worker)) === 0);
  });

  test("temporary: concurrent calls share nothing", async () => {
    const worker = newWorker();
    const answers = await Promise.all(
      ["a", "b", "c"].map((name) =>
        worker.execute<BashData>("bash:run", { command: `touch ${name}; sleep 0.3; ls` }),
      ),
    );
    expect(answers.map(({ data }) => data.stdout)).toEqual(["a\n", "b\n", "c\n"]);
  });

  test("execute: a tool is named in full, with a dot, or by its short name, and its meta says what ran", async () => {
    const worker = newWorker();
    const { session } = await worker.create("bash", undefined, here());
    await worker.create("python", undefined, here());
    const meta = {
      tool: "run",
      full_name: "bash:run",
      resource_type: "bash",
      session_id: session?.session_id,
      temporary_session: false,
      trace_id: "my trace",
      execution_time_ms: expect.any(Number),
    };
    for (const tool of ["bash:run", "bash.run"]) {
      expect(await worker.execute(tool, { command: "true" }, { trace_id: "my trace" })).toMatchObject({
        code: 0,
        message: "success",
        meta,
      });
    }
    const bare = await worker.execute("execute", { language: "bash", code: "echo bare" });
    expect(bare).toMatchObject({ meta: { full_name: "code:execute" }, data: { stdout: "bare\n" } });
    expect(bare.meta.trace_id).not.toBe("");
  });

  test("calls on one session run one after the other, in their order", async () => {
    const worker = newWorker();
    await worker.create("bash", undefined, here());
    await worker.bash("n=0");
    const answers = await Promise.all(
      Array.from({ length: 10 }, (_, i) => worker.bash(`n=$((n+1)); sleep 0.0${i}; echo $n`)),
    );
    expect(answers.map(({ stdout }) => Number(stdout)).sort((a, b) => a - b)).toEqual(
      Array.from({ length: 10 }, (_, i) => i + 1),
    );
  });

  test("batch: serial and parallel, and no further call once one has failed", async () => {
    const worker = newWorker();
    await worker.create("bash", undefined, here());
    await worker.create("python", undefined, here());
    const batch = (calls: readonly (readonly [string, string])[], more = {}) => worker.batch(calls, more);
    expect(
      await batch([
        ["bash:run", "x=1"],
        ["bash:run", "echo $x"],
        ["python:run", "6 * 7"],
      ]),
    ).toMatchObject([{ code: 0 }, { data: { stdout: "1\n" } }, { data: { result: "42" } }]);
    expect(
      await batch([
        ["bash:run", "echo a"],
        ["bash:fly", ""],
        ["bash:run", "echo b"],
      ]),
    ).toMatchObject([
      { data: { stdout: "a\n" } },
      { reason: "ERROR_REASON_TOOL_NOT_FOUND" },
      { data: { stdout: "b\n" } },
    ]);
    for (const failing of [
      ["bash:fly", ""],
      ["bash:run", "false"],
      ["python:run", "1 / 0"],
    ] as const) {
      const results = await batch([["bash:run", "echo a"], failing, ["bash:run", "touch started"]], {
        stop_on_error: true,
      });
      expect(results.at(-1)).toBe("skipped");
    }
    expect((await worker.bash("ls started")).exit_code).not.toBe(0);
    // Each waits for the other, so they can only end if they run concurrently.
    const meet = (mine: string, other: string) =>
      `touch ${mine}; while [ ! -e ${other} ]; do sleep 0.02; done`;
    const python = "import os, time\nopen('q', 'w').close()\nwhile not os.path.exists('p'): time.sleep(0.02)";
    const met = await batch(
      [
        ["bash:run", meet("p", "q")],
        ["python:run", python],
      ],
      { parallel: true },
    );
    expect(met).toMatchObject([{ code: 0 }, { code: 0 }]);
  });

  test("time to live: every call restarts it, a failed one too, and an expired session is never used", async () => {
    const worker = newWorker();
    const { session } = await worker.create("bash", undefined, { ...here(), ttl: { seconds: 60 } });
    const expiry = async (): Promise<number> => {
      const time = (await worker.list())[0]?.expire_time;
      return (time?.seconds ?? 0) * 1000 + (time?.nanos ?? 0) / 1e6;
    };
    for (const command of ["true", "false"]) {
      const before = await expiry();
      const { meta } = await worker.execute("bash:run", { command: `sleep 0.2; ${command}` });
      expect(meta.session_id).toBe(session?.session_id);
      expect(await expiry()).toBeGreaterThan(before + 150);
    }
    const short = newWorker();
    await short.create("bash", undefined, { ...here(), ttl: SECOND });
    await eventually(async () => (await short.list()).length === 0);
    const { meta } = await short.execute("bash:run", { command: "true" });
    expect(meta.temporary_session).toBe(true);
  });

  test("time to live: a call that takes longer keeps its session", async () => {
    const worker = newWorker();
    const { session, meta, data } = await eventually(async () => {
      const { session } = await worker.create("bash", undefined, { ...here(), ttl: SECOND });
      const answer = await worker.execute<BashData>("bash:run", { command: "sleep 2.5; echo done" });
      // On a busy machine it may expire before the call.
      return !answer.meta.temporary_session && { session, ...answer };
    });
    expect(data.stdout).toBe("done\n");
    expect(meta.session_id).toBe(session?.session_id);
  });

  test("refresh: one type, or all that the worker has", async () => {
    const worker = newWorker();
    await worker.create("bash", undefined, here());
    await worker.create("files", undefined, here());
    const refresh = async (...types: string[]) => {
      const request = { worker_id: worker.id, resource_types: types };
      const { results } = await app.client.call("SessionService/RefreshSessions", request);
      return results.map(({ resource_type, status }) => [
        resource_type,
        status.replace("SESSION_RESULT_STATUS_", ""),
      ]);
    };
    expect(await refresh("bash", "python")).toEqual([
      ["bash", "REFRESHED"],
      ["python", "NOT_FOUND"],
    ]);
    expect((await refresh()).sort()).toEqual([
      ["bash", "REFRESHED"],
      ["files", "REFRESHED"],
    ]);
  });

  test("reinitialize: another session with another config, and the others untouched", async () => {
    const worker = newWorker();
    const old = (await worker.create("bash", { env: { A: "1" } }, here())).session;
    const python = (await worker.create("python", undefined, here())).session;
    const done = await worker.reinitialize("bash", { env: { A: "2" } });
    expect(done).toMatchObject({
      status: "SESSION_RESULT_STATUS_REINITIALIZED",
      old_session_id: old?.session_id,
    });
    expect(done.new_session_id).not.toBe(old?.session_id);
    expect(fromStruct(done.config_applied)).toEqual({ env: { A: "2" } });
    expect((await worker.bash("echo $A")).stdout).toBe("2\n");
    const left = await worker.list();
    expect(left.map(({ session_id }) => session_id).sort()).toEqual(
      [done.new_session_id, python?.session_id].sort(),
    );

    await expect(worker.reinitialize("bash", { env: 5 })).rejects.toThrow(/INVALID_ARGUMENT: config\.env/);
    expect((await worker.bash("echo $A")).stdout).toBe("2\n");
    const failed = await worker.reinitialize("bash", { env: { PATH: "/nowhere" } });
    expect(failed).toMatchObject({
      status: "SESSION_RESULT_STATUS_FAILED",
      new_session_id: "",
      failure: { detail: { reason: "ERROR_REASON_SESSION_START_FAILED" } },
    });
    expect((await worker.list()).map(({ resource_type }) => resource_type)).toEqual(["python"]);
  });

  test("destroy: one, several, all; a session is removed with its sandbox, and its processes with it", async () => {
    const worker = newWorker();
    const own = (await worker.create("bash")).session;
    await worker.create("python", undefined, here());
    await worker.create("files", undefined, here());
    const { data } = await worker.execute("python:run", { code: "import os; os.getpid()" });
    const status = (results: readonly { status: string }[]) =>
      results.map((result) => result.status.split("_").pop());
    expect(status(await worker.destroy("bash", "vm"))).toEqual(["DESTROYED", "FOUND"]);
    expect(await app.client.getSandbox(own?.sandbox_id ?? "")).toMatchObject({
      state: "SANDBOX_STATE_TERMINATED",
    });
    expect(status(await worker.destroy())).toEqual(["DESTROYED", "DESTROYED"]);
    expect(await worker.list()).toEqual([]);
    expect(await app.client.output(sandboxId, `ls -d /proc/${data.result} 2>/dev/null || echo gone`)).toBe(
      "gone\n",
    );
    expect(await worker.destroy()).toEqual([]);
  });

  test("destroy ends a running call, with SESSION_LOST", async () => {
    const worker = newWorker();
    await worker.create("bash", undefined, here());
    const running = worker.bash("touch /workspace/running; sleep 1000");
    running.catch(() => {});
    await eventually(async () => (await app.client.run(sandboxId, "ls running")).exit_status.exit_code === 0);
    await app.client.call("SessionService/DestroySessions", { worker_id: worker.id, grace: { seconds: 0 } });
    await expect(running).rejects.toThrow(/ABORTED: The session .* was lost: it was destroyed/);
  });

  test("a call that resists its end reports why its sandbox ended, and after which session", async () => {
    const worker = newWorker();
    const { session } = await worker.create("python", undefined, { ttl: { seconds: 600 } });
    const sandbox = { sandbox_id: session?.sandbox_id ?? "" };
    await worker.create("bash", undefined, sandbox);
    // Ending it takes longer than a delete waits.
    const stubborn = "trap '' INT TERM; touch /tmp/on; while :; do sleep 0.1; done";
    const running = failureOf(worker.bash(stubborn));
    const isOn = async () =>
      (await app.client.run(sandbox.sandbox_id, "ls /tmp/on")).exit_status.exit_code === 0;
    await eventually(isOn);
    await worker.destroy("python");
    expect(await running).toMatchObject({
      reason: "SANDBOX_DELETED",
      message: expect.stringMatching(/^The sandbox was deleted: Its session "python_.*" was destroyed\.$/),
      metadata: { cause: "DELETED" },
    });
    expect(await app.client.getSandbox(sandbox.sandbox_id)).toMatchObject({
      termination: { message: expect.stringContaining("was destroyed") },
    });
  });

  test("a session whose sandbox is deleted says so once, and is then gone", async () => {
    const worker = newWorker();
    const { session } = await worker.create("bash");
    await app.client.deleteSandbox(session?.sandbox_id ?? "");
    await expect(worker.bash("true")).rejects.toThrow(
      /ABORTED: The session .* was lost: its sandbox is gone: .*[^.]\.$/,
    );
    await eventually(async () => (await worker.list()).length === 0);
  });

  test("explicit: creating again keeps the sandbox alive too", async () => {
    const worker = newWorker();
    const { session } = await worker.create("bash");
    const id = session?.sandbox_id ?? "";
    const expiry = async (): Promise<number> => {
      const { expire_time: time } = await app.client.getSandbox(id);
      return (time?.seconds ?? 0) * 1000 + (time?.nanos ?? 0) / 1e6;
    };
    const before = await expiry();
    await new Promise((resolve) => setTimeout(resolve, 50));
    expect((await worker.create("bash")).status).toBe("SESSION_RESULT_STATUS_EXISTS");
    expect(await expiry()).toBeGreaterThanOrEqual(before + 50);
    await worker.destroy();
  });

  test("a session whose sandbox is deleted is in no list, is not refreshed, and is replaced", async () => {
    const worker = newWorker();
    const first = (await worker.create("bash")).session;
    await app.client.deleteSandbox(first?.sandbox_id ?? "");
    expect(await worker.list()).toEqual([]);
    const { results } = await app.client.call("SessionService/RefreshSessions", {
      worker_id: worker.id,
      resource_types: ["bash"],
    });
    expect(results.map(({ status }) => status)).toEqual(["SESSION_RESULT_STATUS_NOT_FOUND"]);
    const { status, session } = await worker.create("bash");
    expect(status).toBe("SESSION_RESULT_STATUS_CREATED");
    expect(session?.session_id).not.toBe(first?.session_id);
    expect((await worker.bash("echo here")).stdout).toBe("here\n");
    await worker.destroy();
  });

  test("reinitialize: a custom name in the config is the new one, and without one the old stays", async () => {
    const worker = newWorker();
    await worker.create("bash", { custom_name: "old" }, here());
    const renamed = await worker.reinitialize("bash", { custom_name: "new" });
    expect(fromStruct(renamed.config_applied)).toEqual({ custom_name: "new" });
    expect(renamed.session).toMatchObject({ custom_name: "new", name: `bash_${worker.id}_002_new` });
    const kept = await worker.reinitialize("bash", { env: { A: "1" } });
    expect(kept.session).toMatchObject({ custom_name: "new", name: `bash_${worker.id}_003_new` });
    await worker.destroy();
  });

  test("a worker's id is a name and never a path, and workers see their own sessions", async () => {
    const hostile = new Worker(app.client, "../../etc/x");
    const { session } = await hostile.create("bash", undefined, here());
    expect(session?.name).toBe("bash_../../etc/x_001");
    expect(await hostile.bash("echo ok")).toMatchObject({ stdout: "ok\n", cwd: "/workspace" });
    expect(await new Worker(app.client, "../../etc").list()).toEqual([]);
    for (const id of ["", "a\nb", "x".repeat(257)]) {
      await expect(new Worker(app.client, id).create("bash")).rejects.toThrow(/INVALID_ARGUMENT: worker_id/);
    }
  });

  test("output arrives as it is written, between started and the response", async () => {
    const worker = newWorker();
    await worker.create("bash", undefined, here());
    const items = await worker.follow(
      "bash:run",
      { command: "echo first; while [ ! -e seen ]; do sleep 0.02; done; echo last >&2" },
      async (text) => {
        if (text.includes("first")) await app.client.output(sandboxId, "touch seen");
      },
    );
    expect(items.map(({ event }) => event)).toEqual(["started", "output", "output", "response"]);
    expect(items[0]?.started?.meta).toMatchObject({ full_name: "bash:run", temporary_session: false });
    expect(items[1]?.output).toEqual({ stream: "OUTPUT_STREAM_STDOUT", data: Buffer.from("first\n") });
    expect(items[2]?.output).toEqual({ stream: "OUTPUT_STREAM_STDERR", data: Buffer.from("last\n") });
  });

  test("a request id gives the first answer again, in a stream too", async () => {
    const worker = newWorker();
    await worker.create("bash", undefined, here());
    const once = { request_id: `once ${worker.id}` };
    const params = { command: "n=$((n+1)); echo $n" };
    expect((await worker.execute("bash:run", params, once)).data).toMatchObject({ stdout: "1\n" });
    expect((await worker.execute("bash:run", params, once)).data).toMatchObject({ stdout: "1\n" });
    expect(await worker.bash("echo $n")).toMatchObject({ stdout: "1\n" });
    await expect(worker.execute("bash:run", { command: "true" }, once)).rejects.toThrow(/ALREADY_EXISTS/);
  });
});
