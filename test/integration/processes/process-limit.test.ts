import { describe, expect, test } from "vitest";
import { useApp } from "../../support/app.ts";
import { failureOf } from "../../support/client.ts";
import { ENGINES } from "../../support/engines.ts";

const LIMIT = 4;
const AT_ONCE = 24;

/** More than a sandbox's number of lanes. */
const MANY = 20;

describe.each(ENGINES)("on $name", ({ settings }) => {
  const unbounded = useApp({ ...settings, deleteGraceMs: 0 });
  const app = useApp({ ...settings, maxProcessesPerSandbox: LIMIT });

  test("of concurrent commands as many run as the limit allows, time and again", async () => {
    const { sandbox_id: id } = await app.client.createSandbox();
    for (let round = 0; round < 2; round++) {
      const all = Array.from({ length: AT_ONCE }, () => app.client.exec(id, "exec sleep 600"));
      const begun = await Promise.all(
        all.map((execution) =>
          execution.processId.then(
            (processId) => ({ processId, execution }),
            (error: unknown) => failureOf(Promise.reject(error)),
          ),
        ),
      );
      const running = begun.flatMap((one) => ("processId" in one ? [one] : []));
      expect(running).toHaveLength(LIMIT);
      for (const one of begun) {
        if ("processId" in one) continue;
        expect(one).toMatchObject({ code: "RESOURCE_EXHAUSTED", reason: "TOO_MANY_OPERATIONS" });
        expect(one.metadata).toMatchObject({ limit: String(LIMIT) });
      }

      // A process that ends frees one place, and so does one that cannot be started.
      const first = running.shift();
      await app.client.call("ProcessService/SignalProcess", { process_id: first?.processId, signal: 9 });
      await first?.execution.result;
      const nowhere = app.client.run(id, "true", { working_dir: "/nowhere" });
      expect(await failureOf(nowhere)).toMatchObject({ reason: "INVALID_ARGUMENT" });
      expect((await app.client.run(id, "echo in")).stdout.toString()).toBe("in\n");

      for (const { processId, execution } of running) {
        await app.client.call("ProcessService/SignalProcess", { process_id: processId, signal: 9 });
        await execution.result;
      }
    }
  });

  test("concurrent commands all start, although the first ones do not end", async () => {
    const { client } = unbounded;
    const { sandbox_id: id } = await client.createSandbox();
    const all = Array.from({ length: MANY }, () => client.exec(id, "exec sleep 600"));
    const ids = await Promise.all(all.map(({ processId }) => processId));
    expect(new Set(ids).size).toBe(MANY);
    await client.deleteSandbox(id);
  });
});
