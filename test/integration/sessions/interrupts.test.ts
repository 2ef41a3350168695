import { describe, expect, test } from "vitest";
import { useApp } from "../../support/app.ts";
import { ENGINES } from "../../support/engines.ts";
import { Worker } from "../../support/worker.ts";

/** Much longer than the pauses between two interrupts. */
const HALT_MS = 2_000;
const BETWEEN_MS = 50;

/** Halts this process, and with it the service, again and again while `act` runs. */
async function halting<T>(act: () => Promise<T>): Promise<T> {
  const timer = setInterval(() => {
    for (const since = performance.now(); performance.now() - since < HALT_MS; );
  }, BETWEEN_MS);
  try {
    return await act();
  } finally {
    clearInterval(timer);
  }
}

describe.each(ENGINES)("on $name", ({ settings }) => {
  const app = useApp(settings);

  test("a timeout interrupts the command, and the shell stays, even if the service halts meanwhile", async () => {
    const worker = new Worker(app.client, "halted");
    expect((await worker.create("bash")).failure).toBeNull();
    await worker.bash("kept=yes");
    const late = await halting(() => worker.bash("while :; do sleep 0.2; done", { seconds: 1 }));
    expect(late).toMatchObject({ timed_out: true, session_lost: false });
    expect((await worker.bash("echo $kept")).stdout).toBe("yes\n");
  });
});
