import type { Database } from "../state/database.ts";
import type { SandboxSpec } from "./sandbox.ts";
import type { SandboxStore, StoredPhase, StoredSandbox } from "./store-port.ts";

/** The second conflict is with a later life under the id: what comes late of an earlier one does not touch it. */
const PUT = `
  INSERT INTO sandboxes (place, owner, sandbox_id, generation, state, phase, spec, create_time_ms, created_at, used_time_ms, used_at)
  VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
  ON CONFLICT (place) DO UPDATE SET
    state = excluded.state, phase = excluded.phase, spec = excluded.spec,
    used_time_ms = excluded.used_time_ms, used_at = excluded.used_at
  ON CONFLICT (owner, sandbox_id) DO NOTHING`;

/** Sandboxes in SQLite. */
export class SqliteSandboxStore implements SandboxStore {
  readonly #database: Database;

  constructor(database: Database) {
    this.#database = database;
  }

  load(): StoredSandbox[] {
    return this.#database.prepare("SELECT * FROM sandboxes ORDER BY place").all().map(fromRow);
  }

  lastPlace(): number {
    const row = this.#database.prepare("SELECT seq FROM sqlite_sequence WHERE name = 'sandboxes'").get();
    return Number(row?.seq ?? 0);
  }

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
          JSON.stringify(spec),
          sandbox.createTimeMs,
          sandbox.createdAt,
          sandbox.usedTimeMs,
          sandbox.usedAt,
        );
    });
  }

  putUsed({ place, usedTimeMs, usedAt }: StoredSandbox): void {
    this.#database
      .prepare("UPDATE sandboxes SET used_time_ms = ?, used_at = ? WHERE place = ?")
      .run(usedTimeMs, usedAt, place);
  }

  remove(place: number): void {
    this.#database.prepare("DELETE FROM sandboxes WHERE place = ?").run(place);
  }
}

function fromRow(row: Record<string, unknown>): StoredSandbox {
  return {
    owner: String(row.owner),
    sandboxId: String(row.sandbox_id),
    generation: Number(row.generation),
    place: Number(row.place),
    phase: JSON.parse(String(row.phase)) as StoredPhase,
    spec: JSON.parse(String(row.spec)) as SandboxSpec,
    createTimeMs: Number(row.create_time_ms),
    createdAt: Number(row.created_at),
    usedTimeMs: Number(row.used_time_ms),
    usedAt: Number(row.used_at),
  };
}
