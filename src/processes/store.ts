import type { LeasedSandbox } from "../sandboxes/lease.ts";
import type { Database } from "../state/database.ts";
import type { ExitStatus, ProcessOptions } from "./record.ts";
import type { JobTrace, LeaderId } from "./shell/job.ts";
import type { StoredPlace } from "./spill.ts";
import type { Block, Offsets } from "./transcript-reader.ts";

/** A process as it is stored. */
export interface StoredProcess {
  readonly processId: string;
  /** In service time, milliseconds; undefined: it runs, as far as known. */
  readonly endedAt: number | undefined;
  /** {@link ProcessFacts} as JSON. */
  readonly facts: string;
  /** {@link StoredBlock}s, serialized by `node:v8`; empty for none. */
  readonly transcript: Uint8Array;
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
  INSERT INTO processes (process_id, ended_at, facts, transcript) VALUES (?, ?, ?, ?)
  ON CONFLICT (process_id) DO UPDATE SET
    ended_at = excluded.ended_at, facts = excluded.facts, transcript = excluded.transcript`;

/** The SQL of processes. A write that throws `NO_SPACE` has changed nothing. */
export class ProcessStore {
  readonly #database: Database;

  constructor(database: Database) {
    this.#database = database;
  }

  /** All, oldest first. */
  load(): StoredProcess[] {
    const { seal } = this.#database;
    const rows = this.#database.prepare("SELECT * FROM processes ORDER BY place").all();
    return rows.map((row) => ({
      processId: String(row.process_id),
      endedAt: row.ended_at === null ? undefined : Number(row.ended_at),
      facts: seal.openText(row.facts),
      transcript: seal.open(row.transcript as Uint8Array),
    }));
  }

  put({ processId, endedAt, facts, transcript }: StoredProcess): void {
    const { seal } = this.#database;
    this.#database.prepare(PUT).run(processId, endedAt ?? null, seal.text(facts), seal.bytes(transcript));
  }

  remove(processId: string): void {
    this.#database.prepare("DELETE FROM processes WHERE process_id = ?").run(processId);
  }
}
