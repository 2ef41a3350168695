import type { LeasedSandbox } from "../sandboxes/lease.ts";
import type { Database } from "../state/database.ts";
import { SEALED_HEAD_LENGTH } from "../state/seal.ts";
import type { ExitStatus, ProcessOptions } from "./record.ts";
import type { JobTrace, LeaderId } from "./shell/job.ts";
import type { StoredPlace } from "./spill.ts";
import type { Block, Offsets } from "./transcript-reader.ts";

/** A process as it is stored. */
export interface StoredProcess {
  readonly processId: string;
  /** In service time, milliseconds; undefined: it runs, as far as known. */
  readonly endedAt: number | undefined;
  /** Undefined before its end. */
  readonly summary: ProcessSummary | undefined;
  /** {@link ProcessFacts} as JSON. */
  readonly facts: string;
  /** {@link StoredBlock}s, serialized by `node:v8`; empty for none. */
  readonly transcript: Uint8Array;
}

/** What lists and bounds need of a process that has ended: no more than ids, times and sizes, since it is not sealed. */
export interface ProcessSummary {
  readonly sandbox: Pick<LeasedSandbox, "owner" | "sandboxId" | "generation">;
  readonly startTimeMs: number;
  /** What its command takes in memory. */
  readonly commandBytes: number;
  /** What its output takes in memory and on disk. */
  readonly heldBytes: number;
  /** Of its output, in the directory of transcripts. */
  readonly files: readonly string[];
}

/** A process that has ended, as a list of them gives it. */
export interface SummarizedProcess extends ProcessSummary {
  readonly processId: string;
  /** In service time, milliseconds. */
  readonly endedAt: number;
}

/** What is stored of a process beside its output. */
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
  /** Absent once it has ended. */
  readonly trace?: JobTrace | undefined;
  readonly status: ExitStatus | undefined;
  readonly written: Offsets;
}

/** A block of output: where it is on disk, or its bytes. */
export type StoredBlock = Omit<Block, "content"> & { readonly content: StoredPlace | Uint8Array };

const PUT = `
  INSERT INTO processes (process_id, ended_at, summary, facts, transcript) VALUES (?, ?, ?, ?, ?)
  ON CONFLICT (process_id) DO UPDATE SET
    ended_at = excluded.ended_at, summary = excluded.summary, facts = excluded.facts, transcript = excluded.transcript`;

const ENDED = `
  SELECT process_id, ended_at, summary, substr(facts, 1, ${SEALED_HEAD_LENGTH}) AS facts_head
  FROM processes WHERE summary IS NOT NULL ORDER BY ended_at, place`;

const UNSUMMARIZED = `
  SELECT * FROM processes WHERE summary IS NULL ORDER BY ended_at IS NULL, ended_at, place`;

/** The SQL of processes. A write that throws `NO_SPACE` has changed nothing. */
export class ProcessStore {
  readonly #database: Database;

  constructor(database: Database) {
    this.#database = database;
  }

  /** Those that ended, in the order of their ends. @throws `INVALID_ARGUMENT` where another key sealed them */
  ended(): SummarizedProcess[] {
    const { seal } = this.#database;
    return Array.from(this.#database.prepare(ENDED).iterate(), (row) => {
      seal.checkOwn(row.facts_head);
      const summary = JSON.parse(String(row.summary)) as ProcessSummary;
      return { processId: String(row.process_id), endedAt: Number(row.ended_at), ...summary };
    });
  }

  /** The others: those that ran when they were stored, and before them those that an earlier version stored. */
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
