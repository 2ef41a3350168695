import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { Berth } from "../../../clients/typescript/src/node.ts";
import { expectNoContainers } from "../../support/app.ts";
import { Client, failureOf } from "../../support/client.ts";
import { containerOf, processesIn, rawExec } from "../../support/docker.ts";
import { eventually } from "../../support/eventually.ts";
import { ServeProcess } from "../../support/program.ts";
import { ownLoopback } from "../../support/settings.ts";
import { SHELL_IMAGES } from "../../support/shell-images.ts";
import { untilStored } from "../../support/stored-processes.ts";

const SOON = { timeoutMs: 60_000 };
const DETACHED = { on_disconnect: "ON_DISCONNECT_DETACH" };
/** Ways to start a command, each in another kind of shell. */
const WAYS = {
  "in a lane": {},
  "with stdin": { keep_stdin_open: true },
  "as another user": { user: "1000:1000" },
  "at a terminal": { terminal: { columns: 80, rows: 24 } },
};

let service: ServeProcess;
let client: Client;

async function begin(args: readonly string[] = []): Promise<void> {
  service = await ServeProcess.start(["--listen", `${ownLoopback()}:0`, ...args]);
  client = new Client(service.address);
}

async function kill(signal: NodeJS.Signals = "SIGKILL"): Promise<void> {
  client.close();
  await service.stop(signal);
}

/** At the same address. */
async function again(args: readonly string[] = []): Promise<void> {
  service = await service.again(["--listen", service.address, ...args]);
  client = new Client(service.address);
}

async function end(): Promise<void> {
  client.close();
  await service.stop();
  await expectNoContainers(service.instance);
}

async function statusOf(id: string) {
  return (await client.call("ProcessService/GetProcess", { process_id: id })).process.exit_status;
}

function endOf(id: string) {
  return eventually(async () => (await statusOf(id)) ?? undefined, SOON);
}

/** Starts a command in each way. Each waits for a file. */
async function startGated(
  sandboxId: string,
  gate: string,
  then: string,
  more: object = {},
): Promise<readonly string[]> {
  const ids: string[] = [];
  for (const way of Object.values(WAYS)) {
    const line = `echo on; while [ ! -e ${gate} ]; do sleep 0.2; done; echo late; ${then}`;
    const execution = client.exec(sandboxId, line, { ...DETACHED, ...way, ...more });
    await execution.until("on");
    ids.push(await execution.processId);
  }
  await untilStored(service.dataDir, ids, "on\n".length);
  return ids;
}

