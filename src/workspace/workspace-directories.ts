import { chmod, lstat, mkdir, readdir, rename, rmdir } from "node:fs/promises";
import path from "node:path";
import { BerthError } from "../core/errors.ts";
import type { Logger } from "../core/ports/logger.ts";
import type { StagedImport, Stray, WorkspaceFiles, WorkspacePlace } from "../core/ports/workspace-files.ts";
import { type QuotaEnforcement, type WorkspaceName, workspaceBroken } from "../core/workspace/workspace.ts";
import { makePrivate } from "../private-directory.ts";
import { codeOf, diskError, onDisk } from "./disk-errors.ts";
import { exportDirectory } from "./export.ts";
import { Layout } from "./layout.ts";
import { measureDirectory } from "./measure.ts";
import { ProjectQuota } from "./project-quota.ts";
import { QuotaHold } from "./quota-hold.ts";
import { makeOpen, makeSharedRoot, SANDBOX_DIRECTORY_MODE } from "./shared-root.ts";
import { stageImport } from "./stage.ts";
import { sweepDirectory } from "./sweep.ts";
import { Tools } from "./tool.ts";
import { Trash } from "./trash.ts";

/** Where the directories are, and how large they may become. */
export interface WorkspaceDirectoriesOptions {
  readonly root: string;
  readonly sharedRoot: string;
  /** Undefined: no bound. */
  readonly quotaBytes: number | undefined;
}

/** Nobody else goes through a root, so that set-user-id files in workspaces are no way up for the host's users. */
const ROOT_MODE = 0o700;

/** {@link WorkspaceFiles} on a local disk. */
export class WorkspaceDirectories implements WorkspaceFiles {
  readonly quotaBytes: number | undefined;
  readonly #layout: Layout;
  readonly #logger: Logger;
  readonly #tools: Tools;
  readonly #trash: Trash;
  #hold: QuotaHold | undefined;
  /** What sandboxes of the owner without a name share, once it is made. */
  #sharedPath: string | undefined;

  constructor({ root, sharedRoot, quotaBytes }: WorkspaceDirectoriesOptions, logger: Logger) {
    this.quotaBytes = quotaBytes;
    this.#layout = new Layout(root, sharedRoot);
    this.#logger = logger;
    this.#tools = Tools.find();
    this.#trash = new Trash(this.#tools);
  }

  get quotaEnforcement(): QuotaEnforcement {
    if (this.quotaBytes === undefined) return "NONE";
    return this.#hold === undefined ? "WATCHED" : "ENFORCED";
  }

