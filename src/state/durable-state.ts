import type { Clock } from "../base/clock.ts";
import type { Logger } from "../base/logger.ts";
import { SandboxJournal } from "../sandboxes/journal.ts";
import type { EventStore, SandboxStore, Transaction } from "../sandboxes/store-port.ts";
import { EventLog } from "./event-log.ts";
import { RequestLog } from "./request-log.ts";
import type { AnswerBounds, RequestStore } from "./request-store-port.ts";
import { ServiceTime } from "./service-time.ts";
import type { TimeStore } from "./time-store-port.ts";
import { WriteBehind } from "./write-behind.ts";

/** What state is kept in. */
export interface StateStore {
  readonly transaction: Transaction;
  readonly sandboxes: SandboxStore;
  readonly events: EventStore;
  readonly time: TimeStore;
  readonly requests: RequestStore;
}

/** What of the service's state outlives it, over one store. */
export class DurableState {
  readonly time: ServiceTime;
  readonly writeBehind: WriteBehind;
  readonly events: EventLog;
  readonly journal: SandboxJournal;
  readonly requests: RequestLog;

  /** @param parts.answers what the answers kept for retries may take; by default whatever they do. */
  constructor(
    store: StateStore,
    parts: { readonly clock: Clock; readonly logger: Logger; readonly answers?: AnswerBounds },
  ) {
    this.time = ServiceTime.resume(parts.clock, store.time);
    this.writeBehind = new WriteBehind(store.transaction, parts);
    this.events = new EventLog(parts.clock, store.events);
    this.requests = new RequestLog(this.time, store.requests, undefined, parts.answers);
    this.journal = new SandboxJournal({ ...this, store: store.sandboxes, transaction: store.transaction });
  }

  start(): void {
    this.time.start();
  }

  /** Writes what waits to be written. */
  stop(): void {
    this.time.stop();
    this.writeBehind.flush();
    this.events.close();
  }
}
