import { createHash } from "node:crypto";
import type { SQLOutputValue } from "node:sqlite";
import { BerthError } from "../base/errors.ts";
import { MAX_SLICE_BYTES } from "../base/ordered-index.ts";
import type { Database } from "../state/database.ts";
import { MAX_MESSAGES } from "./machine.ts";
import {
  currentStep,
  endOf,
  type Run,
  type RunEvent,
  type RunEventBody,
  type RunMessage,
  type RunState,
  type RunStep,
  sandboxOf,
} from "./run.ts";

/** A change of a run, written in one transaction. */
export interface RunChange {
  readonly run: Run;
  /** What happened, in order. Each becomes an event. */
  readonly events: readonly RunEventBody[];
  readonly timeMs: number;
  /** Whether to delete all steps before adding one. Default: false. */
  readonly clearSteps?: boolean;
  readonly addStep?: RunStep;
  /** Whether to delete all messages before adding any. Default: false. */
  readonly clearMessages?: boolean;
  readonly addMessages?: readonly RunMessage[];
  /** Called before another run is removed to make room. The change may still fail. */
  readonly onDisplace?: (runId: string) => void;
}

/** Selects runs for a list. */
export interface RunQuery {
  readonly owner: string;
  /** Empty: every state. */
  readonly states: ReadonlySet<RunState>;
  readonly limit: number;
  /** Only runs created before the one at this position. Undefined: starts with the newest. */
  readonly before: number | undefined;
}

/** A run in a list. */
export interface ListedRun {
  readonly run: Run;
  /** Its position among all runs, in the order of their creation. Never reused. */
  readonly position: number;
  readonly messageCount: number;
}

/** A page of a list. */
interface RunList {
  readonly runs: readonly ListedRun[];
  /** Whether more follow. */
  readonly more: boolean;
}

/** The limits of one owner's runs. */
export interface RunQuota {
  /** Number of runs that are not RUNNING. */
  readonly runs: number;
  /** Stored bytes of all runs, with their steps, messages and events. */
  readonly bytes: number;
}

/** How many events of a run are kept. */
const KEPT_EVENTS = 1_000;
/** Most runs that one write removes, so that it stays short. Later writes remove the rest. */
const MAX_REMOVED = 100;
/** The owner of removed runs. No caller can be that. */
const NOBODY = "";
/** How many bytes are deleted at once, because deleting megabytes takes tenths of a second. */
const PURGED_BYTES = 2 * 1024 * 1024;
/** What a row counts there besides its bytes. */
const ROW_BYTES = 1024;
/** What runs have besides their records: the table, the column that holds most, and the one that orders rows. */
const STEPS = ["run_steps", "record", "step"] as const;
const PARTS = [STEPS, ["run_messages", "content", "position"], ["run_events", "record", "sequence"]] as const;
type Part = (typeof PARTS)[number];
/**
 * How much is read at once of a run's steps, and of its messages. An answer has the steps twice, since the summary
 * repeats them, and clients accept messages of 4 MiB.
 */
const MAX_DETAIL_BYTES = MAX_SLICE_BYTES / 2;
/** How much is read at once of a run's events. Little, because there may be thousands of slow watchers. */
const MAX_BATCH_BYTES = 64 * 1024;

const LIST =
  "SELECT position, record FROM runs WHERE owner = ? AND position < ? ORDER BY position DESC LIMIT ?";
const LIST_STATE =
  "SELECT position, record FROM runs WHERE owner = ? AND state = ? AND position < ? ORDER BY position DESC LIMIT ?";

type Row = Record<string, SQLOutputValue>;

/** Runs in the database. Every method is synchronous. */
export class RunStore {
  readonly #database: Database;

  constructor(database: Database) {
    this.#database = database;
  }

