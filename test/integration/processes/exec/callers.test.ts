import { describe, expect, test } from "vitest";
import { eventually } from "../../../support/eventually.ts";
import { withTimeEnough } from "../../../support/time-enough.ts";
import { seconds } from "../../../support/wire.ts";
import { useExecBench } from "./support.ts";

const bench = useExecBench();
const { app, running } = bench;

describe("a caller that leaves", () => {
  const left = async (processId: string) =>
    eventually(async () => {
      const { process } = await app.client.call("ProcessService/GetProcess", { process_id: processId });
      return process.exit_status ?? undefined;
    });

  test("ends its command, the whole tree", async () => {
    const line = "trap '' TERM; sleep 655 & setsid sleep 655 & echo on; wait; wait";
    const execution = app.client.exec(bench.id, line);
    await execution.until("on");
    await eventually(
      async () => (await running("sleep 655")).filter((one) => one === "sleep 655").length === 2,
    );
    execution.cancel();
    expect((await left(await execution.processId)).cause).toBe("EXIT_CAUSE_CANCELED");
    expect(await running("sleep 655")).toEqual([]);
  });

  test("may come back within the grace period, and the command continues as if nothing had happened", async () => {
    const execution = app.client.exec(
      bench.id,
      "i=0; while [ $i -lt 40 ]; do echo $i; i=$((i+1)); sleep 0.05; done",
      {
        disconnect_grace: seconds(20),
      },
    );
    await execution.until("3\n");
    const processId = await execution.processId;
    const from = execution.offset("stdout");
    execution.cancel();
    await new Promise((resolve) => setTimeout(resolve, 300));
    const { stdout, gaps, exit } = await app.client.attach(processId, { stdout: from }).result;
    expect(gaps).toEqual([]);
    expect(exit).toMatchObject({ cause: "EXIT_CAUSE_EXITED", exit_code: 0 });
    const all = Buffer.concat([execution.output.stdout, stdout]).toString();
    expect(all).toBe(Array.from({ length: 40 }, (_, i) => `${i}\n`).join(""));
  });

  test("and does not come back within the grace period loses the command", async () => {
    const leave = async (grace: number) => {
      const execution = app.client.exec(bench.id, "echo on; exec sleep 666", {
        disconnect_grace: seconds(grace),
      });
      await execution.until("on");
      execution.cancel();
      const startedAt = performance.now();
      // As sleep, or still as the shell that becomes it.
      const seen = await running("sleep 666");
      const isInTime = performance.now() - startedAt < grace * 1000 - 500;
      expect((await left(await execution.processId)).cause).toBe("EXIT_CAUSE_CANCELED");
      expect(performance.now() - startedAt).toBeGreaterThan(grace * 1000 - 500);
      expect(await running("sleep 666")).toEqual([]);
      return { seen, isInTime };
    };
    // On Kubernetes it takes a second or two to list processes.
    const { seen } = await withTimeEnough(6, leave, ({ isInTime }) => isInTime);
    expect(seen).toHaveLength(1);
  });

  test("and comes back only to leave again loses the command after another grace period", async () => {
    const leave = async (grace: number) => {
      const execution = app.client.exec(bench.id, "echo on; exec sleep 677", {
        disconnect_grace: seconds(grace),
      });
      await execution.until("on");
      const processId = await execution.processId;
      execution.cancel();
      const startedAt = performance.now();
      const again = app.client.attach(processId);
      await again.until("on");
      const isInTime = performance.now() - startedAt < grace * 1000 - 500;
      await new Promise((resolve) => setTimeout(resolve, (grace + 1) * 1000));
      const seen = await running("sleep 677");
      again.cancel();
      expect((await left(processId)).cause).toBe("EXIT_CAUSE_CANCELED");
      return { seen, isInTime };
    };
    const { seen } = await withTimeEnough(2, leave, ({ isInTime }) => isInTime);
    // As sleep, or still as the shell that becomes it.
    expect(seen).toHaveLength(1);
  });

  test("leaves a detached command running, to be read from any offset, during and after", async () => {
    const execution = app.client.exec(bench.id, "echo 12345; echo err >&2; read -r x; echo $x; exit 6", {
      on_disconnect: "ON_DISCONNECT_DETACH",
      keep_stdin_open: true,
    });
    await execution.until("12345\n");
    await eventually(() => execution.offset("stderr") === 4);
    const process_id = await execution.processId;
    execution.cancel();

    const readers = [{}, { stdout: 2 }, { stdout: 6, stderr: 4 }].map((from) =>
      app.client.attach(process_id, from),
    );
    await app.client.call("ProcessService/WriteStdin", { process_id, data: Buffer.from("67\n") });
    const expected = [
      ["12345\n67\n", "err\n"],
      ["345\n67\n", "err\n"],
      ["67\n", ""],
    ];
    const during = await Promise.all(readers.map(({ result }) => result));
    expect(during.map(({ stdout, stderr }) => [stdout.toString(), stderr.toString()])).toEqual(expected);
    for (const { exit } of during) expect(exit).toMatchObject({ cause: "EXIT_CAUSE_EXITED", exit_code: 6 });

    const after = await app.client.attach(process_id, { stdout: 9, stderr: 4 }).result;
    expect([after.stdout.length, after.stderr.length]).toEqual([0, 0]);
    expect(after.exit).toEqual(during[0]?.exit);
    const { process } = await app.client.call("ProcessService/GetProcess", { process_id });
    expect(process).toMatchObject({ stdout_bytes: 9, stderr_bytes: 4, exit_status: during[0]?.exit });
  });
});
