import { setTimeout as sleep } from "node:timers/promises";
import { describe, expect, test } from "vitest";
import { BerthError } from "../../../src/base/errors.ts";
import { parseRef } from "../../../src/engine/kubernetes/pod.ts";
import { eventually } from "../../support/eventually.ts";
import { holdClusterPart, killClusterPart, kubectl, NAMESPACE } from "../../support/kubernetes.ts";
import { type Outcome, run, spec } from "../engine/docker/support.ts";
import { openEngine } from "../engine/kubernetes/support.ts";

const { engine, instance } = await openEngine();

/** How many commands run when a part of the cluster is killed. */
const EXECS = 50;

/** If nobody has noticed the part's end by then, it was not needed. */
const MISSED_WITHIN_SECONDS = 6;
const BACK_WITHIN_SECONDS = 150;

/** How many sandboxes are being created at that time, and how many removed. */
const CHANGES = 4;

/** What a command of {@link start} writes to each stream. */
const TEXT = "x".repeat(20_000);

/** The result of a call. Rejects with anything that is not an error of the port. */
function outcomeOf<T>(call: Promise<T>): Promise<T | BerthError> {
  return call.catch((error: unknown) => {
    if (error instanceof BerthError) return error;
    throw error;
  });
}

/** Repeats an action until it succeeds after a failure, or has not failed for a while. Returns when it failed. */
async function outage(killedAt: number, act: () => Promise<unknown>): Promise<string> {
  const since = (): number => (performance.now() - killedAt) / 1000;
  let first: number | undefined;
  for (;;) {
    const began = since();
    const outcome = await outcomeOf(act());
    if (outcome instanceof BerthError) first ??= began;
    else if (first !== undefined) return `from ${first.toFixed(1)} to ${since().toFixed(1)} s`;
    else if (began > MISSED_WITHIN_SECONDS) return "never";
    if (outcome instanceof BerthError && since() > BACK_WITHIN_SECONDS) throw outcome;
    await sleep(50);
  }
}

/**
 * Runs a command that exits after a while with its own code, after writing to both streams; or returns how it was lost.
 */
function start(ref: string, i: number): Promise<Outcome | BerthError> {
  const script = `sleep 0.${i % 7}${i % 10}; printf %s "$0"; printf %s "$0" >&2; exit ${i}`;
  return outcomeOf(run(engine, ref, ["sh", "-c", script, TEXT]));
}

/** No exit code may be wrong, and no output that is reported complete may lack a byte. */
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
    "%s: every exit code is right, no promised byte is lost, and no pod is left",
    async (part) => {
      const { ref } = await engine.create(spec());
      const old = await Promise.all(Array.from({ length: CHANGES }, () => engine.create(spec())));
      let over = 0;
      const execs = Array.from({ length: EXECS }, (_, i) => start(ref, i).finally(() => over++));
      // Some have ended, some run, some are about to start.
      await eventually(() => over >= EXECS / 5, { timeoutMs: 60_000 });
      const creates = old.map(() => outcomeOf(engine.create(spec())));
      const removals = old.map((one) => outcomeOf(engine.remove(one.ref)));
      const killedAt = performance.now();
      const usable = Promise.all([
        outage(killedAt, async () => expect((await run(engine, ref, ["true"])).exitCode).toBe(0)),
        outage(killedAt, async () => engine.remove((await engine.create(spec())).ref)),
      ]);
      await killClusterPart(part);
      const { ended, lost } = expectTruth(await Promise.all(execs));
      const [commands, changes] = await usable;
      const made = await Promise.all(creates);
      const removed = await Promise.all(removals);
      const count = (all: readonly unknown[]) => all.filter((one) => !(one instanceof BerthError)).length;
      console.info(
        `${part}: ${ended} of ${EXECS} commands ended, ${lost} were lost; of ${CHANGES} each, ${count(made)} creates ` +
          `and ${count(removed)} removals went through; commands failed ${commands}, creates and removals ${changes}`,
      );
      // What was reported as created exists, and what was reported as deleted does not.
      for (const one of made) {
        // A failed create leaves no pod, as the end of this test shows.
        if (one instanceof BerthError) continue;
        expect((await run(engine, one.ref, ["sh", "-c", "exit 7"])).exitCode).toBe(7);
      }
      const names = await kubectl(["get", "pods", `--namespace=${NAMESPACE}`, "--output=name"]);
      for (const [i, one] of removed.entries()) {
        if (!(one instanceof BerthError)) expect(names).not.toContain(parseRef(old[i]?.ref ?? "").name);
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
    400_000,
  );

  test("an API server that stays away is reported at once, with when to retry", async () => {
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
