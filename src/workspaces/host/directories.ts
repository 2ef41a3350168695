import { chmod, lstat, mkdir, readdir, rename, rmdir } from "node:fs/promises";
import path from "node:path";
import type { ByteString } from "../../base/byte-string.ts";
import { BerthError } from "../../base/errors.ts";
import type { Logger } from "../../base/logger.ts";
import { makeDirectories } from "../../base/make-directories.ts";
import { makePrivate } from "../../base/private-directory.ts";
import { codeOf, unlessThere } from "../../base/system-errors.ts";
import { TurnShare } from "../../base/turn-share.ts";
import type { EngineMount, MountPlace } from "../../engine/port.ts";
import { SORTED_FILES } from "../../files/tar/restate.ts";
import type { TemporaryNames } from "../../files/temporary-names.ts";
import type { StagedImport, StageOptions, Stray, WorkspaceStorage } from "../storage.ts";
import {
  contentReplaced,
  isShared,
  type Quota,
  type WorkspaceName,
  type WorkspacePlace,
  workspaceBroken,
} from "../workspace.ts";
import { copyDirectory } from "./copy.ts";
import { diskError, onDisk } from "./disk-errors.ts";
import { stageImport } from "./import.ts";
import { Layout } from "./layout.ts";
import { identityOf } from "./pinned.ts";
import { DirectoryQuota, ProjectQuota } from "./project-quota.ts";
import { SANDBOX_DIRECTORY_MODE, SharedDirectories } from "./shared-directories.ts";
import { Tools } from "./tools.ts";
import { archiveDirectory, exportDirectory, measureDirectory, sweepDirectory, Trash } from "./trees.ts";

interface WorkspaceDirectoriesOptions {
  readonly root: string;
  readonly sharedRoot: string;
  /** Sandboxes must not share it. */
  readonly dataDir: string;
  /** Per workspace. Undefined: no limit. */
  readonly quotaBytes: number | undefined;
  /** Per shared directory. Undefined: no limit. */
  readonly sharedQuotaBytes: number | undefined;
}

/** What an owner's root contains besides workspaces. */
const STRAY = "This is not a workspace of the server, which leaves it alone. The operator may move it away.";
/** An owner may have any number of workspaces. So all lists share a part of each turn of the event loop. */
const turns = new TurnShare();

/** Closed to others, so that the host's users cannot run set-user-ID files in workspaces. */
const ROOT_MODE = 0o700;

/**
 * The directories of workspaces. Sandboxes write into them at any time, so the service never follows a path inside one
 * with its own rights.
 *
 * Every method throws `NO_SPACE` if the disk or the quota is full, and `WORKSPACE_BROKEN`, with what to do, if the
 * roots or a directory are not as they should be.
 */
export class WorkspaceDirectories implements WorkspaceStorage {
  readonly sharing = true;
  readonly measuresOften = true;
  /** Whether any quota is set. */
  readonly hasQuotas: boolean;
  readonly #quotaBytes: number | undefined;
  readonly #layout: Layout;
  readonly #names: TemporaryNames;
  readonly #logger: Logger;
  readonly #tools: Tools;
  readonly #trash: Trash;
  readonly #shared: SharedDirectories;
  readonly #findQuota: typeof ProjectQuota.find;
  /** Directories that an import is replacing. */
  readonly #replacing = new Set<string>();
  #quota: DirectoryQuota | undefined;

