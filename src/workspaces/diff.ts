import { BerthError } from "../base/errors.ts";
import type { TemporaryNames } from "../files/temporary-names.ts";
import { compareTrees, type TreeChange } from "./compare.ts";
import type { WorkspaceStorage } from "./storage.ts";
import type { WorkspaceRecord } from "./store.ts";
import type { Transfers } from "./transfers.ts";
import { TreeEntries } from "./tree-entries.ts";
import { type WorkspaceName, workspaceKey } from "./workspace.ts";
import type { Workspaces } from "./workspaces.ts";

interface WorkspaceDiffParts {
  readonly workspaces: Workspaces;
  readonly storage: WorkspaceStorage;
  readonly transfers: Transfers;
  readonly names: TemporaryNames;
}

interface Tally {
  count: number;
  /** Of regular files. For modified ones: only those whose content differs. */
  bytes: number;
}

/** What a comparison found. */
interface DiffSummary {
  readonly added: Readonly<Tally>;
  readonly removed: Readonly<Tally>;
  readonly modified: Readonly<Tally>;
}

/** A part of a comparison's result. */
export type DiffItem =
  | { readonly type: "changes"; readonly changes: readonly TreeChange[] }
  | { readonly type: "summary"; readonly summary: DiffSummary };

/** The size of a full part, and how long its first change waits for more. */
const MAX_CHANGES = 500;
const MAX_NAME_BYTES = 64 * 1024;
const MAX_WAIT_MS = 1_000;

/** Compares workspaces. Reads both at the same time, and holds neither in memory. */
export class WorkspaceDiff {
  readonly #parts: WorkspaceDiffParts;

  constructor(parts: WorkspaceDiffParts) {
    this.#parts = parts;
  }

  /**
   * Yields the differences between `base` and `name`, and a summary at the end. Sandboxes may use both meanwhile.
   * @throws `WORKSPACE_NOT_FOUND`, `WORKSPACE_BROKEN`, `WORKSPACE_IN_USE`, `TOO_MANY_OPERATIONS`, `UNSUPPORTED`.
   */
  async *diff(base: WorkspaceName, name: WorkspaceName, signal: AbortSignal): AsyncGenerator<DiffItem> {
    const { workspaces, transfers } = this.#parts;
    using _ = transfers.stream(name.owner);
    const places = [await workspaces.findWhole(base), await workspaces.findWhole(name)] as const;
    const summary = { added: tally(), removed: tally(), modified: tally() };
    const left = new AbortController();
    if (workspaceKey(base) !== workspaceKey(name)) {
      try {
        const either = AbortSignal.any([signal, left.signal]);
        for await (const changes of inBatches(this.#compare(places, either))) {
          for (const change of changes) count(summary, change);
          yield { type: "changes", changes };
        }
      } catch (error) {
        // Reading a workspace that is deleted or replaced meanwhile can fail in many ways.
        if (!signal.aborted) for (const place of places) workspaces.assertSame(place, "compared");
        throw error;
      } finally {
        left.abort();
      }
      for (const place of places) workspaces.assertSame(place, "compared");
    }
    yield { type: "summary", summary };
  }

  async *#compare(
    [base, place]: readonly [WorkspaceRecord, WorkspaceRecord],
    signal: AbortSignal,
  ): AsyncGenerator<TreeChange> {
    const { storage, names } = this.#parts;
    const done = new AbortController();
    const either = AbortSignal.any([signal, done.signal]);
    const [left, right] = [storage.sorted(base, either), storage.sorted(place, either)];
    const isHidden = (path: string): boolean => names.hides(path);
    try {
      yield* compareTrees(
        new TreeEntries(ofPlace(base, left), isHidden),
        new TreeEntries(ofPlace(place, right), isHidden),
      );
    } catch (error) {
      throw signal.aborted ? signal.reason : error;
    } finally {
      done.abort();
      await Promise.allSettled([left.return(undefined), right.return(undefined)]);
    }
  }
}

function tally(): Tally {
  return { count: 0, bytes: 0 };
}

function count(summary: Record<keyof DiffSummary, Tally>, change: TreeChange): void {
  const [of, file] =
    change.type === "ADDED"
      ? [summary.added, change.file]
      : change.type === "REMOVED"
        ? [summary.removed, change.baseFile]
        : [summary.modified, change.file];
  of.count++;
  const isCounted = change.type !== "MODIFIED" || change.differences.includes("CONTENT");
  if (isCounted && file.kind === "REGULAR") of.bytes += file.sizeBytes;
}

async function* inBatches(changes: AsyncGenerator<TreeChange>): AsyncGenerator<TreeChange[]> {
  let batch: TreeChange[] = [];
  let nameBytes = 0;
  let timer: NodeJS.Timeout | undefined;
  let late = Promise.withResolvers<undefined>();
  const take = (): TreeChange[] => {
    clearTimeout(timer);
    late = Promise.withResolvers();
    const taken = batch;
    [batch, nameBytes] = [[], 0];
    return taken;
  };
  try {
    let next = changes.next();
    for (;;) {
      // The caller may leave before it fails.
      next.catch(() => {});
      const result = await Promise.race([next, late.promise]);
      if (result === undefined) {
        yield take();
        continue;
      }
      if (result.done) break;
      if (batch.length === 0) timer = setTimeout(late.resolve, MAX_WAIT_MS, undefined);
      batch.push(result.value);
      nameBytes += result.value.path.length;
      next = changes.next();
      if (batch.length === MAX_CHANGES || nameBytes >= MAX_NAME_BYTES) yield take();
    }
    if (batch.length > 0) yield take();
  } finally {
    clearTimeout(timer);
    // Do not await this: the next change may take long.
    changes.return(undefined).catch(() => {});
  }
}

/** The bytes of a workspace's tar. Adds to its errors which workspace they are about. */
async function* ofPlace(
  { workspaceId }: WorkspaceName,
  tar: AsyncIterable<Uint8Array>,
): AsyncGenerator<Uint8Array> {
  try {
    yield* tar;
  } catch (error) {
    if (!(error instanceof BerthError) || error.metadata.workspace_id !== undefined) throw error;
    const { reason, message, metadata, retryAfterMs } = error;
    throw new BerthError(reason, `Of the workspace ${JSON.stringify(workspaceId)}: ${message}`, {
      ...{ metadata: { ...metadata, workspace_id: workspaceId }, cause: error },
      ...(retryAfterMs !== undefined && { retryAfterMs }),
    });
  }
}
