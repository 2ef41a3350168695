import { setTimeout as sleep } from "node:timers/promises";
import { describe, expect, test } from "vitest";
import { useApp } from "../../support/app.ts";
import { eventually } from "../../support/eventually.ts";

const MIB = 1024 * 1024;
const HOG = "bytearray(300 << 20)";

// Kubernetes reports for the main process itself whether it ran out of memory.
describe.each(["docker", "bubblewrap"] as const)("on %s", (engine) => {
  const app = useApp({ engine });

  test("an out-of-memory kill before a command is not blamed for its end", async () => {
    const { client } = app;
    const { sandbox_id: id } = await client.createSandbox({ resources: { memory_bytes: 64 * MIB } });
    expect(await client.output(id, `python3 -c '${HOG}'; echo $?`)).toBe("137\n");
    const { exit_status: status } = await client.run(id, "kill -9 $$");
    expect(status).toMatchObject({ cause: "EXIT_CAUSE_SIGNALED", signal: 9 });
  });

  test("an earlier out-of-memory kill is not blamed for the end of the sandbox", async () => {
    const { client } = app;
    const { sandbox_id: id } = await client.createSandbox({ resources: { memory_bytes: 64 * MIB } });
    const { exit } = await client.exec(id, ["python3", "-c", HOG]).result;
    expect(exit.cause).toBe("EXIT_CAUSE_OUT_OF_MEMORY");
    // Docker reports that there was a kill, and when, but not of which process.
    await sleep(4_000);
    const killed = await client.run(id, "kill -9 -1");
    expect(killed.exit_status.cause).toBe("EXIT_CAUSE_SANDBOX_TERMINATED");
    const { termination } = await eventually(async () => {
      const sandbox = await client.getSandbox(id);
      return sandbox.state === "SANDBOX_STATE_TERMINATED" ? sandbox : undefined;
    });
    expect(termination).toMatchObject({
      cause: "TERMINATION_CAUSE_EXITED",
      message: "Its main process ended with code 137.",
    });
  });
});
