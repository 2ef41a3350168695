import { beforeAll, describe, expect, test } from "vitest";
import { useApp } from "../../support/app.ts";
import { ENGINES } from "../../support/engines.ts";
import { type BashData, Worker } from "../../support/worker.ts";

describe.each(ENGINES)("on $name", ({ settings }) => {
  const app = useApp(settings);
  let worker: Worker;

  beforeAll(async () => {
    worker = new Worker(app.client, "alice");
    const { status, failure } = await worker.create("bash");
    expect({ status, failure }).toEqual({ status: "SESSION_RESULT_STATUS_CREATED", failure: null });
  });

  test("directory, variables, functions and arguments stay", async () => {
    expect(await worker.bash("cd /tmp && x=1 && export Y=2 && f() { echo $x; } && set -- a b")).toMatchObject(
      {
        stdout: "",
        stderr: "",
        exit_code: 0,
        cwd: "/tmp",
      },
    );
    expect(await worker.bash("f; echo $Y $2; printenv Y; pwd; echo bad >&2; (exit 7)")).toEqual({
      stdout: "1\n2 b\n2\n/tmp\n",
      stderr: "bad\n",
      exit_code: 7,
      cwd: "/tmp",
      timed_out: false,
      truncated: false,
      session_lost: false,
      session_restarted: false,
    });
  });

  test("a timeout interrupts the command, and the shell stays", async () => {
    await worker.bash("kept=yes");
    const late = () =>
      worker.execute("bash:run", {
        command: "echo started; while :; do sleep 0.2; done; echo on",
        timeout: 0.5,
      });
    // On a busy machine, it may be stopped before it writes.
    await expect.poll(late).toMatchObject({
      code: 5006,
      data: { stdout: "started\n", timed_out: true, session_lost: false },
    });
    expect((await worker.bash("echo $kept")).stdout).toBe("yes\n");
  });

  test("a timeout interrupts the command, and the shell stays, also if nobody reads the output", async () => {
    await worker.bash("kept=here");
    let next: Promise<BashData> | undefined;
    const command = "yes 'some text that is long enough to fill what waits for the reader'";
    const items = await worker.follow("bash:run", { command, timeout: 1 }, async () => {
      // Reads no more until the next call has had its turn.
      next ??= worker.bash("echo $kept");
      await next;
    });
    expect(items.at(-1)?.response).toMatchObject({ code: 5006 });
    expect(await next).toMatchObject({ stdout: "here\n", session_restarted: false });
  });

  test("late output of one command never appears in the next", async () => {
    await worker.bash("(while :; do echo late; echo late >&2; sleep 0.01; done) & pid=$!");
    for (let i = 0; i < 5; i++) {
      expect(await worker.bash(`echo ${i}; sleep 0.05`)).toMatchObject({ stdout: `${i}\n`, stderr: "" });
    }
    await worker.bash("kill $pid; wait $pid");
  });

  test("however many jobs are left running, the next call runs, and can end them", async () => {
    const busy = new Worker(app.client, "busy");
    expect((await busy.create("bash")).failure).toBeNull();
    // Most only wait; some write forever.
    for (let i = 0; i < 18; i++) {
      const job = i % 4 === 0 ? "while :; do echo late; sleep 0.05; done" : "exec sleep 1000";
      await expect(busy.bash(`(${job}) &`)).resolves.toMatchObject({ exit_code: 0, session_lost: false });
      if (i > 14) {
        await expect(busy.bash(`echo ${i}`)).resolves.toMatchObject({ stdout: `${i}\n`, stderr: "" });
      }
    }
    expect(await busy.bash("kill $(jobs -p); wait; echo ended; jobs -p")).toMatchObject({
      stdout: "ended\n",
      session_lost: false,
    });
    // The channels that they held are used again.
    for (let i = 0; i < 3; i++) expect((await busy.bash(`echo ${i}`)).stdout).toBe(`${i}\n`);
    await busy.destroy();
  });

  test("exit ends the shell with a status, and the next call gets a new one", async () => {
    expect(await worker.bash("lost=1; echo out; exit 3")).toMatchObject({
      stdout: "out\n",
      exit_code: 3,
      session_lost: true,
    });
    expect(await worker.bash('echo "[$lost]"')).toMatchObject({ stdout: "[]\n", session_restarted: true });
    expect(await worker.bash("echo ok")).toMatchObject({ stdout: "ok\n", session_restarted: false });
  });

  test("exit ends the shell with a status also while a leftover process writes to its output", async () => {
    const leaver = new Worker(app.client, "leaver");
    await leaver.create("bash");
    await leaver.bash("yes late & yes late >&2 &");
    for (let i = 0; i < 3; i++) expect((await leaver.bash(`echo ${i}`)).stdout).toBe(`${i}\n`);
    expect(await leaver.bash("echo out; exit 3")).toMatchObject({ stdout: "out\n", exit_code: 3 });
    await leaver.destroy();
  });
});
