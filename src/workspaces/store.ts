import { hasReason } from "../base/errors.ts";
import { MAX_SLICE_BYTES } from "../base/ordered-index.ts";
import type { Database } from "../state/database.ts";
import { sharedOf, type WorkspaceName } from "./workspace.ts";

/** The record of a workspace or a shared directory. Times are wall milliseconds. */
export interface WorkspaceRecord extends WorkspaceName {
  /** A small number that no other workspace ever had. Used as its project in file system quotas. */
  readonly number: number;
  /** Which directory of its volume is the current one. */
  readonly tree: number;
  /**
   * CREATING: its directory may not exist yet. FORKING, IMPORTING: it is being filled, and is removed unless that
   * completes. DELETING: it is being removed, and its references are already gone.
   */
  readonly state: "CREATING" | "FORKING" | "IMPORTING" | "ACTIVE" | "DELETING";
  /** The last sandbox that was created for it, which may have ended. Empty: none. */
  readonly sandboxId: string;
  readonly sizeBytes: number | undefined;
  readonly createTimeMs: number;
  readonly updateTimeMs: number;
}

/** A deletion, kept for a while after its end to answer retries. */
interface WorkspaceDeletion {
  readonly clearedRefs: number;
  /** Of the call that started it. Empty: none. */
  readonly requestId: string;
  /** Whether a caller has received the answer. */
  readonly answered: boolean;
  /** When it started, in service time: setting the wall clock must not change how long it is kept. */
  readonly timeMs: number;
}

interface Row {
  readonly number: number;
  readonly tree: number;
  readonly owner: string;
  readonly workspace_id: string;
  readonly state: string;
  readonly sandbox_id: string;
  readonly size_bytes: number | null;
  readonly create_time_ms: number;
  readonly update_time_ms: number;
}

const COLUMNS =
  "number, tree, owner, workspace_id, state, sandbox_id, size_bytes, create_time_ms, update_time_ms";
/** How many of an owner's workspaces are read at once: it may have any number of them. */
const AT_ONCE = 1_000;
/** What a reference costs an answer in addition to the bytes of its id, which may be as short as one. */
const REF_BYTES = 64;
const REFS_BYTES = `(SELECT total(octet_length(trace_id) + ${REF_BYTES}) FROM workspace_refs WHERE workspace_number = number)`;
const NUMBER = "(SELECT number FROM workspaces WHERE owner = ? AND workspace_id = ?)";

/**
 * The records of workspaces. Every method is one transaction, so its effect survives even if the service is killed
 * right after.
 */
export class WorkspaceStore {
  readonly #db: Database;
  /** The known sums of {@link ownerBytes}: an import asks for each of its files. Every change adds to them. */
  readonly #ownerBytes = new Map<string, number>();
  /** Sizes that could not be stored, by number: until the next one can, they count instead of the stored ones. */
  readonly #unstoredSizes = new Map<number, number>();

  constructor(db: Database) {
    this.#db = db;
  }

  find({ owner, workspaceId }: WorkspaceName): WorkspaceRecord | undefined {
    const row = this.#db
      .prepare(`SELECT ${COLUMNS} FROM workspaces WHERE owner = ? AND workspace_id = ?`)
      .get(owner, workspaceId);
    return row && this.#toRecord(row as unknown as Row);
  }

