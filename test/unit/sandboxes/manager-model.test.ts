import fc from "fast-check";
import { expect, test } from "vitest";
import { BerthError } from "../../../src/base/errors.ts";
import type { Lease } from "../../../src/sandboxes/lease.ts";
import { settled } from "../../support/manual-clock.ts";
import { scaled } from "../../support/scale.ts";
import { eventsOf, newManager, OWNER } from "./support.ts";

/** What callers, the engine and time may do to a manager concurrently. */
type Act =
  | {
      readonly do: "create" | "delete" | "pause" | "resume" | "keepAlive" | "use" | "end" | "vanish";
      readonly id: string;
    }
  | { readonly do: "cancelCreate"; readonly id: string }
  | { readonly do: "release" }
  | { readonly do: "wait"; readonly ms: number };

const LIMIT = 4;
const IDS = ["a", "b", "c", "d", "e", "f"];
const IDLE_MS = 60_000;

const onSandbox = fc.record({
  do: fc.constantFrom(
    "create",
    "create",
    "delete",
    "pause",
    "resume",
    "keepAlive",
    "use",
    "end",
    "vanish",
    "cancelCreate",
  ),
  id: fc.constantFrom(...IDS),
});
const act: fc.Arbitrary<Act> = fc.oneof(
  { weight: 8, arbitrary: onSandbox as fc.Arbitrary<Act> },
  { weight: 2, arbitrary: fc.constant({ do: "release" } as const) },
  {
    weight: 2,
    arbitrary: fc.record({
      do: fc.constant("wait" as const),
      ms: fc.constantFrom(1, 1_000, IDLE_MS / 2, IDLE_MS),
    }),
  },
);

test("in any order of events, the limit holds, places are released, and nothing is left behind", async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.array(act, { minLength: 1, maxLength: 40 }),
      // How often each step of the engine waits before it continues, and which removals fail.
      fc.infiniteStream(fc.nat(4)),
      fc.infiniteStream(fc.nat(9)),
      async (acts, delays, failures) => {
        const { manager, engine, clock, events, monitor } = await newManager({
          maxSandboxes: LIMIT,
          deleteGraceMs: 2_000,
          cleanupIntervalMs: 10_000,
        });
        engine.before = async (step) => {
          for (let turns = delays.next().value as number; turns > 0; turns--) await new Promise(setImmediate);
          const fails = step === "remove" || step === "create" ? failures.next().value === 0 : false;
          if (fails) throw new BerthError("ENGINE_UNAVAILABLE", "on purpose");
        };
        manager.start();
        await settled();

        const leases: Lease[] = [];
        const running: Promise<unknown>[] = [];
        const aborts = new Map<string, AbortController>();
        const perform = (one: Act): unknown => {
          switch (one.do) {
            case "create": {
              const abort = new AbortController();
              aborts.set(one.id, abort);
              return manager.create(
                OWNER,
                { idleTimeoutMs: IDLE_MS },
                { sandboxId: one.id, signal: abort.signal },
              );
            }
            case "cancelCreate":
              return aborts.get(one.id)?.abort();
            case "delete":
              return manager.delete({ owner: OWNER, sandboxId: one.id });
            case "pause":
            case "resume":
              return manager[one.do]({ owner: OWNER, sandboxId: one.id }, new AbortController().signal);
            case "keepAlive":
              return manager.keepAlive({ owner: OWNER, sandboxId: one.id });
            case "use": {
              const lease = manager.acquire({ owner: OWNER, sandboxId: one.id });
              lease.signal.addEventListener("abort", () => lease.release());
              leases.push(lease);
              return undefined;
            }
            case "release":
              return leases.shift()?.release();
            case "end":
            case "vanish": {
              const found = [...engine.sandboxes.values()].find(
                (sandbox) => sandbox.sandboxId === one.id && sandbox.state !== "ended",
              );
              if (found === undefined) return undefined;
              if (one.do === "vanish") return engine.vanish(found.ref);
              return engine.end(found.ref, { exitCode: 1, outOfMemory: false });
            }
            case "wait":
              return clock.advance(one.ms);
          }
        };
        const attempt = async (one: Act): Promise<void> => {
          try {
            await perform(one);
          } catch (error) {
            // Every refusal has a reason; anything else is a defect.
            if (!(error instanceof BerthError)) throw error;
          }
        };
        const check = (): void => {
          const { items: live } = manager.list(OWNER, {
            labels: {},
            states: new Set(["CREATING", "RUNNING", "PAUSED", "DELETING"]),
          });
          const stats = manager.stats(OWNER);
          expect(stats.totalSandboxes).toBe(live.length);
          expect(stats.totalSandboxes).toBeLessThanOrEqual(LIMIT);
          expect(engine.sandboxes.size).toBeLessThanOrEqual(LIMIT);
        };

        for (const one of acts) {
          const doing = attempt(one);
          running.push(doing);
          // Let time pass for operations in progress, as it does for a waiting caller.
          if (one.do === "wait") await doing;
          check();
        }
        const done = Promise.all(running);
        for (let i = 0; i < 20; i++) await clock.advance(1_000);
        await done;

        // All callers release their leases and leave. Then time does the rest, even after failed removals.
        for (const lease of leases) lease.release();
        for (let i = 0; i < 40; i++) await clock.advance(IDLE_MS / 4);
        check();
        expect(manager.stats(OWNER)).toMatchObject({ totalSandboxes: 0, activeOperations: 0 });
        expect([...engine.sandboxes.values()]).toEqual([]);

        // Each sandbox that was created has ended exactly once, with no event after that.
        for (const id of IDS) {
          const types = (await eventsOf(events, id)).map(({ body }) => body.type);
          const lives = types.join(" ").split("CREATING").slice(1);
          for (const life of lives) expect(life.trim()).toMatch(/^[A-Z ]*TERMINATED$/);
          expect(types.filter((type) => type === "TERMINATED")).toHaveLength(lives.length);
        }
        monitor.stop();
      },
    ),
    { numRuns: scaled(4_000, 150) },
  );
});
