import { setTimeout as sleep } from "node:timers/promises";
import { afterEach, describe, expect, test } from "vitest";
import { expectNoContainers, useApp } from "../../support/app.ts";
import { Client, failureOf } from "../../support/client.ts";
import { CuttableLink } from "../../support/cuttable-link.ts";
import { eventually } from "../../support/eventually.ts";
import { MISSING_IMAGE } from "../../support/images.ts";

/** Only one place, so that a slot that is not returned would make the next test fail. */
const app = useApp({ maxSandboxes: 1 });

afterEach(async () => {
  const { client } = app;
  await eventually(async () => (await client.call("SandboxService/GetStats")).total_sandboxes === 0);
  await expectNoContainers(app.instance);
  const { sandbox_id: id } = await client.createSandbox();
  expect(await client.output(id, "echo fine")).toBe("fine\n");
  await client.deleteSandbox(id);
});

/** Deletes the existing sandboxes once none is being created or deleted. */
async function deleteWhatIsWhole(): Promise<void> {
  const whole = await eventually(async () => {
    const { sandboxes } = await app.client.call("SandboxService/ListSandboxes");
    return sandboxes.every(({ state }) => state === "SANDBOX_STATE_RUNNING") && sandboxes;
  });
  for (const { sandbox_id: id } of whole) {
    expect(await app.client.output(id, "echo whole")).toBe("whole\n");
    await app.client.deleteSandbox(id);
  }
}

test("an unavailable image", async () => {
  const failure = await failureOf(app.client.createSandbox({ image: MISSING_IMAGE }));
  expect(failure).toMatchObject({ code: "FAILED_PRECONDITION", reason: "IMAGE_UNAVAILABLE" });
  expect(failure.message).toContain(MISSING_IMAGE);
});

test("a user that the image does not have", async () => {
  const failure = await failureOf(app.client.createSandbox({ user: "nobody-of-that-name" }));
  expect(failure).toMatchObject({ code: "INVALID_ARGUMENT", reason: "INVALID_ARGUMENT" });
  expect(failure.message).toContain("user");
});

test("a working directory that cannot be made", async () => {
  const failure = await failureOf(app.client.createSandbox({ working_dir: "/etc/passwd/below" }));
  expect(failure.code).toMatch(/^(INVALID_ARGUMENT|FAILED_PRECONDITION)$/);
  expect(failure.message).toContain("working_dir");
});

describe("a create that is canceled", () => {
  // From before anything exists until after the container has started.
  for (const afterMs of [0, 10, 30, 60, 100, 150, 200, 300]) {
    test(`after ${afterMs} ms`, async () => {
      const abort = new AbortController();
      const creating = app.client.call("SandboxService/CreateSandbox", {}, { signal: abort.signal });
      creating.catch(() => {});
      await sleep(afterMs);
      abort.abort();
      const outcome = await creating.then(
        ({ sandbox }) => sandbox.sandbox_id,
        () => undefined,
      );
      if (afterMs === 0) expect(outcome).toBeUndefined();
      // A sandbox that was complete when the cancel arrived exists, and works.
      await deleteWhatIsWhole();
    });
  }

  test("by its deadline", async () => {
    const deadline = Date.now() + 30;
    const failure = await failureOf(app.client.call("SandboxService/CreateSandbox", {}, { deadline }));
    expect(failure.code).toBe("DEADLINE_EXCEEDED");
  });
});

for (const afterMs of [20, 120]) {
  test(`a create whose client disconnects after ${afterMs} ms`, async () => {
    const link = await CuttableLink.to(app.app.address);
    const client = new Client(link.address);
    await client.call("SandboxService/GetStats");
    const creating = client.call("SandboxService/CreateSandbox");
    creating.catch(() => {});
    await sleep(afterMs);
    link.cut();
    const outcome = await creating.then(
      () => "created",
      () => failureOf(creating),
    );
    // On a busy machine it may have been complete before the cut.
    if (outcome !== "created") expect(outcome).toMatchObject({ code: "UNAVAILABLE" });
    client.close();
    await deleteWhatIsWhole();
  });
}