  /**
   * Workspaces of an owner with ids after `after`, in byte order, and whether there are more. Fewer than `limit` if they
   * have many references, but at least one.
   */
  page(
    owner: string,
    after: string,
    limit: number,
  ): { readonly records: readonly WorkspaceRecord[]; readonly more: boolean } {
    const records: WorkspaceRecord[] = [];
    let bytes = 0;
    const rows = this.#db
      .prepare(
        `SELECT ${COLUMNS}, ${REFS_BYTES} AS refs_bytes FROM workspaces WHERE owner = ? AND workspace_id > ? ORDER BY workspace_id LIMIT ?`,
      )
      .iterate(owner, after, limit + 1);
    for (const row of rows) {
      bytes += Number(row.refs_bytes);
      if (records.length === limit || (records.length > 0 && bytes > MAX_SLICE_BYTES))
        return { records, more: true };
      records.push(this.#toRecord(row as unknown as Row));
    }
    return { records, more: false };
  }

  /** The ids of an owner's workspaces. Reads some at a time, as they are then. */
  ids(owner: string): Generator<string> {
    const page = this.#db.prepare(
      `SELECT workspace_id FROM workspaces WHERE owner = ? AND workspace_id > ? ORDER BY workspace_id LIMIT ${AT_ONCE}`,
    );
    return inPages((last = "") => page.all(owner, last).map(({ workspace_id }) => String(workspace_id)));
  }

  /** All records of an owner, first that of its shared directory. Reads some at a time, as they are then. */
  *ofOwner(owner: string): Generator<WorkspaceRecord> {
    const shared = this.find(sharedOf(owner));
    if (shared !== undefined) yield shared;
    const where = "owner = ? AND workspace_id > ? ORDER BY workspace_id";
    yield* inPages<WorkspaceRecord>((last) => this.#page(where, owner, last?.workspaceId ?? ""));
  }

  /** The owners that have any. */
  owners(): string[] {
    return this.#db
      .prepare("SELECT DISTINCT owner FROM workspaces")
      .all()
      .map(({ owner }) => String(owner));
  }

  /** The total size of all that an owner has, as far as it has been measured. */
  ownerBytes(owner: string): number {
    const known = this.#ownerBytes.get(owner);
    if (known !== undefined) return known;
    const row = this.#db
      .prepare("SELECT total(size_bytes) AS bytes FROM workspaces WHERE owner = ?")
      .get(owner);
    const bytes =
      this.#unstoredSizes.size === 0
        ? Number(row?.bytes)
        : [...this.ofOwner(owner)].reduce((sum, { sizeBytes = 0 }) => sum + sizeBytes, 0);
    this.#ownerBytes.set(owner, bytes);
    return bytes;
  }

  /** The records of all owners, including shared directories. Reads some at a time, as they are then. */
  all(): Generator<WorkspaceRecord> {
    return inPages((last) => this.#page("number > ? ORDER BY number", last?.number ?? 0));
  }

  /** Adds a record. */
  insert(name: WorkspaceName, state: WorkspaceRecord["state"], timeMs: number): WorkspaceRecord {
    return this.#db.transaction(() => {
      this.#db
        .prepare(
          "INSERT INTO workspaces (owner, workspace_id, state, create_time_ms, update_time_ms) VALUES (?, ?, ?, ?, ?)",
        )
        .run(name.owner, name.workspaceId, state, timeMs, timeMs);
      return this.#get(name);
    });
  }

