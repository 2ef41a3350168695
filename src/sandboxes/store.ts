import { BerthError } from "../base/errors.ts";
import type { EngineSandbox } from "../engine/port.ts";
import type { Database } from "../state/database.ts";
import { SEALED_HEAD_LENGTH } from "../state/seal.ts";
import type { SandboxSpec, StoredSpec, Termination } from "./sandbox.ts";

/** The phase of a stored sandbox. */
export type StoredPhase =
  /** Its container may exist, completely, partly or not at all. */
  | { readonly state: "CREATING" }
  | { readonly state: "RUNNING" | "PAUSED"; readonly engine: EngineSandbox }
  | { readonly state: "DELETING"; readonly engine: EngineSandbox; readonly termination: Termination }
  | { readonly state: "TERMINATED"; readonly termination: Termination; readonly endedAt: number };

/** `…TimeMs` is wall time. `…At` is service time, which deadlines are based on. */
export interface SandboxTimes {
  readonly createTimeMs: number;
  readonly createdAt: number;
  readonly usedTimeMs: number;
  readonly usedAt: number;
}

/** A sandbox as it is stored. */
export interface StoredSandbox extends SandboxTimes {
  readonly owner: string;
  readonly sandboxId: string;
  readonly generation: number;
  /** Increases with every sandbox created, also for the same id. Never reused. */
  readonly place: number;
  readonly spec: SandboxSpec;
  readonly phase: StoredPhase;
}

/**
 * A sandbox as loaded from the store. The spec is read on demand: most sandboxes have ended, and their specs are never
 * needed.
 */
export type FoundSandbox = Omit<StoredSandbox, "spec"> & {
  /** Reads its spec, while the sandbox is in the store. */
  readonly spec: () => SandboxSpec;
};

const LOAD = `
  SELECT place, owner, sandbox_id, generation, phase, substr(spec, 1, ${SEALED_HEAD_LENGTH}) AS spec_head,
    create_time_ms, created_at, used_time_ms, used_at
  FROM sandboxes ORDER BY place`;

/**
 * The second conflict is with a later sandbox with the same id. A late write of an earlier sandbox must not change it.
 */
const PUT = `
  INSERT INTO sandboxes (place, owner, sandbox_id, generation, state, phase, spec, create_time_ms, created_at, used_time_ms, used_at)
  VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
  ON CONFLICT (place) DO UPDATE SET
    state = excluded.state, phase = excluded.phase, spec = excluded.spec,
    used_time_ms = excluded.used_time_ms, used_at = excluded.used_at
  ON CONFLICT (owner, sandbox_id) DO NOTHING`;

/** The sandboxes in the database. Every write may throw `NO_SPACE`, and then has changed nothing. */
export class SandboxStore {
  readonly #database: Database;

  constructor(database: Database) {
    this.#database = database;
  }

  /** All sandboxes, in the order of their creation. @throws `INVALID_ARGUMENT` if another key sealed them */
  load(): FoundSandbox[] {
    return Array.from(this.#database.prepare(LOAD).iterate(), (row) => this.#found(row));
  }

  /** The engine's refs of the sandboxes that have not ended. */
  refs(): string[] {
    const rows = this.#database.prepare("SELECT phase FROM sandboxes WHERE state <> 'TERMINATED'").all();
    const phases = rows.map((row) => JSON.parse(String(row.phase)) as StoredPhase);
    return phases.flatMap((phase) => ("engine" in phase ? phase.engine.ref : []));
  }

  /** The largest place ever used; 0 if none was. */
  lastPlace(): number {
    const row = this.#database.prepare("SELECT seq FROM sqlite_sequence WHERE name = 'sandboxes'").get();
    return Number(row?.seq ?? 0);
  }

  /** Stores a sandbox, replacing an earlier one with the same id. If a later one is stored, nothing changes. */
  put(sandbox: StoredSandbox): void {
    const { owner, sandboxId, generation, place, phase, spec } = sandbox;
    this.#database.transaction(() => {
      this.#database
        .prepare("DELETE FROM sandboxes WHERE owner = ? AND sandbox_id = ? AND place < ?")
        .run(owner, sandboxId, place);
      this.#database
        .prepare(PUT)
        .run(
          place,
          owner,
          sandboxId,
          generation,
          phase.state,
          JSON.stringify(phase),
          this.#database.seal.text(JSON.stringify(spec)),
          sandbox.createTimeMs,
          sandbox.createdAt,
          sandbox.usedTimeMs,
          sandbox.usedAt,
        );
    });
  }

  /** Stores when a sandbox was last used. */
  putUsed({ place, usedTimeMs, usedAt }: Pick<StoredSandbox, "place" | "usedTimeMs" | "usedAt">): void {
    this.#database
      .prepare("UPDATE sandboxes SET used_time_ms = ?, used_at = ? WHERE place = ?")
      .run(usedTimeMs, usedAt, place);
  }

  remove(place: number): void {
    this.#database.prepare("DELETE FROM sandboxes WHERE place = ?").run(place);
  }

  #found(row: Record<string, unknown>): FoundSandbox {
    this.#database.seal.checkOwn(row.spec_head);
    const place = Number(row.place);
    return {
      owner: String(row.owner),
      sandboxId: String(row.sandbox_id),
      generation: Number(row.generation),
      place,
      phase: JSON.parse(String(row.phase)) as StoredPhase,
      spec: () => this.spec(place),
      createTimeMs: Number(row.create_time_ms),
      createdAt: Number(row.created_at),
      usedTimeMs: Number(row.used_time_ms),
      usedAt: Number(row.used_at),
    };
  }

  /** @throws `INTERNAL` if the sandbox is not stored. */
  spec(place: number): SandboxSpec {
    const row = this.#database.prepare("SELECT spec FROM sandboxes WHERE place = ?").get(place);
    if (row === undefined) throw new BerthError("INTERNAL", "The sandbox is no longer in the database.");
    return specFrom(this.#database.seal.openText(row.spec));
  }
}

function specFrom(text: string): SandboxSpec {
  const { egressDomains = [], secretEnv = {}, ...spec } = JSON.parse(text) as StoredSpec;
  return { ...spec, egressDomains, secretEnv };
}
