import type { Clock } from "../base/clock.ts";
import type { Logger } from "../base/logger.ts";
import type { Transaction } from "./database.ts";
import { EventLog } from "./event-log.ts";
import type { EventStore } from "./event-store.ts";
import { RequestLog } from "./request-log.ts";
import type { AnswerBounds, RequestStore } from "./request-store.ts";
import type { TimeStore } from "./service-time.ts";
import { ServiceTime } from "./service-time.ts";
import { WriteBehind } from "./write-behind.ts";

/** The stores of the shared state. */
interface StateStore<EventBody> {
  readonly transaction: Transaction;
  readonly events: EventStore<EventBody>;
  readonly time: TimeStore;
  readonly requests: RequestStore;
}

/** The state that the other folders share: time that outlives the service, events, request ids and deferred writes. */
export class State<EventBody> {
  readonly transaction: Transaction;
  readonly time: ServiceTime;
  readonly writeBehind: WriteBehind;
  readonly events: EventLog<EventBody>;
  readonly requests: RequestLog;

  /**
   * @param parts.answers limits for the answers kept for retries. Default: none.
   */
  constructor(
    store: StateStore<EventBody>,
    parts: {
      readonly clock: Clock;
      readonly logger: Logger;
      readonly answers?: AnswerBounds;
    },
  ) {
    this.transaction = store.transaction;
    this.time = ServiceTime.resume(parts.clock, store.time);
    this.writeBehind = new WriteBehind(store.transaction, parts);
    this.events = new EventLog(parts.clock, store.events);
    this.requests = new RequestLog(this.time, store.requests, undefined, parts.answers);
  }

  start(): void {
    this.time.start();
  }

  /** Writes everything that is still pending. */
  stop(): void {
    this.time.stop();
    this.writeBehind.flush();
    this.events.close();
  }
}