  /**
   * @param names for temporary files in workspaces.
   * @param findQuota finds out whether the file system enforces quotas.
   */
  constructor(
    options: WorkspaceDirectoriesOptions,
    names: TemporaryNames,
    logger: Logger,
    findQuota = ProjectQuota.find,
  ) {
    this.#findQuota = findQuota;
    this.#names = names;
    this.hasQuotas = (options.quotaBytes ?? options.sharedQuotaBytes) !== undefined;
    this.#quotaBytes = options.quotaBytes;
    this.#layout = new Layout(options.root, options.sharedRoot);
    this.#logger = logger;
    this.#tools = Tools.find();
    this.#trash = new Trash(this.#tools);
    this.#shared = new SharedDirectories({
      layout: this.#layout,
      dataDir: options.dataDir,
      quotaBytes: options.sharedQuotaBytes,
      tools: this.#tools,
      logger,
    });
  }

  /** The quota of a workspace, or of a shared directory. */
  quotaOf(name: WorkspaceName): Quota {
    if (isShared(name)) return this.#shared.quotaOf(name.owner);
    const quotaBytes = this.#quotaBytes;
    if (quotaBytes === undefined) return { quotaBytes, quotaEnforcement: "NONE" };
    return { quotaBytes, quotaEnforcement: this.#quota === undefined ? "WATCHED" : "ENFORCED" };
  }

  /**
   * Creates the roots, removes incomplete work of earlier runs, and finds out how quotas can be enforced.
   * @throws `INVALID_ARGUMENT` if the host's other users may enter a root, or sandboxes would share Berth's own files.
   */
  async prepare(): Promise<void> {
    const { root, trash, staging } = this.#layout;
    try {
      makePrivate(this.#layout.privateRoot);
      for (const directory of [trash, staging]) makeDirectories(directory, ROOT_MODE);
    } catch (error) {
      if (error instanceof BerthError) throw error;
      // Not fatal: only workspaces need them.
      this.#logger.error(
        { root, err: error },
        "the workspaces root cannot be used; workspaces fail until it can",
      );
      return;
    }
    const projects = await this.#findProjects();
    await this.#shared.prepare(projects);
    await this.#finishReplacements();
    this.#purgeLeftovers().catch((error: unknown) => this.#logLeftover(error));
  }

  /** Absolute path of a workspace's directory. */
  pathOf(name: WorkspaceName): string {
    return this.#layout.pathOf(name);
  }

  async makeShared(place: WorkspacePlace): Promise<void> {
    await this.#makeOwnerRoot(place.owner);
    await this.#shared.make(place);
  }

  mountOf(place: WorkspacePlace, at: MountPlace): EngineMount {
    return { kind: "host", hostPath: this.#directoryOf(place), ...at, own: true };
  }

  async assertFree(name: WorkspaceName): Promise<void> {
    const found = await onDisk(() => identityOf(this.#layout.pathOf(name)));
    if (found === undefined) return;
    throw workspaceBroken(
      name,
      "something that the server does not know is in its place. Ask the operator to move that away.",
    );
  }

  /** Creates a workspace's directory, unless an earlier run of the service did. */
  async make(place: WorkspacePlace): Promise<void> {
    await this.#assertRoot();
    const directory = this.#layout.pathOf(place);
    await this.#makeOwnerRoot(place.owner);
    let isNew = false;
    try {
      await mkdir(directory);
      isNew = true;
    } catch (error) {
      if (codeOf(error) !== "EEXIST") throw diskError(error);
      const problem = await this.problemOf(place);
      if (problem !== undefined) throw workspaceBroken(place, problem);
    }
    try {
      // Whatever the umask is.
      await chmod(directory, SANDBOX_DIRECTORY_MODE);
      await this.#quota?.enforce(place, directory);
    } catch (error) {
      if (isNew) await rmdir(directory).catch(() => {});
      throw diskError(error);
    }
  }

  /** What is wrong with a workspace's directory. Undefined: nothing. */
  async problemOf(name: WorkspaceName): Promise<string | undefined> {
    const directory = this.#layout.pathOf(name);
    const wasReplaced = this.#replacing.has(directory);
    try {
      if ((await lstat(directory)).isDirectory()) return undefined;
      return "something else has taken the place of its directory. Clean it up with force, or ask the operator to bring its directory back.";
    } catch (error) {
      // While it is replaced, it is missing for a moment.
      if (codeOf(error) === "ENOENT" && (wasReplaced || this.#replacing.has(directory))) return undefined;
      if (codeOf(error) === "ENOENT")
        return "its directory is gone. Clean it up with force, or ask the operator to bring its directory back.";
      throw diskError(error);
    }
  }

  problemsOf(names: readonly WorkspaceName[]): Promise<(string | undefined)[]> {
    return Promise.all(names.map((name) => this.problemOf(name)));
  }

  /** Removes a workspace's directory with all its content, however deep or large. Idempotent. */
  discard(name: WorkspaceName): Promise<void> {
    const old = this.#layout.oldOf(name);
    return onDisk(async () => {
      // What a replacement could not remove: the next start would take it for the content.
      if ((await identityOf(old)) !== undefined) await this.#trash.purge(old);
      await this.#trash.discard(this.#layout.pathOf(name), this.#layout.trashOf(name));
    });
  }

  /** The disk space of a workspace or a shared directory, in bytes. */
  async measure(name: WorkspaceName, signal?: AbortSignal): Promise<number> {
    const directory = this.#directoryOf(name);
    const before = await onDisk(() => identityOf(directory));
    try {
      return await measureDirectory(this.#tools, directory, signal);
    } catch (error) {
      if (signal?.aborted || !(await this.#isReplaced(directory, before))) throw diskError(error);
      throw contentReplaced(name, "measured");
    }
  }

  async sweep(
    place: WorkspacePlace,
    isLeftBehind: (name: string) => boolean,
    signal: AbortSignal,
  ): Promise<number> {
    if (isShared(place)) await this.makeShared(place);
    // The option may have changed, or the end of the service may have interrupted an import, which raised the limit.
    else await onDisk(async () => this.#quota?.limit(place));
    return onDisk(() => sweepDirectory(this.#tools, this.#directoryOf(place), isLeftBehind, signal));
  }

  /** Streams the directory as a tar, without entries that `isHidden` accepts. */
  export(
    place: WorkspacePlace,
    isHidden: (name: ByteString) => boolean,
    signal: AbortSignal,
  ): AsyncIterable<Buffer> {
    return this.#read(place, "exported", (directory) =>
      exportDirectory(this.#tools, directory, isHidden, signal),
    );
  }

  sorted(place: WorkspacePlace, signal: AbortSignal): AsyncGenerator<Buffer> {
    return this.#read(place, "compared", (directory) =>
      archiveDirectory(this.#tools, directory, signal, SORTED_FILES),
    );
  }

  /** Reads a directory. @throws if it was replaced meanwhile: then its files seem to vanish. */
  async *#read(
    place: WorkspacePlace,
    done: string,
    read: (directory: string) => AsyncIterable<Buffer>,
  ): AsyncGenerator<Buffer> {
    const directory = this.#layout.pathOf(place);
    const before = await identityOf(directory);
    try {
      yield* read(directory);
    } catch (error) {
      throw (await this.#isReplaced(directory, before)) ? contentReplaced(place, done) : error;
    }
    if ((await identityOf(directory)) !== before) throw contentReplaced(place, done);
  }

  /**
   * Whether an import is replacing a directory, or has replaced it since it was `before`. It is missing for a moment
   * meanwhile.
   */
  async #isReplaced(directory: string, before: string | undefined): Promise<boolean> {
    if (this.#replacing.has(directory)) return true;
    const now = await identityOf(directory);
    return now !== undefined && now !== before;
  }

  async copy(
    source: WorkspacePlace,
    target: WorkspacePlace,
    options: { readonly maxBytes: number; readonly signal: AbortSignal },
  ): Promise<number> {
    const parts = {
      layout: this.#layout,
      tools: this.#tools,
      trash: this.#trash,
      names: this.#names,
      quota: this.#quota,
    };
    const from = this.#layout.pathOf(source);
    const before = await onDisk(() => identityOf(from));
    try {
      return await copyDirectory(parts, source, target, options);
    } catch (error) {
      if (options.signal.aborted || !(await this.#isReplaced(from, before))) throw error;
      throw contentReplaced(source, "copied");
    }
  }

  /** Receives a tar, checks it and unpacks it, but not into the workspace yet. @throws `ARCHIVE_REJECTED`. */
  async stage(
    place: WorkspacePlace,
    chunks: AsyncIterable<Uint8Array>,
    options: StageOptions,
  ): Promise<StagedImport> {
    const parts = {
      layout: this.#layout,
      tools: this.#tools,
      trash: this.#trash,
      quota: this.#quota,
      maxBytes: this.#quotaBytes,
    };
    const staged = await stageImport(parts, place, chunks, options);
    const directory = this.#layout.pathOf(place);
    const replace: StagedImport["replace"] = async (...given) => {
      this.#replacing.add(directory);
      try {
        await staged.replace(...given);
      } finally {
        this.#replacing.delete(directory);
      }
    };
    return { ...staged, replace };
  }

  /** What an owner's root contains besides the workspaces with these ids. At most `limit` entries. */
  async strays(owner: string, known: Iterable<string>, limit: number): Promise<Stray[]> {
    const root = this.#layout.ownerRoot(owner);
    const names = await readdir(root).catch((error: unknown) => {
      if (codeOf(error) === "ENOENT" && root !== this.#layout.root) return [];
      throw diskError(error);
    });
    const foreign = new Set(names.filter((name) => !Layout.isOwn(name)));
    // After the names: the record of a workspace is there before its directory.
    for (const id of known) {
      const turn = turns.enter();
      if (turn) await turn;
      foreign.delete(Layout.nameOf(id));
    }
    const strays: Stray[] = [];
    for (const name of [...foreign].sort().slice(0, limit)) {
      const place = path.join(root, name);
      // It may be that of a workspace that was deleted meanwhile.
      if ((await identityOf(place)) !== undefined) strays.push({ path: place, message: STRAY });
    }
    return strays;
  }

  #directoryOf(name: WorkspaceName): string {
    return isShared(name) ? this.#shared.pathOf(name.owner) : this.#layout.pathOf(name);
  }

  /** Fails if the root is missing: its disk may not be mounted, so the root must not be created again. */
  async #assertRoot(): Promise<void> {
    await onDisk(() => readdir(this.#layout.trash));
  }

  /** Creates the root of a named owner. */
  async #makeOwnerRoot(owner: string): Promise<void> {
    const { root, owners } = this.#layout;
    const ownerRoot = this.#layout.ownerRoot(owner);
    if (ownerRoot === root) return;
    await onDisk(async () => {
      // Do not create the workspaces root itself: if it is missing, its disk may not be mounted.
      await mkdir(owners, { mode: ROOT_MODE }).catch(unlessThere);
      await mkdir(ownerRoot, { mode: ROOT_MODE }).catch(unlessThere);
    });
  }

  /** Finds out how quotas can be enforced in the root, if there are any. Otherwise returns why they cannot. */
  async #findProjects(): Promise<ProjectQuota | string> {
    if (!this.hasQuotas) return "there are no quotas";
    const { root, staging } = this.#layout;
    const found = await this.#findQuota(root, staging, this.#tools);
    if (this.#quotaBytes === undefined) return found;
    if (typeof found !== "string") this.#quota = new DirectoryQuota(found, this.#quotaBytes);
    else this.#logger.warn({ root }, `the workspace quota is watched, not enforced: ${found}`);
    return found;
  }

  /** Completes replacements that a crash interrupted. */
  async #finishReplacements(): Promise<void> {
    const { root, owners } = this.#layout;
    const named = await readdir(owners).catch(() => []);
    for (const directory of [root, ...named.map((name) => path.join(owners, name))]) {
      const entries = await readdir(directory).catch(() => []);
      for (const entry of entries) {
        const replaced = Layout.replaced(entry);
        if (replaced === undefined) continue;
        const [old, target] = [path.join(directory, entry), path.join(directory, replaced)];
        const isThere = await lstat(target).then(
          () => true,
          () => false,
        );
        if (!isThere) await rename(old, target);
        else await this.#trash.purge(old).catch((error: unknown) => this.#logLeftover(error));
      }
    }
  }

  #logLeftover(error: unknown): void {
    this.#logger.warn({ err: error }, "what earlier runs left in the workspaces root could not be removed");
  }

  async #purgeLeftovers(): Promise<void> {
    for (const directory of [this.#layout.staging, this.#layout.trash]) {
      for (const name of await readdir(directory)) await this.#trash.purge(path.join(directory, name));
    }
  }
}
