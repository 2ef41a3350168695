import type { SandboxStore, StoredPhase, StoredSandbox } from "../../core/ports/sandbox-store.ts";
import type { SandboxSpec } from "../../core/sandbox/sandbox.ts";
import type { Database } from "./database.ts";

const PUT = `
  INSERT INTO sandboxes (owner, sandbox_id, generation, state, phase, spec, create_time_ms, created_at, used_time_ms, used_at)
  VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
  ON CONFLICT (owner, sandbox_id) DO UPDATE SET
    state = excluded.state, phase = excluded.phase, spec = excluded.spec,
    used_time_ms = excluded.used_time_ms, used_at = excluded.used_at`;

/** Sandboxes in SQLite. */
export class SqliteSandboxStore implements SandboxStore {
  readonly #database: Database;

  constructor(database: Database) {
    this.#database = database;
  }

  load(): StoredSandbox[] {
    return this.#database.prepare("SELECT * FROM sandboxes ORDER BY place").all().map(fromRow);
  }

  put(sandbox: StoredSandbox): void {
    const { owner, sandboxId, generation, phase, spec } = sandbox;
    this.#database.transaction(() => {
      // Another life under the same id is a row of its own: its place is behind the others.
      this.#database
        .prepare("DELETE FROM sandboxes WHERE owner = ? AND sandbox_id = ? AND generation <> ?")
        .run(owner, sandboxId, generation);
      this.#database
        .prepare(PUT)
        .run(
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

  putUsed({ owner, sandboxId, generation, usedTimeMs, usedAt }: StoredSandbox): void {
    this.#database
      .prepare(
        "UPDATE sandboxes SET used_time_ms = ?, used_at = ? WHERE owner = ? AND sandbox_id = ? AND generation = ?",
      )
      .run(usedTimeMs, usedAt, owner, sandboxId, generation);
  }

  remove(owner: string, sandboxId: string, generation: number): void {
    this.#database
      .prepare("DELETE FROM sandboxes WHERE owner = ? AND sandbox_id = ? AND generation = ?")
      .run(owner, sandboxId, generation);
  }
}

function fromRow(row: Record<string, unknown>): StoredSandbox {
  return {
    owner: String(row.owner),
    sandboxId: String(row.sandbox_id),
    generation: Number(row.generation),
    phase: JSON.parse(String(row.phase)) as StoredPhase,
    spec: JSON.parse(String(row.spec)) as SandboxSpec,
    createTimeMs: Number(row.create_time_ms),
    createdAt: Number(row.created_at),
    usedTimeMs: Number(row.used_time_ms),
    usedAt: Number(row.used_at),
  };
}
