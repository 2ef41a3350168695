import { expect, test } from "vitest";
import { startTestApp } from "../../support/app.ts";
import { type Failure, failureOf } from "../../support/client.ts";
import { eventually } from "../../support/eventually.ts";
import { healthOf } from "../../support/health.ts";
import { BUSYBOX_IMAGE } from "../../support/images.ts";
import { OwnDocker } from "../../support/own-docker.ts";

const PATIENT = { timeoutMs: 60_000 };

test.each([
  { keeps: "keeps the containers", liveRestore: true },
  { keeps: "ends the containers", liveRestore: false },
])(
  "a Docker that is killed under load and $keeps: the service stays up and reports what became of each sandbox",
  async ({ liveRestore }) => {
    const docker = await OwnDocker.start(BUSYBOX_IMAGE, { liveRestore });
    const app = await startTestApp({ dockerHost: docker.host, defaults: { image: BUSYBOX_IMAGE } });
    const { client } = app;
    const stop = new AbortController();
    try {
      const made = await Promise.all([1, 2, 3].map(() => client.createSandbox()));
      const ids = made.map(({ sandbox_id }) => sandbox_id);
      let done = 0;
      const refused: Failure[] = [];
      const load = ids.map(async (id) => {
        while (!stop.signal.aborted) {
          const ran = client.run(id, "echo load").then(() => done++);
          await ran.catch(async () => refused.push(await failureOf(ran)));
          await new Promise((resolve) => setTimeout(resolve, 20));
        }
      });
      await eventually(() => done > 20, PATIENT);

      await docker.kill();
      await eventually(async () => (await healthOf(app.app.address)) === "NOT_SERVING", PATIENT);
      const refusal = await failureOf(client.createSandbox());
      expect(refusal).toMatchObject({ code: "UNAVAILABLE", reason: "ENGINE_UNAVAILABLE" });
      expect(refusal.retryAfterMs).toBeGreaterThan(0);
      expect((await client.getSandbox(ids[0] ?? "")).state).toBe("SANDBOX_STATE_RUNNING");
      await eventually(() => refused.some(({ reason }) => reason === "ENGINE_UNAVAILABLE"), PATIENT);

      await docker.start();
      await eventually(async () => (await healthOf(app.app.address)) === "SERVING", PATIENT);
      for (const id of ids) {
        if (liveRestore) {
          const works = async (): Promise<boolean> =>
            (await client.output(id, "echo on").catch(() => "")) === "on\n";
          await eventually(works, PATIENT);
          expect((await client.getSandbox(id)).state).toBe("SANDBOX_STATE_RUNNING");
        } else {
          const state = async (): Promise<string> => (await client.getSandbox(id)).state;
          await eventually(async () => (await state()) === "SANDBOX_STATE_TERMINATED", PATIENT);
          const { termination } = await client.getSandbox(id);
          expect(termination?.cause).toBe("TERMINATION_CAUSE_EXITED");
          expect(termination?.message).not.toBe("");
        }
      }
      stop.abort();
      await Promise.all(load);
      const { sandbox_id } = await client.createSandbox();
      expect(await client.output(sandbox_id, "echo new")).toBe("new\n");
      const left = liveRestore ? ids.length + 1 : 1;
      expect((await client.call("SandboxService/GetStats")).total_sandboxes).toBe(left);
      await eventually(async () => (await docker.containers()).length === left, PATIENT);
    } finally {
      stop.abort();
      await app.stop();
      const orphans = await docker.containers();
      await docker.stop();
      expect(orphans).toEqual([]);
    }
  },
  600_000,
);
