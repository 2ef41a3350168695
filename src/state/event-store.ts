import type { SandboxEvent, SandboxHappening } from "../sandboxes/event.ts";
import type { EventRange, EventStore } from "../sandboxes/store-port.ts";
import type { Database } from "./database.ts";

/** Losses that are kept apart. */
const MOST_LOSSES = 100;

/** Events in SQLite. */
export class SqliteEventStore implements EventStore {
  readonly #database: Database;

  constructor(database: Database) {
    this.#database = database;
  }

  load(): SandboxEvent[] {
    const rows = this.#database.prepare("SELECT * FROM events ORDER BY sequence").all();
    return rows.map((row) => ({
      sequence: Number(row.sequence),
      timeMs: Number(row.time_ms),
      owner: String(row.owner),
      sandboxId: String(row.sandbox_id),
      generation: Number(row.generation),
      happening: JSON.parse(String(row.happening)) as SandboxHappening,
    }));
  }

  newest(): number {
    return this.#number(
      `SELECT max(
         ifnull((SELECT max(sequence) FROM events), 0),
         ifnull((SELECT max(last_sequence) FROM event_trims), 0),
         ifnull((SELECT max(last_sequence) FROM event_losses), 0)) AS number`,
    );
  }

  get openedIn(): string | undefined {
    const row = this.#database.prepare("SELECT boot_id FROM event_run").get();
    return row && String(row.boot_id);
  }

  open(bootId: string, loss: EventRange | undefined): void {
    this.#database.durably(() => {
      this.#run("INSERT OR REPLACE INTO event_run (only_row, boot_id) VALUES (1, ?)", bootId);
      if (loss !== undefined) this.addLoss(loss);
    });
  }

  close(): void {
    this.#run("DELETE FROM event_run");
  }

  append({ sequence, timeMs, owner, sandboxId, generation, happening }: SandboxEvent): void {
    this.#run(
      "INSERT INTO events (sequence, time_ms, owner, sandbox_id, generation, happening) VALUES (?, ?, ?, ?, ?, ?)",
      ...[sequence, timeMs, owner, sandboxId, generation, JSON.stringify(happening)],
    );
  }

  trim(owner: string, last: number): void {
    this.#run("DELETE FROM events WHERE owner = ? AND sequence <= ?", owner, last);
    this.#run("INSERT OR REPLACE INTO event_trims (owner, last_sequence) VALUES (?, ?)", owner, last);
  }

  trims(): Map<string, number> {
    const rows = this.#database.prepare("SELECT owner, last_sequence FROM event_trims").all();
    return new Map(rows.map((row) => [String(row.owner), Number(row.last_sequence)]));
  }

  /** Of too many losses the oldest become one, with the events between them. */
  addLoss({ from, to }: EventRange): void {
    this.#run("INSERT INTO event_losses (first_sequence, last_sequence) VALUES (?, ?)", from, to);
    const surplus = this.#number("SELECT count(*) AS number FROM event_losses") - MOST_LOSSES;
    if (surplus <= 0) return;
    const last = this.#number(
      "SELECT last_sequence AS number FROM event_losses ORDER BY first_sequence LIMIT 1 OFFSET ?",
      surplus,
    );
    this.#run("DELETE FROM events WHERE sequence <= ?", last);
    this.#run("DELETE FROM event_losses WHERE last_sequence <= ?", last);
    this.#run("INSERT INTO event_losses (first_sequence, last_sequence) VALUES (1, ?)", last);
  }

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