describe("after a kill", () => {
  // The service that recovers is the next one that is killed.
  beforeAll(() => begin());
  afterAll(end);

  describe.each(SHELL_IMAGES)("what a service finds after it was killed, with %s", (_, image) => {
    let id = "";
    beforeAll(async () => {
      ({ sandbox_id: id } = await client.createSandbox({ image }));
    });
    afterAll(() => client.deleteSandbox(id));

    test("a command that ended meanwhile has its exit code and its output", async () => {
      const ids = await startGated(id, "/tmp/ended", "exit 7");
      // Its caller goes away with the service. But it had ended before, and that is reported.
      const attended = await startGated(id, "/tmp/ended", "exit 8", { on_disconnect: "ON_DISCONNECT_KILL" });
      const container = await containerOf(service.instance, id);
      await kill();
      await rawExec(container, ["touch", "/tmp/ended"]);
      const runs = (line: string): boolean => line.startsWith("/bin/sh -c echo on");
      await eventually(async () => !(await processesIn(container)).some(runs), SOON);
      await again();
      for (const [name, i] of Object.keys(WAYS).map((name, i) => [name, i] as const)) {
        expect(await endOf(ids[i] ?? ""), name).toMatchObject({ cause: "EXIT_CAUSE_EXITED", exit_code: 7 });
        expect(await endOf(attended[i] ?? ""), name).toMatchObject({
          cause: "EXIT_CAUSE_EXITED",
          exit_code: 8,
        });
        if (name === "at a terminal") continue;
        const { stdout, exit } = await client.attach(ids[i] ?? "").result;
        expect(stdout.toString(), name).toBe("on\nlate\n");
        expect(exit, name).toMatchObject({ exit_code: 7, stdout_bytes: 8 });
        expect(exit.message).toContain("restarted while it ran");
      }
    });

    test("a command that ends later is followed to its end", async () => {
      const ids = await startGated(id, "/tmp/later", "exit 7");
      const container = await containerOf(service.instance, id);
      await kill();
      await again();
      const following = client.attach(ids[0] ?? "");
      await following.until("on");
      // Once more: what was found is found again.
      await kill();
      await again();
      for (const one of ids) expect(await statusOf(one)).toBeNull();
      await client.output(id, "touch /tmp/later");
      for (const one of ids)
        expect(await endOf(one)).toMatchObject({ cause: "EXIT_CAUSE_EXITED", exit_code: 7 });
      expect((await client.attach(ids[0] ?? "").result).stdout.toString()).toBe("on\nlate\n");
      // No shell that ran them is left.
      await eventually(
        async () => !(await processesIn(container)).some((line) => line.includes("/tmp/later")),
        SOON,
      );
    });

    test("a command that was ended by a signal, before or after, reports which", async () => {
      const container = await containerOf(service.instance, id);
      const start = async (seconds: string): Promise<readonly string[]> => {
        const ids: string[] = [];
        for (const way of Object.values(WAYS)) {
          const execution = client.exec(id, ["sleep", seconds], { ...DETACHED, ...way });
          ids.push(await execution.processId);
        }
        return ids;
      };
      const before = await start("4811");
      const after = await start("4812");
      const shells = await start("4813");
      // A start is reported before the program has replaced the shell.
      const sleeps = async () =>
        (await processesIn(container)).filter((line) => line.startsWith("sleep 481"));
      await eventually(async () => (await sleeps()).length === 3 * before.length, SOON);
      await untilStored(service.dataDir, [...before, ...after, ...shells], 0);
      await kill();
      const find =
        'for p in /proc/[0-9]*; do case "$(tr "\\0" " " <$p/cmdline)" in "sleep 4811 ") kill -9 ${p#/proc/};; esac; done 2>/dev/null';
      await rawExec(container, ["/bin/sh", "-c", find]);
      await again();
      for (const one of before) {
        expect(await endOf(one)).toMatchObject({ cause: "EXIT_CAUSE_SIGNALED", exit_code: 137, signal: 9 });
      }
      for (const one of after) {
        await client.call("ProcessService/SignalProcess", { process_id: one, signal: 15 });
        expect(await endOf(one)).toMatchObject({ cause: "EXIT_CAUSE_SIGNALED", exit_code: 143, signal: 15 });
      }
      // Together with its shell, which then reports nothing.
      for (const one of shells) {
        await client.call("ProcessService/SignalProcess", { process_id: one, signal: 9 });
        expect(await endOf(one)).toMatchObject({ cause: "EXIT_CAUSE_SIGNALED", exit_code: 137, signal: 9 });
      }
    });
  });

  test("an out-of-memory kill before the restart is not blamed for a kill by a signal after it", async () => {
    const { sandbox_id: id } = await client.createSandbox({ resources: { memory_bytes: 64 << 20 } });
    const greedy = await client.exec(id, ["python3", "-c", "bytearray(300 << 20)"]).result;
    expect(greedy.exit.cause).toBe("EXIT_CAUSE_OUT_OF_MEMORY");
    const execution = client.exec(id, "echo on; exec sleep 4814", DETACHED);
    await execution.until("on");
    const processId = await execution.processId;
    await untilStored(service.dataDir, [processId], "on\n".length);
    await kill();
    await again();
    await client.call("ProcessService/SignalProcess", { process_id: processId, signal: 9 });
    expect(await endOf(processId)).toMatchObject({ cause: "EXIT_CAUSE_SIGNALED", signal: 9 });
    await client.deleteSandbox(id);
  });

  test("input that a command did not get before the service was killed is reported", async () => {
    const { sandbox_id: id } = await client.createSandbox();
    const line = "echo on; while [ ! -e /tmp/go ]; do sleep 0.05; done; wc -c";
    // More than a pipe and the service's pieces hold.
    const stdin = Buffer.alloc(1_500_000);
    const carried = client.exec(id, line, { ...DETACHED, stdin });
    const open = client.exec(id, line, { ...DETACHED, keep_stdin_open: true });
    await using berth = Berth.connect(service.address, { retryForMs: 60_000 });
    const sandbox = await berth.sandboxes.get(id);
    const run = sandbox.exec(line, { stdin: Buffer.alloc(5_000_000), reconnectMs: 60_000 });
    expect(await run.read()).toMatchObject({ text: "on\n" });
    for (const one of [carried, open]) await one.until("on");
    const ids = [await carried.processId, await open.processId, run.processId];
    await client.call("ProcessService/WriteStdin", { process_id: ids[1], data: Buffer.from("12345") });
    await untilStored(service.dataDir, ids, "on\n".length);
    await kill();
    await again();
    const write = { process_id: ids[1], offset: 7, data: Buffer.from("8") };
    expect(await failureOf(client.call("ProcessService/WriteStdin", write))).toMatchObject({
      reason: "STDIN_LOST",
    });
    await expect(run.result()).rejects.toMatchObject({ reason: "STDIN_LOST" });
    await client.output(id, "touch /tmp/go");
    const { message } = await endOf(ids[0] ?? "");
    const count = Number((await client.attach(ids[0] ?? "").result).stdout.toString().split("\n")[1]);
    expect(count).toBeLessThan(stdin.length);
    const passed = Number(/input after its first (\d+) bytes/.exec(message)?.[1]);
    expect(passed).toBeLessThanOrEqual(count);
    await client.deleteSandbox(id);
  });
});

describe("of a service of its own", () => {
  afterEach(end);

  test("a command that a service left running as it stopped is found in the same way", async () => {
    await begin(["--leave-sandboxes"]);
    const { sandbox_id: id } = await client.createSandbox();
    const ids = await startGated(id, "/tmp/go", "exit 7");
    const container = await containerOf(service.instance, id);
    await kill("SIGTERM");
    await rawExec(container, ["touch", "/tmp/go"]);
    await again();
    for (const one of ids)
      expect(await endOf(one)).toMatchObject({ cause: "EXIT_CAUSE_EXITED", exit_code: 7 });
    expect((await client.attach(ids[0] ?? "").result).stdout.toString()).toBe("on\nlate\n");
    await client.deleteSandbox(id);
  });

  test("a loss is reported: on bubblewrap, commands end with the service that was killed", async () => {
    await begin(["--engine", "bubblewrap"]);
    const { sandbox_id: id } = await client.createSandbox();
    const execution = client.exec(id, "echo on; sleep 1000", DETACHED);
    await execution.until("on");
    const processId = await execution.processId;
    await untilStored(service.dataDir, [processId], "on\n".length);
    await kill();
    await again(["--engine", "bubblewrap"]);
    expect(await endOf(processId)).toMatchObject({ cause: "EXIT_CAUSE_ENGINE_LOST", exit_code: -1 });
    expect((await client.attach(processId).result).stdout.toString()).toBe("on\n");
  });
});