  /**
   * Adds a new run. Of its owner's runs that are not RUNNING and need no cleanup, removes the oldest that exceed the
   * quota. Returns the ids of those that it removed.
   * @throws `NO_SPACE` if the remaining runs exceed the quota; nothing has changed then
   */
  add(change: RunChange, quota: RunQuota): string[] {
    const { run } = change;
    return this.#database.transaction(() => {
      this.#database
        .prepare("INSERT INTO runs (run_id, owner, state, unsettled, record) VALUES (?, ?, ?, ?, ?)")
        .run(run.runId, run.owner, run.phase.state, unsettled(run), this.#sealed(run));
      this.#append(change);
      const surplus = this.#database
        .prepare(
          `SELECT run_id FROM runs WHERE owner = ?1 AND unsettled = 0 ORDER BY position
           LIMIT max(0, (SELECT settled FROM run_counts WHERE owner = ?1) - ?2)`,
        )
        .all(run.owner, quota.runs)
        .map(({ run_id }) => String(run_id));
      for (const runId of surplus) this.#displace(runId, change);
      return [...surplus, ...this.#fit(change, quota.bytes)];
    });
  }

  get(owner: string, runId: string): Run | undefined {
    const row = this.#database
      .prepare("SELECT record FROM runs WHERE run_id = ? AND owner = ?")
      .get(runId, owner);
    return row && this.#record<Run>(row);
  }

