import { beforeAll, describe, expect, test } from "vitest";
import { useApp } from "../../support/app.ts";
import { failureOf } from "../../support/client.ts";
import { ENGINES } from "../../support/engines.ts";
import { Worker } from "../../support/worker.ts";

const LIMIT_MIB = 64;
/** Each makes the interpreter itself exceed its sandbox's memory. */
const GREEDY = [
  ["bash", "bash:run", { command: `x=$(head -c ${4 * LIMIT_MIB}M /dev/zero | tr '\\0' x)` }],
  ["python", "python:run", { code: `x = b'x' * (${4 * LIMIT_MIB} << 20)` }],
] as const;
const HARMLESS = { bash: { command: "echo $x" }, python: { code: "print('')" } } as const;

describe.each(ENGINES)("on $name", ({ settings }) => {
  const app = useApp(settings);
  let sandboxId = "";

  beforeAll(async () => {
    const limited = { resources: { memory_bytes: LIMIT_MIB * 2 ** 20 } };
    sandboxId = (await app.client.createSandbox(limited)).sandbox_id;
  });

  test.each(GREEDY)(
    "a %s that the kernel kills when memory runs out is lost with that cause",
    async (type, tool, greedy) => {
      const worker = new Worker(app.client, `greedy ${type}`);
      const { session, failure } = await worker.create(type, undefined, { sandbox_id: sandboxId });
      expect(failure).toBeNull();
      expect(await failureOf(worker.execute(tool, greedy))).toMatchObject({
        code: "ABORTED",
        reason: "SESSION_LOST",
        message: expect.stringContaining(`out of memory (${LIMIT_MIB} MiB)`),
        metadata: { session_id: session?.session_id, cause: "OUT_OF_MEMORY" },
      });
      expect(await worker.execute(tool, HARMLESS[type])).toMatchObject({
        code: 0,
        data: { stdout: "\n", session_restarted: true },
      });
      await worker.destroy();
    },
  );

  test("one that is killed otherwise is not", async () => {
    const worker = new Worker(app.client, "killed");
    await worker.create("bash", undefined, { sandbox_id: sandboxId });
    // A program of the shell that ran out of memory is unrelated to the shell's end.
    expect(
      await worker.bash(`head -c 1 /dev/zero; python3 -c "x = b'x' * (${4 * LIMIT_MIB} << 20)"`),
    ).toMatchObject({
      exit_code: 137,
      session_lost: false,
    });
    const killed = worker.bash("kill -9 $$");
    expect(await killed.catch((error: Error) => error.message)).toMatchObject({
      exit_code: 137,
      session_lost: true,
    });
    await worker.destroy();
  });
});
