import type { Database } from "./database.ts";

/** Sequence numbers of lost events, both ends included. */
export interface EventRange {
  readonly from: number;
  readonly to: number;
}

/** An event of a sandbox, with its sequence number. */
export interface LoggedEvent<Body> {
  /** Strictly increasing, from 1. */
  readonly sequence: number;
  readonly timeMs: number;
  readonly sandboxId: string;
  readonly generation: number;
  readonly owner: string;
  /** Plain data, stored as JSON. */
  readonly body: Body;
}

/** How many losses to store as separate ranges. */
const MAX_LOSSES = 100;

/** The events in the database, in the order of their sequence numbers. */
export class EventStore<Body> {
  readonly #database: Database;

  constructor(database: Database) {
    this.#database = database;
  }

  /** All events, oldest first. */
  load(): LoggedEvent<Body>[] {
    const rows = this.#database.prepare("SELECT * FROM events ORDER BY sequence").all();
    return rows.map((row) => ({
      sequence: Number(row.sequence),
      timeMs: Number(row.time_ms),
      owner: String(row.owner),
      sandboxId: String(row.sandbox_id),
      generation: Number(row.generation),
      body: JSON.parse(String(row.body)) as Body,
    }));
  }

  /** The largest sequence number that was stored, trimmed or lost; 0 if there is none. */
  newest(): number {
    return this.#number(
      `SELECT max(
         ifnull((SELECT max(sequence) FROM events), 0),
         ifnull((SELECT max(last_sequence) FROM event_trims), 0),
         ifnull((SELECT max(last_sequence) FROM event_losses), 0)) AS number`,
    );
  }

  /**
   * The boot of the machine in which the last run of the service stored events without calling {@link close}; undefined
   * if it did call it.
   */
  get openedIn(): string | undefined {
    const row = this.#database.prepare("SELECT boot_id FROM event_run").get();
    return row && String(row.boot_id);
  }

  /**
   * Records the boot of the machine in which events are stored from now on, and what was lost before. Survives a power
   * loss.
   */
  open(bootId: string, loss: EventRange | undefined): void {
    this.#database.durably(() => {
      this.#run("INSERT OR REPLACE INTO event_run (only_row, boot_id) VALUES (1, ?)", bootId);
      if (loss !== undefined) this.addLoss(loss);
    });
  }

  /** Records that no stored event can be lost any more. */
  close(): void {
    this.#run("DELETE FROM event_run");
  }

  append({ sequence, timeMs, owner, sandboxId, generation, body }: LoggedEvent<Body>): void {
    this.#run(
      "INSERT INTO events (sequence, time_ms, owner, sandbox_id, generation, body) VALUES (?, ?, ?, ?, ?, ?)",
      ...[sequence, timeMs, owner, sandboxId, generation, JSON.stringify(body)],
    );
  }

  /** Removes an owner's events up to a sequence number, and records that there may have been some. */
  trim(owner: string, last: number): void {
    this.#run("DELETE FROM events WHERE owner = ? AND sequence <= ?", owner, last);
    this.#run("INSERT OR REPLACE INTO event_trims (owner, last_sequence) VALUES (?, ?)", owner, last);
  }

  /** The sequence number up to which each owner's events were trimmed. */
  trims(): Map<string, number> {
    const rows = this.#database.prepare("SELECT owner, last_sequence FROM event_trims").all();
    return new Map(rows.map((row) => [String(row.owner), Number(row.last_sequence)]));
  }

  /** Adds a loss. Beyond {@link MAX_LOSSES} the oldest ones are merged, including the events between them. */
  addLoss({ from, to }: EventRange): void {
    this.#run("INSERT INTO event_losses (first_sequence, last_sequence) VALUES (?, ?)", from, to);
    const surplus = this.#number("SELECT count(*) AS number FROM event_losses") - MAX_LOSSES;
    if (surplus <= 0) return;
    const last = this.#number(
      "SELECT last_sequence AS number FROM event_losses ORDER BY first_sequence LIMIT 1 OFFSET ?",
      surplus,
    );
    this.#run("DELETE FROM events WHERE sequence <= ?", last);
    this.#run("DELETE FROM event_losses WHERE last_sequence <= ?", last);
    this.#run("INSERT INTO event_losses (first_sequence, last_sequence) VALUES (1, ?)", last);
  }

  /** Lost ranges, of all owners, in order. */
  losses(): EventRange[] {
    const rows = this.#database.prepare("SELECT * FROM event_losses ORDER BY first_sequence").all();
    return rows.map((row) => ({ from: Number(row.first_sequence), to: Number(row.last_sequence) }));
  }

  #run(sql: string, ...values: (string | number)[]) {
    return this.#database.prepare(sql).run(...values);
  }

  #number(sql: string, ...values: number[]): number {
    return Number(this.#database.prepare(sql).get(...values)?.number ?? 0);
  }
}
