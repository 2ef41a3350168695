import { createHash } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { expectNoContainers } from "../../support/app.ts";
import { Client } from "../../support/client.ts";
import { containerOf, processesIn } from "../../support/docker.ts";
import { eventually } from "../../support/eventually.ts";
import { memoryOf, watchMemory } from "../../support/memory.ts";
import { ServeProcess } from "../../support/program.ts";
import { scaled } from "../../support/scale.ts";
import type { ProcessEvent } from "../../support/wire.ts";

const MB = 1_000_000;
/** How long a slow reader is observed. */
const SLOW_MS = scaled(10_000, 4_000);
const BLOCK_BYTES = 1 * MB;
const BLOCKS = 200;
const TOTAL_BYTES = BLOCKS * BLOCK_BYTES;
/** How far a process may be ahead of its reader, as set in the tests. */
const WINDOW_BYTES = 64 * 1024 * 1024;
/** How much memory the service may use beyond its idle memory. */
const MEMORY_ALLOWED = 150 * MB;

/** Writes BLOCKS blocks of SHAKE-256 output: random bytes that both ends can generate from the same seed. */
const GENERATOR = `import hashlib, sys
for i in range(${BLOCKS}):
    sys.stdout.buffer.write(hashlib.shake_256(b"berth %d" % i).digest(${BLOCK_BYTES}))
sys.stdout.buffer.flush()`;

describe("200 MB of output", () => {
  let service: ServeProcess;
  let client: Client;
  let sandboxId = "";
  let idleBytes = 0;

  beforeAll(async () => {
    service = await ServeProcess.start();
    client = new Client(service.address);
    ({ sandbox_id: sandboxId } = await client.createSandbox());
    await client.output(sandboxId, "true");
    idleBytes = await memoryOf(service.pid);
  });
  afterAll(async () => {
    client.close();
    try {
      expect((await service.stop()).exitCode).toBe(0);
    } finally {
      await service.dispose();
    }
    await expectNoContainers(service.instance);
  });

  test("arrives byte for byte, in little memory", async () => {
    const stopWatch = watchMemory(service.pid);
    const hash = createHash("sha256");
    let received = 0;
    let exited: ProcessEvent["exited"];
    for await (const item of run()) {
      if (item.output !== undefined) {
        expect(item.output.offset).toBe(received);
        received += item.output.data.length;
        hash.update(item.output.data);
      }
      exited ??= item.exited;
    }
    const most = await stopWatch();

    expect(exited).toMatchObject({ cause: "EXIT_CAUSE_EXITED", exit_code: 0, stdout_bytes: TOTAL_BYTES });
    expect(received).toBe(TOTAL_BYTES);
    expect(hash.digest("hex")).toBe(expectedHash());
    expect(most - idleBytes).toBeLessThan(MEMORY_ALLOWED);
  });

  test("makes its process wait, in little memory, while its reader takes 1 MB/s", async () => {
    const stopWatch = watchMemory(service.pid);
    const call = run();
    const startedAt = performance.now();
    let processId = "";
    let received = 0;
    const ahead: number[] = [];
    let elapsedMs = 0;
    for await (const item of call) {
      if (item.started !== undefined) processId = item.started.process_id;
      received += item.output?.data.length ?? 0;
      const { process } = await client.call("ProcessService/GetProcess", { process_id: processId });
      ahead.push(process.stdout_bytes - received);
      elapsedMs = performance.now() - startedAt;
      // On a busy machine it may take longer until it has read enough.
      if (elapsedMs > SLOW_MS && received > (SLOW_MS / 2000) * MB) break;
      await sleep(Math.max(0, (received / MB) * 1000 - elapsedMs));
    }
    const most = await stopWatch();

    // It reads 1 MB per second, plus what arrives with the piece that makes it wait.
    expect(received).toBeLessThan((elapsedMs / 1000 + 10) * MB);
    // It is ahead by the transcript's window, and by what is in transit in sockets and pipes.
    expect(Math.max(...ahead)).toBeLessThan(WINDOW_BYTES + 8 * MB);
    expect(most - idleBytes).toBeLessThan(MEMORY_ALLOWED);

    const container = await containerOf(service.instance, sandboxId);
    expect(await processesIn(container)).toContainEqual(expect.stringContaining("shake_256"));
    call.cancel();
    const gone = await eventually(async () => {
      const { process } = await client.call("ProcessService/GetProcess", { process_id: processId });
      return process.exit_status ?? undefined;
    });
    expect(gone.cause).toBe("EXIT_CAUSE_CANCELED");
    expect(await processesIn(container)).not.toContainEqual(expect.stringContaining("shake_256"));
  });

  function run() {
    return client.stream("ProcessService/Exec", {
      sandbox_id: sandboxId,
      argv: { args: ["python3", "-c", GENERATOR] },
    });
  }
});

function expectedHash(): string {
  const hash = createHash("sha256");
  for (let i = 0; i < BLOCKS; i++) {
    hash.update(createHash("shake256", { outputLength: BLOCK_BYTES }).update(`berth ${i}`).digest());
  }
  return hash.digest("hex");
}
