import { readdir, readlink } from "node:fs/promises";
import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, beforeAll, expect, test } from "vitest";
import { Client } from "../../support/client.ts";
import { containersOf, processesOf } from "../../support/docker.ts";
import { eventually } from "../../support/eventually.ts";
import { MeasuredService, memoryOf } from "../../support/memory.ts";
import type { ServeProcess } from "../../support/program.ts";
import { scaled } from "../../support/scale.ts";

const MB = 1_000_000;
const ROUNDS = scaled(30, 4);
/** After these rounds, code is compiled and caches are filled. */
const FIRST_ROUNDS = 3;
const AT_ONCE = 8;
/** Connections to the daemon that are kept for the next call. */
const IDLE_CONNECTIONS = 4;
/** What the ended processes of a round, about fifty, may keep: their records, and up to 8 KiB of output each. */
const ALLOWED_A_ROUND = 0.25 * MB;
/** Other things that may be created once: compiled code, caches. */
const ALLOWED_ONCE = 4 * MB;
/** How much the resident memory of the service at rest may grow. */
const RESIDENT_ALLOWED = 30 * MB;
/** How long a service without calls takes to return freed memory to the system. */
const REST_MS = 10_000;
/** A single command that kept it would be noticed. */
const STDIN = Buffer.alloc(2 * MB);
/**
 * The processes of an idle sandbox: its init, the one that waits for its end, the one that starts its shells, and one
 * shell.
 */
const FIRST_PROCESSES = 5;
/** Lanes and shells for stdin that one sandbox may have. */
const MAX_SHELLS = 17;
/** Each has a process that waits for it. */
const PROCESSES_PER_SHELL = 2;
const STREAMS_PER_SHELL = 3;
/** The pipe through which a sandbox reports the start of a shell. */
const ANSWERS = 1;
/** How long an unused shell is kept, plus a margin. */
const SHELLS_GO_MS = 120_000;

let measured: MeasuredService;
let service: ServeProcess;
let client: Client;
/** A sandbox that is used all the time, besides those that come and go. */
let sandboxId = "";

beforeAll(async () => {
  measured = await MeasuredService.start();
  service = measured.process;
  client = new Client(service.address);
  sandboxId = (await client.createSandbox()).sandbox_id;
});

afterAll(async () => {
  client.close();
  try {
    expect((await service.stop()).exitCode).toBe(0);
  } finally {
    await service.dispose();
  }
  expect(await containersOf(service.instance)).toEqual([]);
});

/** Does everything that uses a shell, a descriptor, a timer or a file of the service, in a sandbox. */
async function useAll(id: string): Promise<void> {
  const timeout = { nanos: 100_000_000 };
  const calls = Array.from({ length: AT_ONCE }, (_, i) => [
    client.exec(id, `head -c ${i * 300_000} /dev/zero; exit ${i}`).result,
    client.exec(id, "wc -c", { stdin: STDIN }).result,
  ]);
  await Promise.all(calls.flat());
  await client.exec(id, "sleep 600", { timeout }).result;
  await client.exec(id, "(sleep 0.3; echo late) & kill -9 $PPID").result;
  await client.exec(id, "tty; exit", { terminal: { columns: 80, rows: 24 } }).result;
  await client.exec(id, "id", { user: "1000:1000" }).result;

  const canceled = client.exec(id, "echo on; sleep 600");
  await canceled.until("on");
  canceled.cancel();

  const detached = client.exec(id, "echo on; read -r x; exit 3", {
    on_disconnect: "ON_DISCONNECT_DETACH",
    keep_stdin_open: true,
  });
  const process_id = await detached.processId;
  detached.cancel();
  const followers = [0, 1, 2].map(() => client.attach(process_id));
  await client.call("ProcessService/WriteStdin", { process_id, data: Buffer.from("\n") });
  await Promise.all(followers.map(({ result }) => result));

  const file = { sandbox_id: id, path: "/tmp/file" };
  await client.upload("FileService/UploadFile", [{ header: file }, { chunk: Buffer.alloc(500_000) }]);
  for await (const _ of client.stream("FileService/DownloadFile", file));
  const broken = client.stream("FileService/DownloadFile", file);
  broken.on("error", () => {});
  broken.cancel();
}

/** What the service holds. The pipes of the sandbox's shells, which vary with its use, are counted separately. */
interface Held {
  readonly descriptors: number;
  readonly pipes: number;
  readonly processes: number;
}

async function held(): Promise<Held> {
  const directory = `/proc/${service.pid}/fd`;
  const targets = await Promise.all(
    // The descriptor that reads the directory is gone by then.
    (await readdir(directory)).map((fd) => readlink(`${directory}/${fd}`).catch(() => undefined)),
  );
  const open = targets.filter((target) => target !== undefined);
  const pipes = open.filter((target) => target.includes(`/pipes/berth-${sandboxId}`)).length;
  const processes = (await processesOf(service.instance, sandboxId)).length;
  return { descriptors: open.length - pipes, pipes, processes };
}

async function round(): Promise<void> {
  const { sandbox_id: passing } = await client.createSandbox();
  await Promise.all([useAll(sandboxId), useAll(passing)]);
  await client.deleteSandbox(passing);
  await eventually(async () => (await client.getSandbox(sandboxId)).active_operations === 0);
}

test("after much use descriptors, processes and memory are back at what they were after little", {
  timeout: 1_800_000,
}, async () => {
  await round();
  const before = await held();
  for (let i = 1; i < FIRST_ROUNDS; i++) await round();
  await sleep(REST_MS);
  const memoryBefore = { live: await measured.live(), resident: await memoryOf(service.pid) };
  for (let i = 0; i < ROUNDS; i++) await round();
  const back = async (shells: number, timeoutMs: number): Promise<void> => {
    let after = before;
    await eventually(
      async () => {
        after = await held();
        return (
          after.descriptors <= before.descriptors + IDLE_CONNECTIONS &&
          after.pipes <= ANSWERS + shells * STREAMS_PER_SHELL &&
          after.processes <= FIRST_PROCESSES + (shells - 1) * PROCESSES_PER_SHELL
        );
      },
      { timeoutMs, describe: () => ({ before, after }) },
    );
  };
  await back(MAX_SHELLS, SHELLS_GO_MS);
  expect((await measured.live()) - memoryBefore.live).toBeLessThan(ALLOWED_ONCE + ROUNDS * ALLOWED_A_ROUND);
  // Freed memory is returned to the system when the service has been idle for some seconds.
  const grown = async (): Promise<number> => (await memoryOf(service.pid)) - memoryBefore.resident;
  await eventually(async () => (await grown()) < RESIDENT_ALLOWED, { describe: grown });
  // It takes a minute until the shells are gone too.
  await back(scaled(1, MAX_SHELLS), SHELLS_GO_MS);
});
