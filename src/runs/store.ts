import type { SQLOutputValue } from "node:sqlite";
import type { Database } from "../state/database.ts";
import { MOST_MESSAGES } from "./conversation.ts";
import { currentStep, type Run, type RunEvent, type RunMessage, type RunStep, sandboxOf } from "./run.ts";
import type { ListedRun, RunChange, RunQuery, RunStore } from "./store-port.ts";

/** Events of one run that are kept. */
const KEPT_EVENTS = 1_000;

const LIST =
  "SELECT position, record FROM runs WHERE owner = ? AND position < ? ORDER BY position DESC LIMIT ?";
const LIST_STATE =
  "SELECT position, record FROM runs WHERE owner = ? AND state = ? AND position < ? ORDER BY position DESC LIMIT ?";

type Row = Record<string, SQLOutputValue>;

/** {@link RunStore} in SQLite. */
export class SqliteRunStore implements RunStore {
  readonly #database: Database;

  constructor(database: Database) {
    this.#database = database;
  }

  add(change: RunChange, keep: number): void {
    const { run } = change;
    this.#database.transaction(() => {
      this.#database
        .prepare("INSERT INTO runs (run_id, owner, state, unsettled, record) VALUES (?, ?, ?, ?, ?)")
        .run(run.runId, run.owner, run.phase.state, unsettled(run), JSON.stringify(run));
      this.#append(change);
      this.#database
        .prepare(
          `DELETE FROM runs WHERE position IN (
             SELECT position FROM runs WHERE owner = ?1 AND unsettled = 0 ORDER BY position
             LIMIT max(0, (SELECT settled FROM run_counts WHERE owner = ?1) - ?2))`,
        )
        .run(run.owner, keep);
    });
  }

  get(owner: string, runId: string): Run | undefined {
    const row = this.#database
      .prepare("SELECT record FROM runs WHERE run_id = ? AND owner = ?")
      .get(runId, owner);
    return row && record<Run>(row);
  }

  save(change: RunChange): void {
    const { run } = change;
    this.#database.transaction(() => {
      this.#database
        .prepare("UPDATE runs SET state = ?, unsettled = ?, record = ? WHERE run_id = ?")
        .run(run.phase.state, unsettled(run), JSON.stringify(run), run.runId);
      this.#append(change);
    });
  }

  remove(runId: string): void {
    this.#database.transaction(() => {
      this.#database.prepare("DELETE FROM runs WHERE run_id = ?").run(runId);
    });
  }

  list({ owner, states, limit, before = Number.MAX_SAFE_INTEGER }: RunQuery): ListedRun[] {
    const newestFirst = (a: Row, b: Row): number => Number(b.position) - Number(a.position);
    // A state at a time, each along its index: asked for several at once, SQLite reads and sorts all that match.
    const rows =
      states.size === 0
        ? this.#database.prepare(LIST).all(owner, before, limit)
        : [...states]
            .flatMap((state) => this.#database.prepare(LIST_STATE).all(owner, state, before, limit))
            .sort(newestFirst)
            .slice(0, limit);
    return rows.map((row) => {
      const run = record<Run>(row);
      return { run, position: Number(row.position), messageCount: this.messageCount(run.runId) };
    });
  }

  unsettled(): Run[] {
    return this.#database
      .prepare("SELECT record FROM runs WHERE unsettled = 1 ORDER BY position")
      .all()
      .map((row) => record<Run>(row));
  }

  steps(runId: string): RunStep[] {
    return this.#database
      .prepare("SELECT record FROM run_steps WHERE run_id = ? ORDER BY step")
      .all(runId)
      .map((row) => record<RunStep>(row));
  }

  messages(runId: string): RunMessage[] {
    return this.#database
      .prepare("SELECT role, content FROM run_messages WHERE run_id = ? ORDER BY position")
      .all(runId)
      .map(({ role, content }) => ({ role: role as RunMessage["role"], content: String(content) }));
  }

  messageCount(runId: string): number {
    return this.#number("SELECT count(*) AS number FROM run_messages WHERE run_id = ?", runId);
  }

  events(runId: string, afterSequence: number, limit: number): RunEvent[] {
    return this.#database
      .prepare(
        "SELECT sequence, record FROM run_events WHERE run_id = ? AND sequence > ? ORDER BY sequence LIMIT ?",
      )
      .all(runId, afterSequence, limit)
      .map((row) => ({ ...record<RunEvent>(row), sequence: Number(row.sequence) }));
  }

  newestEvent(runId: string): number {
    return this.#number("SELECT max(sequence) AS number FROM run_events WHERE run_id = ?", runId);
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
        JSON.stringify(change.addStep),
      );
    }
    this.#say(change);
    this.#tell(change);
  }

  #say({ run: { runId }, clearMessages, addMessages = [] }: RunChange): void {
    if (clearMessages) this.#run("DELETE FROM run_messages WHERE run_id = ?", runId);
    for (const { role, content } of addMessages) {
      this.#run("INSERT INTO run_messages (run_id, role, content) VALUES (?, ?, ?)", runId, role, content);
    }
    if (addMessages.length === 0) return;
    this.#run(
      `DELETE FROM run_messages WHERE run_id = ?1 AND position <= (
         SELECT position FROM run_messages WHERE run_id = ?1 ORDER BY position DESC LIMIT 1 OFFSET ?2)`,
      runId,
      MOST_MESSAGES,
    );
  }

  #tell({ run, happened, timeMs }: RunChange): void {
    let sequence = happened.length === 0 ? 0 : this.newestEvent(run.runId);
    for (const happening of happened) {
      // A sandbox that goes with the end of its run is not its sandbox after it.
      const gone = happening.type === "ENDED" && run.settings.onEnd === "DELETE_SANDBOX";
      const event: Omit<RunEvent, "sequence"> = {
        timeMs,
        state: run.phase.state,
        currentStep: currentStep(run),
        sandboxId: gone ? "" : (sandboxOf(run) ?? ""),
        happening,
      };
      this.#run(
        "INSERT INTO run_events (run_id, sequence, record) VALUES (?, ?, ?)",
        run.runId,
        ++sequence,
        JSON.stringify(event),
      );
    }
    if (happened.length > 0) {
      this.#run(
        "DELETE FROM run_events WHERE run_id = ? AND sequence <= ?",
        run.runId,
        sequence - KEPT_EVENTS,
      );
    }
  }

  #run(sql: string, ...values: (string | number)[]): void {
    this.#database.prepare(sql).run(...values);
  }

  #number(sql: string, runId: string): number {
    return Number(this.#database.prepare(sql).get(runId)?.number ?? 0);
  }
}

function record<T>(row: Row): T {
  return JSON.parse(String(row.record)) as T;
}

/** Whether a service that starts has to look after the run. */
function unsettled({ phase, sandbox }: Run): number {
  return phase.state === "RUNNING" || (sandbox !== undefined && sandbox.use !== "LEFT") ? 1 : 0;
}