  /**
   * Writes a change of an existing run. With `maxBytes`, removes the owner's oldest other runs as {@link add} does.
   * Returns the ids of those that it removed.
   * @throws `NO_SPACE` if the remaining runs take more than `maxBytes`, unless the run has ended; nothing has changed then
   */
  save(change: RunChange, maxBytes = Number.POSITIVE_INFINITY): string[] {
    const { run } = change;
    return this.#database.transaction(() => {
      this.#database
        .prepare("UPDATE runs SET state = ?, unsettled = ?, record = ? WHERE run_id = ?")
        .run(run.phase.state, unsettled(run), this.#sealed(run), run.runId);
      this.#append(change);
      return this.#fit(change, maxBytes);
    });
  }

  /**
   * Removes a run: from now on nobody finds it, and nothing of it counts. Everything that belongs to it stays in the
   * database until {@link purge} deletes it.
   */
  remove(runId: string): void {
    this.#database.transaction(() => {
      this.#run("UPDATE run_sizes SET bytes = 0 WHERE run_id = ?", runId);
      this.#run("DELETE FROM run_sizes WHERE run_id = ?", runId);
      // Before it has another owner, because settled runs are counted.
      this.#run("UPDATE runs SET unsettled = 1 WHERE run_id = ?", runId);
      this.#run("UPDATE runs SET owner = ? WHERE run_id = ?", NOBODY, runId);
    });
  }

  /** Deletes a part of what removed runs left. Returns whether there is more. */
  purge(): boolean {
    return this.#database.transaction(() => {
      const runs = this.#database.prepare("SELECT run_id FROM runs WHERE owner = ? LIMIT 1");
      for (let left = PURGED_BYTES; left > 0; left -= ROW_BYTES) {
        const runId = runs.get(NOBODY)?.run_id;
        if (runId === undefined) return false;
        for (const part of PARTS) {
          const { keys, bytes } = this.#oldest(String(runId), part, left);
          this.#delete(String(runId), part, keys);
          left -= bytes;
        }
        if (left > 0) this.#run("DELETE FROM runs WHERE run_id = ?", String(runId));
      }
      return true;
    });
  }

  /**
   * Deletes the oldest steps of a run whose steps are about to be cleared, unless they are so few that they can be cleared
   * at once. Returns whether it did; then call it again, in another turn of the event loop.
   */
  clearSomeSteps(runId: string): boolean {
    const { keys, bytes } = this.#oldest(runId, STEPS, PURGED_BYTES);
    if (bytes < PURGED_BYTES) return false;
    this.#database.transaction(() => this.#delete(runId, STEPS, keys));
    return true;
  }

  #delete(runId: string, [table, , key]: Part, keys: readonly number[]): void {
    for (const each of keys) this.#run(`DELETE FROM ${table} WHERE run_id = ? AND ${key} = ?`, runId, each);
  }

  /** The oldest rows of a run, until they have as many bytes, and how many they have. */
  #oldest(runId: string, [table, column, key]: Part, upTo: number): { keys: number[]; bytes: number } {
    const oldest = { keys: [] as number[], bytes: 0 };
    const rows = this.#database.prepare(
      `SELECT ${key} AS key, octet_length(${column}) AS bytes FROM ${table} WHERE run_id = ? ORDER BY ${key}`,
    );
    for (const row of rows.iterate(runId)) {
      if (oldest.bytes >= upTo) break;
      oldest.keys.push(Number(row.key));
      oldest.bytes += Number(row.bytes) + ROW_BYTES;
    }
    return oldest;
  }

  /** Newest first. Fewer than `limit` if they are large. */
  list({ owner, states, limit, before = Number.MAX_SAFE_INTEGER }: RunQuery): RunList {
    // One state at a time, each along its index: for several states at once, SQLite would read and sort all matches.
    const parts =
      states.size === 0
        ? [this.#newest(limit, LIST, owner, before)]
        : [...states].map((state) => this.#newest(limit, LIST_STATE, owner, state, before));
    // Rows that one part leaves out may be newer than rows of other parts, so cut the others there.
    const from = Math.max(0, ...parts.map(({ rows, more }) => (more ? Number(rows.at(-1)?.position) : 0)));
    const rows = parts
      .flatMap((part) => part.rows)
      .filter(({ position }) => Number(position) >= from)
      .sort((a, b) => Number(b.position) - Number(a.position));
    const runs = rows.slice(0, limit).map((row) => {
      const run = this.#record<Run>(row);
      return { run, position: Number(row.position), messageCount: this.messageCount(run.runId) };
    });
    return { runs, more: from > 0 || rows.length > limit };
  }

  /** The first rows, at least one, and whether there are more. */
  #newest(limit: number, sql: string, ...values: (string | number)[]): { rows: Row[]; more: boolean } {
    const rows: Row[] = [];
    let bytes = 0;
    for (const row of this.#database.prepare(sql).iterate(...values, limit + 1)) {
      if (rows.length === limit || bytes > MAX_SLICE_BYTES) return { rows, more: true };
      rows.push(row);
      bytes += String(row.record).length;
    }
    return { rows, more: false };
  }

  /** The first rows with their opened texts, at least one, until these have `maxBytes`. */
  #firstTexts(
    maxBytes: number,
    sql: string,
    ...values: (string | number)[]
  ): { readonly row: Row; readonly text: string }[] {
    const first: { row: Row; text: string }[] = [];
    let bytes = 0;
    for (const row of this.#database.prepare(sql).iterate(...values)) {
      const text = this.#database.seal.openText(row.text);
      first.push({ row, text });
      bytes += Buffer.byteLength(text);
      if (bytes >= maxBytes) break;
    }
    return first;
  }

  /** Runs of all owners that are RUNNING, or whose sandbox must still be cleaned up. */
  unsettled(): Run[] {
    return this.#database
      .prepare("SELECT record FROM runs WHERE unsettled = 1 AND owner <> ? ORDER BY position")
      .all(NOBODY)
      .map((row) => this.#record<Run>(row));
  }

  /** The newest steps, in order: at least one, and others until they have 1 MiB together, as JSON. */
  steps(runId: string): RunStep[] {
    return this.#firstTexts(
      MAX_DETAIL_BYTES,
      "SELECT record AS text FROM run_steps WHERE run_id = ? ORDER BY step DESC",
      runId,
    )
      .reverse()
      .map(({ text }) => JSON.parse(text) as RunStep);
  }

  /**
   * The newest of the 100 kept messages, in order: at least one, and others until they have 1 MiB together.
   * @param skip how many of the newest to leave out
   */
  messages(runId: string, skip = 0): RunMessage[] {
    return this.#firstTexts(
      MAX_DETAIL_BYTES,
      "SELECT content AS text, role FROM run_messages WHERE run_id = ? ORDER BY position DESC LIMIT -1 OFFSET ?",
      runId,
      skip,
    )
      .reverse()
      .map(({ row, text }) => ({ role: row.role as RunMessage["role"], content: text }));
  }

  /**
   * All kept messages, for a search of those of the assistant with this content: others have none. Opening all of a long
   * conversation takes a tenth of a second, so only digests are opened, of messages of the same length.
   */
  messagesLike(runId: string, wanted: string): RunMessage[] {
    const { seal } = this.#database;
    const digest = digestOf(wanted);
    // Only messages that an earlier version stored have no digest.
    const isWanted = (row: Row): boolean =>
      row.digest === null ? seal.openText(row.content) === wanted : seal.openText(row.digest) === digest;
    return this.#database
      .prepare(
        `SELECT role, may_equal, digest, CASE WHEN may_equal AND digest IS NULL THEN content END AS content
         FROM (
           SELECT *, role = 'ASSISTANT' AND octet_length(content) IN (?, ?) AS may_equal
           FROM run_messages WHERE run_id = ?
         ) ORDER BY position`,
      )
      .all(Buffer.byteLength(wanted), seal.text(wanted).length, runId)
      .map((row) => ({
        role: row.role as RunMessage["role"],
        content: row.may_equal && isWanted(row) ? wanted : "",
      }));
  }

  messageCount(runId: string): number {
    return this.#number("SELECT count(*) AS number FROM run_messages WHERE run_id = ?", runId);
  }

  /**
   * Events after a sequence, in order: at least one, and others until they are `limit` or have 64 KiB together, as JSON.
   * The newest 1,000 of a run are kept.
   */
  events(runId: string, afterSequence: number, limit: number): RunEvent[] {
    return this.#firstTexts(
      MAX_BATCH_BYTES,
      "SELECT sequence, record AS text FROM run_events WHERE run_id = ? AND sequence > ? ORDER BY sequence LIMIT ?",
      runId,
      afterSequence,
      limit,
    ).map(eventOf);
  }

  /** The newest events, in order: at least one, and others until they have 1 MiB together, as JSON. */
  newestEvents(runId: string): RunEvent[] {
    return this.#firstTexts(
      MAX_DETAIL_BYTES,
      "SELECT sequence, record AS text FROM run_events WHERE run_id = ? ORDER BY sequence DESC",
      runId,
    )
      .reverse()
      .map(eventOf);
  }

  /** Sequence of the newest event. 0: there is none, or the run was removed. */
  newestEvent(runId: string): number {
    return this.#number(
      `SELECT sequence AS number FROM run_events
       WHERE run_id = ?1 AND NOT EXISTS (SELECT 1 FROM runs WHERE run_id = ?1 AND owner = '${NOBODY}')
       ORDER BY sequence DESC LIMIT 1`,
      runId,
    );
  }

  /** Removes an owner's oldest runs, except the given one, until all fit or enough are removed for one write. */
  #fit(change: RunChange, maxBytes: number): string[] {
    const { run } = change;
    const { owner, runId } = run;
    const removed: string[] = [];
    while (removed.length < MAX_REMOVED) {
      const bytes = this.#bytesOf(owner);
      if (bytes <= maxBytes) break;
      const oldest = this.#database
        .prepare(
          "SELECT run_id FROM runs WHERE owner = ? AND unsettled = 0 AND run_id <> ? ORDER BY position LIMIT 1",
        )
        .get(owner, runId);
      if (oldest === undefined) {
        // How a run ended is not lost; the run makes room for the next change.
        if (endOf(run) !== undefined) break;
        throw full(bytes, maxBytes);
      }
      this.#displace(String(oldest.run_id), change);
      removed.push(String(oldest.run_id));
    }
    return removed;
  }

  #displace(runId: string, { onDisplace }: RunChange): void {
    onDisplace?.(runId);
    this.remove(runId);
  }

  #bytesOf(owner: string): number {
    const row = this.#database.prepare("SELECT bytes FROM run_counts WHERE owner = ?").get(owner);
    return Number(row?.bytes ?? 0);
  }

  #append(change: RunChange): void {
    const { runId } = change.run;
    if (change.clearSteps) this.#run("DELETE FROM run_steps WHERE run_id = ?", runId);
    if (change.addStep !== undefined) {
      const { step } = change.addStep;
      this.#run(
        "INSERT INTO run_steps (run_id, step, record) VALUES (?, ?, ?)",
        runId,
        step,
        this.#sealed(change.addStep),
      );
    }
    this.#addMessages(change);
    this.#addEvents(change);
  }

  #addMessages({ run: { runId }, clearMessages, addMessages = [] }: RunChange): void {
    if (clearMessages) this.#run("DELETE FROM run_messages WHERE run_id = ?", runId);
    const { seal } = this.#database;
    for (const { role, content } of addMessages) {
      this.#run(
        "INSERT INTO run_messages (run_id, role, digest, content) VALUES (?, ?, ?, ?)",
        runId,
        role,
        role === "ASSISTANT" ? seal.text(digestOf(content)) : null,
        seal.text(content),
      );
    }
    if (addMessages.length === 0) return;
    this.#run(
      `DELETE FROM run_messages WHERE run_id = ?1 AND position <= (
         SELECT position FROM run_messages WHERE run_id = ?1 ORDER BY position DESC LIMIT 1 OFFSET ?2)`,
      runId,
      MAX_MESSAGES,
    );
  }

  #addEvents(change: RunChange): void {
    if (change.events.length === 0) return;
    const { runId } = change.run;
    const newest = this.newestEvent(runId);
    for (const { sequence, ...event } of eventsOf(change, newest)) {
      this.#run(
        "INSERT INTO run_events (run_id, sequence, record) VALUES (?, ?, ?)",
        runId,
        sequence,
        this.#sealed(event),
      );
    }
    this.#run(
      "DELETE FROM run_events WHERE run_id = ? AND sequence <= ?",
      runId,
      newest + change.events.length - KEPT_EVENTS,
    );
  }

  #sealed(record: unknown): string {
    return this.#database.seal.text(JSON.stringify(record));
  }

  #record<T>(row: Row): T {
    return JSON.parse(this.#database.seal.openText(row.record)) as T;
  }

  #run(sql: string, ...values: (string | number | null)[]): void {
    this.#database.prepare(sql).run(...values);
  }

  #number(sql: string, runId: string): number {
    return Number(this.#database.prepare(sql).get(runId)?.number ?? 0);
  }
}

