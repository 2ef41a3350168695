import { setTimeout as sleep } from "node:timers/promises";
import { describe, expect, test } from "vitest";
import { useApp } from "../../support/app.ts";
import { Client } from "../../support/client.ts";
import { CuttableLink } from "../../support/cuttable-link.ts";
import { ENGINES } from "../../support/engines.ts";
import { eventually } from "../../support/eventually.ts";
import { RunDriver } from "../../support/run-driver.ts";
import { seconds } from "../../support/wire.ts";
import { toStruct } from "../../support/wire-sessions.ts";
import { type BashData, toolAnswer, Worker } from "../../support/worker.ts";

/** Records on disk that it runs, then waits for a file to continue. */
const GATED = "echo x >>/workspace/runs; while [ ! -e /workspace/go ]; do sleep 0.05; done; echo done";

describe.each(ENGINES)("on $name", ({ settings }) => {
  const app = useApp(settings);

  async function newSandbox(): Promise<string> {
    return (await app.client.createSandbox()).sandbox_id;
  }

  /** Makes a call over a connection that breaks once the call has started, and gives the service time to notice. */
  async function loseCaller(call: (far: Client) => Promise<unknown>, begun: () => Promise<unknown>) {
    const link = await CuttableLink.to(app.app.address);
    const far = new Client(link.address);
    const lost = call(far).catch(() => {});
    await eventually(begun);
    link.cut();
    await lost;
    far.close();
    await sleep(200);
  }

  const runsIn = async (id: string): Promise<string> =>
    app.client.output(id, "cat /workspace/runs 2>/dev/null || :");
  const hasRun = (id: string) => async (): Promise<boolean> => (await runsIn(id)) !== "";

  test("a command started with a request id runs once, and a retry gets its result", async () => {
    const id = await newSandbox();
    const run = (client: Client) => client.run(id, GATED, { request_id: "run" });
    await loseCaller(run, hasRun(id));
    const again = run(app.client);
    await app.client.output(id, "touch /workspace/go");
    const answer = await again;
    expect(answer).toMatchObject({ exit_status: { cause: "EXIT_CAUSE_EXITED", exit_code: 0 } });
    expect(answer.stdout.toString()).toBe("done\n");
    // Also after its end, and whatever happened to the first retry.
    expect(await run(app.client)).toEqual(answer);
    expect(await runsIn(id)).toBe("x\n");
  });

  test("a command without a request id ends with its caller", async () => {
    const id = await newSandbox();
    await loseCaller((client) => client.run(id, GATED), hasRun(id));
    const ended = await eventually(async () => {
      const { processes } = await app.client.call("ProcessService/ListProcesses", {
        sandbox_id: id,
        show_ended: true,
      });
      return processes.find(({ exit_status: exit }) => exit?.cause === "EXIT_CAUSE_CANCELED");
    });
    expect(ended).toBeDefined();
  });

  test("a tool called with a request id runs once, and a retry gets its answer", async () => {
    const id = await newSandbox();
    const name = "lost";
    const worker = new Worker(app.client, name);
    expect((await worker.create("bash", undefined, { sandbox_id: id })).failure).toBeNull();
    const more = { request_id: "tool" };
    const run = (by: Worker) => by.bash(GATED, more);
    await loseCaller((client) => run(new Worker(client, name)), hasRun(id));
    const again = run(worker);
    await app.client.output(id, "touch /workspace/go");
    expect(await again).toMatchObject({ stdout: "done\n", exit_code: 0, session_restarted: false });
    expect(await runsIn(id)).toBe("x\n");
    await worker.destroy();
  });

  test("a tool's stream and a batch with a request id run once too", async () => {
    const id = await newSandbox();
    const name = "streaming";
    const worker = new Worker(app.client, name);
    await worker.create("bash", undefined, { sandbox_id: id });
    const request = {
      worker_id: name,
      request_id: "s",
      tool: "bash:run",
      params: toStruct({ command: GATED }),
    };
    const follow = async (client: Client) => {
      for await (const { response } of client.stream("SessionService/ExecuteToolStream", request)) {
        if (response) return toolAnswer<BashData>(response).data;
      }
      throw new Error("there is no response");
    };
    await loseCaller(follow, hasRun(id));
    const again = follow(app.client);
    await app.client.output(id, "touch /workspace/go");
    expect(await again).toMatchObject({ stdout: "done\n", exit_code: 0 });

    await app.client.output(id, "rm /workspace/go /workspace/runs");
    const batch = (client: Client) =>
      new Worker(client, name).batch(
        [
          ["bash:run", GATED],
          ["bash:run", "echo next"],
        ],
        { request_id: "b" },
      );
    await loseCaller(batch, hasRun(id));
    const both = batch(app.client);
    await app.client.output(id, "touch /workspace/go");
    expect(await both).toMatchObject([{ data: { stdout: "done\n" } }, { data: { stdout: "next\n" } }]);
    expect(await runsIn(id)).toBe("x\n");
    await worker.destroy();
  });

  test("a session requested with a request id is created, and a retry gets it as created", async () => {
    const id = await newSandbox();
    const slow =
      "mkdir -p slow; printf '#!/bin/sh\\necho x >>/workspace/runs; while [ ! -e /workspace/go ]; do sleep 0.05; done; exec /bin/bash \"$@\"\\n' > slow/bash; chmod +x slow/bash";
    await app.client.output(id, slow);
    const create = (client: Client) =>
      new Worker(client, "slow").create(
        "bash",
        { env: { PATH: "/workspace/slow:/usr/bin:/bin" } },
        { sandbox_id: id },
        { request_id: "create" },
      );
    await loseCaller(create, hasRun(id));
    const again = create(app.client);
    await app.client.output(id, "touch /workspace/go");
    expect((await again).status).toBe("SESSION_RESULT_STATUS_CREATED");
    expect(await runsIn(id)).toBe("x\n");
    await new Worker(app.client, "slow").destroy();
  });

  test("a report with a request id counts once, and a retry gets its result", async () => {
    const id = await newSandbox();
    const run = await RunDriver.start(app.client, {
      sandbox_id: id,
      on_end: "RUN_ON_END_KEEP",
      step_timeout: seconds(60),
    });
    // The cleanup waits for it.
    const stubborn = app.client.exec(id, "trap '' TERM; echo on; while :; do sleep 0.1; done", {
      run_id: run.runId,
    });
    stubborn.result.catch(() => {});
    await stubborn.until("on");
    const report = (client: Client) =>
      client.call("RunService/ReportStep", {
        request_id: "report",
        run_id: run.runId,
        step: 1,
        result: "all done",
        outcome: "STEP_OUTCOME_FINISHED",
      });
    await loseCaller(report, async () => (await run.get()).state === "RUN_STATE_FINISHED");
    const answer = await report(app.client);
    expect(answer.run_end).toMatchObject({ outcome: "RUN_OUTCOME_FINISHED", summary: "Step 1: all done" });
    expect(await report(app.client)).toEqual(answer);
  });
});
