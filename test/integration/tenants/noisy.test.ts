import { afterAll, beforeAll, expect, test } from "vitest";
import { startTestApp, type TestApp } from "../../support/app.ts";
import type { Client } from "../../support/client.ts";
import { eventually } from "../../support/eventually.ts";
import { clientWith, TokensFile } from "../../support/tokens.ts";

const file = new TokensFile();
let running: TestApp;
let clients: Client[] = [];
beforeAll(async () => {
  const tokens = [await file.add("loud"), await file.add("calm")];
  running = await startTestApp({ tokens: file.path, tenantQuota: { cpuMillis: 1000 } });
  clients = tokens.map((token) => clientWith(running.app.address, token));
}, 60_000);
afterAll(async () => {
  for (const client of clients) client.close();
  await running?.stop();
}, 60_000);

const MIB = 1024 * 1024;
/** All five fit the tenant's quota of one CPU: without a quota, enough sandboxes of one tenant take every CPU. */
const LIMITS = { memory_bytes: 128 * MIB, cpu_millis: 200, pids_limit: 64 };
/** The memory and processes that the kernel allows the sandbox, under either version of control groups. */
const BOUNDS =
  "cd /sys/fs/cgroup; cat memory.max memory/memory.limit_in_bytes pids.max pids/pids.max 2>/dev/null; df -Pk /dev/shm | tail -n 1";

/** Each is bounded by its sandbox; the disk that is filled is one in memory. */
const NOISES: Readonly<Record<string, string>> = {
  forks: "exec perl -e 'while (1) { defined fork or select(undef, undef, undef, 0.001); }'",
  memory: "while :; do head -c 1000000000 /dev/zero | tail -n 1 >/dev/null; done",
  disk: "while :; do head -c 1000000000 /dev/zero >/dev/shm/full; done",
  output: "yes",
  spin: "while :; do :; done",
};

/** Runs short commands, which must all succeed. The 99th percentile is shown, not judged: it depends on the machine's load. In milliseconds. */
async function p99(client: Client, sandboxId: string): Promise<number> {
  const took: number[] = [];
  for (let i = 0; i < 100; i++) {
    const start = performance.now();
    expect(await client.output(sandboxId, "echo fine")).toBe("fine\n");
    took.push(performance.now() - start);
  }
  return took.sort((a, b) => a - b)[98] ?? Number.NaN;
}

test("five sandboxes exhaust what they have: another tenant's commands all succeed, and the five go when deleted", {
  timeout: 120_000,
}, async () => {
  const [loud, calm] = clients as [Client, Client];
  const { sandbox_id: quietId } = await calm.createSandbox();
  const quiet = await p99(calm, quietId);
  const ids: string[] = [];
  for (const _ of Object.keys(NOISES)) ids.push((await loud.createSandbox({ resources: LIMITS })).sandbox_id);
  for (const id of ids) {
    const [memory, pids, disk = ""] = (await loud.output(id, BOUNDS)).trim().split("\n");
    expect([Number(memory), Number(pids)]).toEqual([LIMITS.memory_bytes, LIMITS.pids_limit]);
    expect(Number(disk.split(/ +/)[1])).toBeLessThanOrEqual((128 * MIB) / 1024);
  }
  const noises = Object.values(NOISES).map(async (command, i) => {
    const execution = loud.exec(ids[i] ?? "", command, { on_disconnect: "ON_DISCONNECT_DETACH" });
    const processId = await execution.processId;
    // Nobody reads the flood: the service keeps what its bounds allow.
    execution.call.cancel();
    return processId;
  });
  const processIds = await Promise.all(noises);
  const disturbed = await p99(calm, quietId);
  for (const process_id of processIds) {
    const { process } = await loud.call("ProcessService/GetProcess", { process_id });
    expect(process.exit_status ?? undefined).toBeUndefined();
  }
  const start = performance.now();
  await Promise.all(
    ids.map((sandbox_id) => loud.call("SandboxService/DeleteSandbox", { sandbox_id, grace: { seconds: 0 } })),
  );
  await eventually(async () => (await loud.call("SandboxService/GetStats")).total_sandboxes === 0);
  expect(performance.now() - start).toBeLessThan(10_000);
  expect(await calm.output(quietId, "echo fine")).toBe("fine\n");
  console.info(
    `p99 of another tenant's command: quiet ${quiet.toFixed(1)} ms, disturbed ${disturbed.toFixed(1)} ms`,
  );
});