/** The events of a change, after the one with the given sequence. */
export function eventsOf({ run, events, timeMs }: RunChange, newest: number): RunEvent[] {
  return events.map((body, index) => {
    // A sandbox that is deleted at the end of its run does not appear in the event.
    const gone = body.type === "ENDED" && run.settings.onEnd === "DELETE_SANDBOX";
    return {
      sequence: newest + index + 1,
      timeMs,
      state: run.phase.state,
      currentStep: currentStep(run),
      sandboxId: gone ? "" : (sandboxOf(run) ?? ""),
      body,
    };
  });
}

function eventOf({ row, text }: { readonly row: Row; readonly text: string }): RunEvent {
  return { ...(JSON.parse(text) as RunEvent), sequence: Number(row.sequence) };
}

function digestOf(content: string): string {
  return createHash("sha256").update(content).digest("base64");
}

function full(bytes: number, maxBytes: number): BerthError {
  return new BerthError(
    "NO_SPACE",
    `The running runs of this owner would take ${mib(bytes)} of the server's disk with their steps, messages and events; ${mib(maxBytes)} are allowed (--run-owner-quota). Nothing was changed. End or delete runs, or report shorter messages.`,
  );
}

function mib(bytes: number): string {
  return `${(bytes / 2 ** 20).toFixed(1)} MiB`;
}

/** Whether the service must recover or clean up the run when it starts. */
function unsettled({ phase, sandbox }: Run): number {
  return phase.state === "RUNNING" || (sandbox !== undefined && sandbox.use !== "LEFT") ? 1 : 0;
}
