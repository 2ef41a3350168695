import type { LeasedSandbox } from "../sandboxes/lease.ts";
import type { Database } from "../state/database.ts";
import { SEALED_HEAD_LENGTH } from "../state/seal.ts";
import type { ExitStatus, ProcessOptions } from "./record.ts";
import type { JobTrace, LeaderId } from "./shell/job.ts";
import type { StdinProgress } from "./stdin-writer.ts";
import type { Offsets } from "./transcript-reader.ts";

/** A process as it is stored. */
export interface StoredProcess {
  readonly processId: string;
  /** In service time, in milliseconds; undefined: it still runs, as far as is known. */
  readonly endedAt: number | undefined;
  /** Undefined before its end. */
  readonly summary: ProcessSummary | undefined;
  /** {@link ProcessFacts} as JSON. */
  readonly facts: string;
  /** For `readBlocks`. */
  readonly transcript: Uint8Array;
}

/**
 * What lists and limits need to know about an ended process. It contains only ids, times and sizes, because it is not
 * sealed.
 */
export interface ProcessSummary {
  readonly sandbox: Pick<LeasedSandbox, "owner" | "sandboxId" | "generation">;
  readonly startTimeMs: number;
  /** How much memory its command uses. */
  readonly commandBytes: number;
  /** How many bytes its output takes in memory and on disk. */
  readonly heldBytes: number;
  /** Files of its output, in the directory of transcripts. */
  readonly files: readonly string[];
}

/** An ended process, as listed at start. */
export interface SummarizedProcess extends ProcessSummary {
  readonly processId: string;
  /** In service time, in milliseconds. */
  readonly endedAt: number;
}

/** What is stored of a process, except for its output. */
export interface ProcessFacts {
  readonly sandbox: Pick<LeasedSandbox, "owner" | "sandboxId" | "generation">;
  readonly options: ProcessOptions;
  readonly user: string;
  readonly hasTerminal: boolean;
  readonly startTimeMs: number;
  /** In service time. */
  readonly startedAt: number;
  /** Undefined: not known to run yet. */
  readonly leader: LeaderId | undefined;
  /** When it got its leader, in service time. Processes of one shell ran in this order. Absent before that. */
  readonly ranAt?: number;
  /** Absent once it has ended. */
  readonly trace?: JobTrace | undefined;
  /** Absent without stdin, and once it has ended. */
  readonly stdin?: StdinProgress;
  readonly status: ExitStatus | undefined;
  readonly written: Offsets;
  /** See {@link ProcessInit.recoveredAt}. Absent if it is empty. */
  readonly recoveredAt?: readonly Offsets[];
}

const PUT = `
  INSERT INTO processes (process_id, ended_at, summary, facts, transcript) VALUES (?, ?, ?, ?, ?)
  ON CONFLICT (process_id) DO UPDATE SET
    ended_at = excluded.ended_at, summary = excluded.summary, facts = excluded.facts, transcript = excluded.transcript`;

const ENDED = `
  SELECT process_id, ended_at, summary, substr(facts, 1, ${SEALED_HEAD_LENGTH}) AS facts_head
  FROM processes WHERE summary IS NOT NULL ORDER BY ended_at, place`;

const UNSUMMARIZED = `
  SELECT * FROM processes WHERE summary IS NULL ORDER BY ended_at IS NULL, ended_at, place`;

/** The SQL for processes. A write that throws `NO_SPACE` has changed nothing. */
export class ProcessStore {
  readonly #database: Database;

  constructor(database: Database) {
    this.#database = database;
  }

  /** Ended processes, in the order of their ends. @throws `INVALID_ARGUMENT` if another key sealed them */
  ended(): SummarizedProcess[] {
    const { seal } = this.#database;
    return Array.from(this.#database.prepare(ENDED).iterate(), (row) => {
      seal.checkOwn(row.facts_head);
      const summary = JSON.parse(String(row.summary)) as ProcessSummary;
      return { processId: String(row.process_id), endedAt: Number(row.ended_at), ...summary };
    });
  }

  /**
   * All other processes: first those that an earlier version stored, then those that were running when they were
   * stored.
   */
  unsummarized(): StoredProcess[] {
    const rows = this.#database.prepare(UNSUMMARIZED).all();
    return rows.map((row) => this.#fromRow(row));
  }

  get(processId: string): StoredProcess | undefined {
    const row = this.#database.prepare("SELECT * FROM processes WHERE process_id = ?").get(processId);
    return row && this.#fromRow(row);
  }

  put({ processId, endedAt, summary, facts, transcript }: StoredProcess): void {
    const { seal } = this.#database;
    this.#database
      .prepare(PUT)
      .run(
        processId,
        endedAt ?? null,
        summary === undefined ? null : JSON.stringify(summary),
        seal.text(facts),
        seal.bytes(transcript),
      );
  }

  remove(processId: string): void {
    this.#database.prepare("DELETE FROM processes WHERE process_id = ?").run(processId);
  }

  #fromRow(row: Record<string, unknown>): StoredProcess {
    const { seal } = this.#database;
    return {
      processId: String(row.process_id),
      endedAt: row.ended_at === null ? undefined : Number(row.ended_at),
      summary: row.summary === null ? undefined : (JSON.parse(String(row.summary)) as ProcessSummary),
      facts: seal.openText(row.facts),
      transcript: seal.open(row.transcript as Uint8Array),
    };
  }
}
