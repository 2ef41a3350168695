import { EgressManager } from "../../../src/egress/manager.ts";
import { EngineMonitor } from "../../../src/sandboxes/engine-monitor.ts";
import { SandboxJournal } from "../../../src/sandboxes/journal.ts";
import type { SandboxObserver } from "../../../src/sandboxes/lease.ts";
import { SandboxManager, type SandboxManagerSettings } from "../../../src/sandboxes/manager.ts";
import type { SandboxEvent, SandboxEventBody } from "../../../src/sandboxes/sandbox.ts";
import { type MountSources, SANDBOX_DEFAULTS } from "../../../src/sandboxes/spec.ts";
import type { EventLog } from "../../../src/state/event-log.ts";
import { State } from "../../../src/state/state.ts";
import { HOST_MOUNTS } from "../../support/host-mounts.ts";
import { ManualClock } from "../../support/manual-clock.ts";
import { MemoryEngine } from "../../support/memory-engine.ts";
import { MemoryLog } from "../../support/memory-log.ts";
import { type MemoryStore, memoryStore } from "../../support/memory-store.ts";

export const OWNER = "default";

/** State that outlives a manager. */
export interface World {
  readonly engine: MemoryEngine;
  readonly clock: ManualClock;
  readonly store: MemoryStore;
}

export function newWorld(): World {
  return { engine: new MemoryEngine(), clock: new ManualClock(), store: memoryStore() };
}

/** A manager with an engine and a clock that a test controls, in a new world or in that of an earlier manager. */
export async function newManager(
  changes: Partial<SandboxManagerSettings> = {},
  world: World = newWorld(),
  mounts: MountSources = HOST_MOUNTS,
  observer: SandboxObserver = { ready() {}, ending() {} },
) {
  const { engine, clock } = world;
  const log = new MemoryLog();
  const state = new State(world.store, { clock, logger: log });
  const monitor = await EngineMonitor.connect(engine, log);
  const settings: SandboxManagerSettings = {
    maxSandboxes: 100,
    cleanupIntervalMs: 300_000,
    deleteGraceMs: 5_000,
    defaults: SANDBOX_DEFAULTS,
    warmPools: [],
    ...changes,
  };
  const parts = {
    ...state,
    journal: new SandboxJournal({ ...state, store: world.store.sandboxes }),
    engine,
    monitor,
    clock,
    logger: log,
    observer,
    egress: new EgressManager(engine, log),
    mounts,
  };
  const manager = new SandboxManager(settings, parts);
  return { manager, engine, clock, log, events: state.events, monitor, state, world };
}

/** The logged events of a sandbox. */
export async function eventsOf(
  events: EventLog<SandboxEventBody>,
  sandboxId: string,
): Promise<SandboxEvent[]> {
  const found: SandboxEvent[] = [];
  const stop = new AbortController();
  const watch = events.watch({ owner: OWNER, sandboxId, afterSequence: 0 }, stop.signal);
  for (;;) {
    const next = watch.next();
    const item = await Promise.race([
      next,
      new Promise<undefined>((resolve) => setImmediate(resolve, undefined)),
    ]);
    if (item === undefined || item.done) {
      stop.abort();
      await next.catch(() => {});
      return found;
    }
    if (item.value.type === "event") found.push(item.value.event);
  }
}