  /**
   * Adds a record in FORKING, which uses `sizeBytes` of its owner's quota from now on.
   * @param stored runs in the same transaction.
   */
  insertFork(
    name: WorkspaceName,
    sizeBytes: number,
    timeMs: number,
    stored: (record: WorkspaceRecord) => void,
  ): WorkspaceRecord {
    try {
      return this.#db.transaction(() => {
        this.insert(name, "FORKING", timeMs);
        this.setSize(name, sizeBytes);
        const record = this.#get(name);
        stored(record);
        return record;
      });
    } catch (error) {
      this.#ownerBytes.delete(name.owner);
      throw error;
    }
  }

  /** Records that its directory exists, and that an import is about to fill it. */
  setImporting(name: WorkspaceName): void {
    this.#update(name, "state = 'IMPORTING'");
  }

  /** Records that its directory exists, with everything that belongs in it. */
  activate(name: WorkspaceName): void {
    this.#update(name, "state = 'ACTIVE'");
  }

  setSandbox(name: WorkspaceName, sandboxId: string, timeMs: number): void {
    this.#update(name, "sandbox_id = ?, update_time_ms = ?", sandboxId, timeMs);
  }

  /** Keeps the size in memory if the disk is full: it was measured, whether it can be stored or not. */
  setSize(name: WorkspaceName, sizeBytes: number): void {
    const before = this.find(name);
    if (before === undefined) return;
    try {
      this.#update(name, "size_bytes = ?", sizeBytes);
      this.#unstoredSizes.delete(before.number);
    } catch (error) {
      if (!hasReason(error, "NO_SPACE")) throw error;
      this.#unstoredSizes.set(before.number, sizeBytes);
    }
    this.#addBytes(name.owner, sizeBytes - (before.sizeBytes ?? 0));
  }

  /** Records that another directory of its volume is the current one. */
  setTree(name: WorkspaceName, tree: number): void {
    this.#update(name, "tree = ?", tree);
  }

  /** Deletes the record and its references. */
  remove(name: WorkspaceName): void {
    const { owner, workspaceId } = name;
    const before = this.find(name);
    if (before === undefined) return;
    this.#db.transaction(() =>
      this.#db.prepare("DELETE FROM workspaces WHERE owner = ? AND workspace_id = ?").run(owner, workspaceId),
    );
    this.#unstoredSizes.delete(before.number);
    this.#addBytes(owner, -(before.sizeBytes ?? 0));
  }

  /** In byte order. */
  refs({ owner, workspaceId }: WorkspaceName): string[] {
    const rows = this.#db
      .prepare(`SELECT trace_id FROM workspace_refs WHERE workspace_number = ${NUMBER} ORDER BY trace_id`)
      .all(owner, workspaceId);
    return rows.map((row) => String(row.trace_id));
  }

  refCount({ owner, workspaceId }: WorkspaceName): number {
    const row = this.#db
      .prepare(`SELECT count(*) AS count FROM workspace_refs WHERE workspace_number = ${NUMBER}`)
      .get(owner, workspaceId);
    return Number(row?.count);
  }

  /** Adds a reference, or moves it here. @param also writes in the same transaction. */
  addRef(name: WorkspaceName, traceId: string, timeMs: number, also: () => void = () => {}): void {
    this.#db.transaction(() => {
      also();
      const previous = this.workspaceOf(name.owner, traceId);
      if (previous === name.workspaceId) return;
      this.#db
        .prepare(
          `INSERT INTO workspace_refs (owner, trace_id, workspace_number) VALUES (?, ?, ${NUMBER})
           ON CONFLICT (owner, trace_id) DO UPDATE SET workspace_number = excluded.workspace_number`,
        )
        .run(name.owner, traceId, name.owner, name.workspaceId);
      this.#touch(name, timeMs);
      if (previous !== undefined) this.#touch({ owner: name.owner, workspaceId: previous }, timeMs);
    });
  }

  /** Removes a reference if it belongs to this workspace. @param also writes in the same transaction. */
  removeRef(name: WorkspaceName, traceId: string, timeMs: number, also: () => void = () => {}): void {
    const { owner, workspaceId } = name;
    this.#db.transaction(() => {
      also();
      const { changes } = this.#db
        .prepare(
          `DELETE FROM workspace_refs WHERE owner = ? AND trace_id = ? AND workspace_number = ${NUMBER}`,
        )
        .run(owner, traceId, owner, workspaceId);
      if (changes > 0) this.#touch(name, timeMs);
    });
  }

  /** The workspace to which an owner's trace belongs. */
  workspaceOf(owner: string, traceId: string): string | undefined {
    const row = this.#db
      .prepare(
        `SELECT workspace_id FROM workspace_refs AS refs JOIN workspaces ON number = workspace_number
         WHERE refs.owner = ? AND trace_id = ?`,
      )
      .get(owner, traceId);
    return row && String(row.workspace_id);
  }

  /**
   * Puts it into DELETING and clears its references. If it already is in DELETING, the record of its deletion stays.
   */
  beginDeletion(name: WorkspaceName, requestId: string, timeMs: number): WorkspaceDeletion {
    const { owner, workspaceId } = name;
    return this.#db.transaction(() => {
      const started = this.#get(name).state === "DELETING" ? this.deletion(name) : undefined;
      if (started !== undefined) return started;
      const clearedRefs = this.refCount(name);
      this.#db
        .prepare(`DELETE FROM workspace_refs WHERE workspace_number = ${NUMBER}`)
        .run(owner, workspaceId);
      this.#update(name, "state = 'DELETING'");
      this.#db
        .prepare(
          "INSERT OR REPLACE INTO workspace_deletions (owner, workspace_id, cleared_refs, request_id, answered, time_ms) VALUES (?, ?, ?, ?, 0, ?)",
        )
        .run(owner, workspaceId, clearedRefs, requestId, timeMs);
      return { clearedRefs, requestId, answered: false, timeMs };
    });
  }

  /** The newest deletion of a workspace with this name. */
  deletion({ owner, workspaceId }: WorkspaceName): WorkspaceDeletion | undefined {
    const row = this.#db
      .prepare(
        "SELECT cleared_refs, request_id, answered, time_ms FROM workspace_deletions WHERE owner = ? AND workspace_id = ?",
      )
      .get(owner, workspaceId);
    return (
      row && {
        clearedRefs: Number(row.cleared_refs),
        requestId: String(row.request_id),
        answered: row.answered !== 0,
        timeMs: Number(row.time_ms),
      }
    );
  }

  /** Records that a caller was informed of the deletion. */
  answerDeletion({ owner, workspaceId }: WorkspaceName): void {
    this.#db.transaction(() =>
      this.#db
        .prepare("UPDATE workspace_deletions SET answered = 1 WHERE owner = ? AND workspace_id = ?")
        .run(owner, workspaceId),
    );
  }

  /** Removes the records of deletions that started before a time. */
  forgetDeletions(beforeMs: number): void {
    this.#db.transaction(() =>
      this.#db.prepare("DELETE FROM workspace_deletions WHERE time_ms < ?").run(beforeMs),
    );
  }

  #addBytes(owner: string, bytes: number): void {
    const known = this.#ownerBytes.get(owner);
    if (known !== undefined) this.#ownerBytes.set(owner, known + bytes);
  }

  #page(where: string, ...values: (string | number)[]): WorkspaceRecord[] {
    const rows = this.#db
      .prepare(`SELECT ${COLUMNS} FROM workspaces WHERE ${where} LIMIT ${AT_ONCE}`)
      .all(...values);
    return (rows as unknown as Row[]).map((row) => this.#toRecord(row));
  }

  #get(name: WorkspaceName): WorkspaceRecord {
    const record = this.find(name);
    if (record === undefined) throw new Error(`the store has no workspace ${JSON.stringify(name)}`);
    return record;
  }

  #touch(name: WorkspaceName, timeMs: number): void {
    this.#update(name, "update_time_ms = ?", timeMs);
  }

  #update({ owner, workspaceId }: WorkspaceName, change: string, ...values: (string | number)[]): void {
    this.#db.transaction(() =>
      this.#db
        .prepare(`UPDATE workspaces SET ${change} WHERE owner = ? AND workspace_id = ?`)
        .run(...values, owner, workspaceId),
    );
  }

  #toRecord(row: Row): WorkspaceRecord {
    return {
      number: row.number,
      tree: row.tree,
      owner: row.owner,
      workspaceId: row.workspace_id,
      state: row.state as WorkspaceRecord["state"],
      sandboxId: row.sandbox_id,
      sizeBytes: this.#unstoredSizes.get(row.number) ?? row.size_bytes ?? undefined,
      createTimeMs: row.create_time_ms,
      updateTimeMs: row.update_time_ms,
    };
  }
}

/** @param read reads the next {@link AT_ONCE} after the last one that was read. */
function* inPages<T>(read: (last?: T) => T[]): Generator<T> {
  for (let page = read(); ; page = read(page.at(-1))) {
    yield* page;
    if (page.length < AT_ONCE) return;
  }
}
