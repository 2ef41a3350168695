import { describe, expect, test } from "vitest";
import { BerthError } from "../../../src/base/errors.ts";
import { eventually } from "../../support/eventually.ts";
import { holdClusterPart, killClusterPart, kubectl, NAMESPACE } from "../../support/kubernetes.ts";
import { type Outcome, run, spec } from "../engine/docker/support.ts";
import { openEngine } from "../engine/kubernetes/support.ts";

const { engine, instance } = await openEngine();

/** How many run when a part of the cluster is killed. */
const EXECS = 50;

/** What a command of {@link start} writes to each stream. */
const TEXT = "x".repeat(20_000);

/** Runs a command that ends after a while with a code of its own, having written on both streams; or says how it was lost. */
async function start(ref: string, i: number): Promise<Outcome | BerthError> {
  const script = `sleep 0.${i % 7}${i % 10}; printf %s "$0"; printf %s "$0" >&2; exit ${i}`;
  const argv = ["sh", "-c", script, TEXT];
  return run(engine, ref, argv).catch((error: unknown) => {
    if (error instanceof BerthError) return error;
    throw error;
  });
}

/** No code may be wrong, and no output that counts as complete may lack a byte. */
function expectTruth(outcomes: readonly (Outcome | BerthError)[]): {
  readonly ended: number;
  readonly lost: number;
} {
  let ended = 0;
  for (const [i, outcome] of outcomes.entries()) {
    if (outcome instanceof BerthError) {
      expect(["ENGINE_UNAVAILABLE", "SANDBOX_TERMINATED", "TOO_MANY_OPERATIONS"]).toContain(outcome.reason);
      continue;
    }
    ended++;
    expect(outcome.exitCode).toBe(i);
    if (outcome.broken !== undefined) continue;
    expect([outcome.stdout.toString(), outcome.stderr.toString()]).toEqual([TEXT, TEXT]);
  }
  return { ended, lost: outcomes.length - ended };
}

describe("a part of the cluster that is killed", () => {
  test.each(["apiserver", "kubelet", "containerd", "etcd"] as const)(
    "%s: no exit code is wrong, no byte is lost that was promised, and no pod is left",
    async (part) => {
      const { ref } = await engine.create(spec());
      let over = 0;
      const execs = Array.from({ length: EXECS }, (_, i) => start(ref, i).finally(() => over++));
      const doomed = Array.from({ length: 3 }, () =>
        engine.create(spec()).catch((error: unknown) => error as BerthError),
      );
      // Some have ended, some run, some are about to start.
      await eventually(() => over >= EXECS / 5, { timeoutMs: 60_000 });
      const killedAt = performance.now();
      await killClusterPart(part);
      const { ended, lost } = expectTruth(await Promise.all(execs));
      // It is usable again by itself.
      await eventually(
        () =>
          run(engine, ref, ["true"]).then(
            ({ exitCode }) => exitCode === 0,
            () => false,
          ),
        {
          timeoutMs: 60_000,
        },
      );
      const seconds = ((performance.now() - killedAt) / 1000).toFixed(1);
      console.info(`${part}: ${ended} ended, ${lost} lost; commands run again after ${seconds} s`);
      for (const made of await Promise.all(doomed)) {
        if (made instanceof Error) expect(made).toMatchObject({ name: "BerthError" });
      }
      await eventually(
        async () => {
          for (const sandbox of await engine.list().catch(() => []))
            await engine.remove(sandbox.ref).catch(() => {});
          return (await podsLeft()) === 0;
        },
        { timeoutMs: 90_000 },
      );
    },
    240_000,
  );

  test("an API server that stays away is told at once, with when to try again", async () => {
    const { ref } = await engine.create(spec());
    {
      using _held = holdClusterPart("apiserver");
      await eventually(() =>
        engine.info().then(
          () => false,
          () => true,
        ),
      );
      for (const act of [
        () => engine.info(),
        () => engine.list(),
        () => engine.create(spec()),
        () => run(engine, ref, ["true"]),
      ]) {
        const began = performance.now();
        const error = await act().then(
          () => undefined,
          (thrown: unknown) => thrown,
        );
        expect(error).toMatchObject({ reason: "ENGINE_UNAVAILABLE", retryAfterMs: expect.any(Number) });
        expect(performance.now() - began).toBeLessThan(5_000);
      }
    }
    await eventually(
      () =>
        run(engine, ref, ["true"]).then(
          ({ exitCode }) => exitCode === 0,
          () => false,
        ),
      {
        timeoutMs: 60_000,
      },
    );
    await engine.remove(ref);
  });
});

async function podsLeft(): Promise<number> {
  const selector = `--selector=berth.dev/instance=${instance}`;
  const names = await kubectl(["get", "pods", `--namespace=${NAMESPACE}`, selector, "--output=name"]).catch(
    () => "?",
  );
  return names.split("\n").filter((name) => name !== "").length;
}
