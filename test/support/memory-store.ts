import { ProcessStore } from "../../src/processes/store.ts";
import { RunStore } from "../../src/runs/store.ts";
import type { SandboxEventBody } from "../../src/sandboxes/sandbox.ts";
import { SandboxStore } from "../../src/sandboxes/store.ts";
import { SessionStore } from "../../src/sessions/store.ts";
import type { Transaction } from "../../src/state/database.ts";
import { EventStore } from "../../src/state/event-store.ts";
import { RequestStore } from "../../src/state/request-store.ts";
import { TimeStore } from "../../src/state/service-time.ts";
import { memoryDatabase } from "./memory-database.ts";

/**
 * SQLite without a file, for tests that need a store but no disk. It survives for any number of services started on it.
 */
export function memoryStore() {
  const database = memoryDatabase();
  return {
    transaction: (<T>(work: () => T): T => database.transaction(work)) as Transaction,
    sandboxes: new SandboxStore(database),
    events: new EventStore<SandboxEventBody>(database),
    time: new TimeStore(database),
    runs: new RunStore(database),
    processes: new ProcessStore(database),
    sessions: new SessionStore(database),
    requests: new RequestStore(database),
  };
}

export type MemoryStore = ReturnType<typeof memoryStore>;
