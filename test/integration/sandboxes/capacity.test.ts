import { describe, expect, test } from "vitest";
import { expectContainers, useApp } from "../../support/app.ts";
import { failureOf } from "../../support/client.ts";
import { ENGINES } from "../../support/engines.ts";
import type { Sandbox } from "../../support/wire.ts";
import { Worker } from "../../support/worker.ts";

const LIMIT = 8;
const MORE = 20;

const app = useApp({ maxSandboxes: LIMIT });

describe.each(ENGINES)("on $name, with room for one sandbox", ({ settings }) => {
  const tight = useApp({ ...settings, maxSandboxes: 1 });

  test("successive temporary sessions reuse the place of the one before", async () => {
    const worker = new Worker(tight.client, "w");
    for (let i = 0; i < 6; i++) {
      await expect(worker.bash(`echo ${i}`)).resolves.toMatchObject({ stdout: `${i}\n` });
    }
    // A caller that comes while the place is in use is refused instead of waiting.
    const { sandbox_id: id } = await tight.client.createSandbox();
    expect(await failureOf(worker.bash("true"))).toMatchObject({ reason: "SANDBOX_LIMIT" });
    await tight.client.deleteSandbox(id);
  });
});

test("of creates beyond the limit exactly as many succeed as there are places, time and again", async () => {
  for (let round = 0; round < 2; round++) {
    const created = await Promise.allSettled(
      Array.from({ length: LIMIT + MORE }, () => app.client.createSandbox()),
    );
    const sandboxes = created.flatMap((one) => (one.status === "fulfilled" ? [one.value] : []));
    const refused = created.flatMap((one) => (one.status === "rejected" ? [one.reason] : []));

    expect(sandboxes).toHaveLength(LIMIT);
    for (const error of refused) {
      const failure = await failureOf(Promise.reject(error));
      expect(failure).toMatchObject({ code: "RESOURCE_EXHAUSTED", reason: "SANDBOX_LIMIT" });
      expect(failure.message).toMatch(/^Maximum number of sandboxes \(8\) reached/);
      expect(failure.metadata).toMatchObject({ limit: "8" });
    }
    await expectContainers(app.instance, LIMIT);
    expect(await app.client.call("SandboxService/GetStats")).toMatchObject({
      total_sandboxes: LIMIT,
      max_sandboxes: LIMIT,
    });

    // One returned place is exactly one place.
    await app.client.deleteSandbox((sandboxes.pop() as Sandbox).sandbox_id);
    sandboxes.push(await app.client.createSandbox());
    expect(await failureOf(app.client.createSandbox())).toMatchObject({ reason: "SANDBOX_LIMIT" });

    await Promise.all(sandboxes.map(({ sandbox_id: id }) => app.client.deleteSandbox(id)));
    await expectContainers(app.instance, 0);
    expect((await app.client.call("SandboxService/GetStats")).total_sandboxes).toBe(0);
  }
});