  async prepare(): Promise<void> {
    const { root, trash, staging } = this.#layout;
    try {
      makePrivate(this.#layout.privateRoot);
      for (const directory of [trash, staging]) await mkdir(directory, { recursive: true, mode: ROOT_MODE });
    } catch (error) {
      if (error instanceof BerthError) throw error;
      // Whoever uses no workspaces does not need them.
      this.#logger.error(
        { root, err: error },
        "the workspaces root cannot be used; workspaces fail until it can",
      );
      return;
    }
    // What else is wrong with it is a failure of the calls that need it.
    await this.#openSharedRoot().catch((error: unknown) => {
      if (error instanceof BerthError) throw error;
    });
    await this.#findQuota();
    await this.#mendReplacements();
    this.#purgeLeftovers().catch((error: unknown) => this.#tellLeftover(error));
  }

  pathOf(name: WorkspaceName): string {
    return this.#layout.pathOf(name);
  }

  async sharedPathOf(owner: string): Promise<string> {
    return this.#layout.sharedPathOf(owner) ?? this.#sharedPath ?? (await this.#makeShared(owner));
  }

  async make(place: WorkspacePlace, { mayExist }: { readonly mayExist: boolean }): Promise<void> {
    await this.#assertRoot();
    const directory = this.#layout.pathOf(place);
    const ownerRoot = path.dirname(directory);
    if (ownerRoot !== this.#layout.root) {
      await onDisk(async () => {
        // Not the root itself: where that is missing, its disk may be.
        await mkdir(this.#layout.owners, { mode: ROOT_MODE }).catch(unlessThere);
        await mkdir(ownerRoot, { mode: ROOT_MODE }).catch(unlessThere);
      });
    }
    await this.#makeShared(place.owner);
    let isNew = false;
    try {
      await mkdir(directory);
      isNew = true;
    } catch (error) {
      if (codeOf(error) !== "EEXIST") throw diskError(error);
      if (!mayExist || (await this.problemOf(place)) !== undefined) {
        throw workspaceBroken(
          place,
          "something that the server does not know is in its place. The operator has to move that away.",
        );
      }
    }
    try {
      // Regardless of the umask.
      await chmod(directory, SANDBOX_DIRECTORY_MODE);
      await this.#hold?.hold(place, directory);
    } catch (error) {
      if (isNew) await rmdir(directory).catch(() => {});
      throw diskError(error);
    }
  }

  async problemOf(name: WorkspaceName): Promise<string | undefined> {
    const directory = this.#layout.pathOf(name);
    try {
      if ((await lstat(directory)).isDirectory()) return undefined;
      return "something else has taken the place of its directory. Clean it up with force, or ask the operator to bring its directory back.";
    } catch (error) {
      if (codeOf(error) === "ENOENT")
        return "its directory is gone. Clean it up with force, or ask the operator to bring its directory back.";
      throw diskError(error);
    }
  }

  discard(name: WorkspaceName): Promise<void> {
    return onDisk(() => this.#trash.discard(this.#layout.pathOf(name), this.#layout.trashOf(name)));
  }

  async measure(name: WorkspaceName, signal?: AbortSignal): Promise<number> {
    return onDisk(() => measureDirectory(this.#tools, this.#layout.pathOf(name), signal));
  }

  sweep(directory: string, isLeftBehind: (name: string) => boolean, signal: AbortSignal): Promise<number> {
    return onDisk(() => sweepDirectory(this.#tools, directory, isLeftBehind, signal));
  }

  export(name: WorkspaceName, signal: AbortSignal): AsyncIterable<Buffer> {
    return exportDirectory(this.#tools, this.#layout.pathOf(name), signal);
  }

  stage(
    place: WorkspacePlace,
    chunks: AsyncIterable<Uint8Array>,
    signal: AbortSignal,
  ): Promise<StagedImport> {
    const parts = {
      layout: this.#layout,
      tools: this.#tools,
      trash: this.#trash,
      hold: this.#hold,
      mostBytes: this.quotaBytes,
    };
    return stageImport(parts, place, chunks, signal);
  }

  async strays(owner: string, known: Iterable<string>, limit: number): Promise<Stray[]> {
    const root = this.#layout.ownerRoot(owner);
    const names = await readdir(root).catch((error: unknown) => {
      if (codeOf(error) === "ENOENT" && root !== this.#layout.root) return [];
      throw diskError(error);
    });
    const ours = Layout.namesOf(known);
    return names
      .filter((name) => !ours.has(name) && !Layout.isOwn(name))
      .sort()
      .slice(0, limit)
      .map((name) => ({
        path: path.join(root, name),
        message: "The server knows no workspace here and leaves it alone. The operator may move it away.",
      }));
  }

  /** Where the root is missing, its disk may be: nothing is made in its place. */
  async #assertRoot(): Promise<void> {
    await onDisk(() => readdir(this.#layout.trash));
  }

  async #makeShared(owner: string): Promise<string> {
    const place = this.#layout.sharedPathOf(owner);
    try {
      return await (place === undefined ? this.#openSharedRoot() : makeOpen(place));
    } catch (error) {
      throw new BerthError(
        "WORKSPACE_BROKEN",
        "The server's shared directory (--shared-root) cannot be used. The operator has to mend that.",
        { cause: error },
      );
    }
  }

  async #openSharedRoot(): Promise<string> {
    this.#sharedPath = await makeSharedRoot(this.#layout.sharedRoot);
    return this.#sharedPath;
  }

  async #findQuota(): Promise<void> {
    if (this.quotaBytes === undefined) return;
    const found = await ProjectQuota.find(this.#layout.root, this.#layout.staging, this.#tools);
    if (typeof found !== "string") this.#hold = new QuotaHold(found, this.quotaBytes);
    else
      this.#logger.warn(
        { root: this.#layout.root },
        `the workspace quota is watched, not enforced: ${found}`,
      );
  }

  /** Ends replacements that a crash cut in two. */
  async #mendReplacements(): Promise<void> {
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
        else await this.#trash.purge(old).catch((error: unknown) => this.#tellLeftover(error));
      }
    }
  }

  #tellLeftover(error: unknown): void {
    this.#logger.warn({ err: error }, "what earlier runs left in the workspaces root could not be removed");
  }

  async #purgeLeftovers(): Promise<void> {
    for (const directory of [this.#layout.staging, this.#layout.trash]) {
      for (const name of await readdir(directory)) await this.#trash.purge(path.join(directory, name));
    }
  }
}

function unlessThere(error: unknown): void {
  if (codeOf(error) !== "EEXIST") throw error;
}
