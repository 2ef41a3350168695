import { statSync } from "node:fs";
import { BerthError } from "../../base/errors.ts";
import type { Logger } from "../../base/logger.ts";
import { foreignEntry } from "../../base/private-directory.ts";
import type { WorkspacePlace } from "../files-port.ts";
import type { Quota } from "../workspace.ts";
import type { Layout } from "./layout.ts";
import { ProjectQuota } from "./project-quota.ts";
import { QuotaHold } from "./quota-hold.ts";
import { makeOpen, makeSharedRoot } from "./shared-root.ts";
import type { Tools } from "./tool.ts";

/** What {@link SharedDirectories} is built of. */
export interface SharedDirectoriesParts {
  readonly layout: Layout;
  /** Of each; undefined: no bound. */
  readonly quotaBytes: number | undefined;
  readonly tools: Tools;
  readonly logger: Logger;
}

/**
 * What the sandboxes of each owner share: in the shared root for the owner
 * without a name, among their workspaces for others.
 */
export class SharedDirectories {
  readonly #parts: SharedDirectoriesParts;
  /** In the shared root, once it is made. */
  #path: string | undefined;
  /** Hold the directory in the shared root, and those of owners with names. */
  #rootHold: QuotaHold | undefined;
  #ownersHold: QuotaHold | undefined;
  /** By owner: has the directory held for this life of the service. */
  readonly #held = new Map<string, Promise<void>>();

  constructor(parts: SharedDirectoriesParts) {
    this.#parts = parts;
  }

  /**
   * Makes the one in the shared root and finds out how quotas can be held.
   * @param projects what holds quotas in the workspaces root, or why nothing does
   * @throws `INVALID_ARGUMENT` for a root that the host's other users may enter.
   */
  async prepare(projects: ProjectQuota | string): Promise<void> {
    const { layout, quotaBytes, tools, logger } = this.#parts;
    try {
      await this.#openRoot();
    } catch (error) {
      // What else is wrong with it is a failure of the calls that need it.
      if (error instanceof BerthError) throw error;
    }
    if (quotaBytes === undefined) return;
    const hold = (found: ProjectQuota | string, root: string): QuotaHold | undefined => {
      if (typeof found !== "string") return new QuotaHold(found, quotaBytes);
      logger.warn({ root }, `the quota of shared directories is watched, not enforced: ${found}`);
      return undefined;
    };
    this.#ownersHold = hold(projects, layout.root);
    if (this.#path === undefined) return;
    const isElsewhere = statSync(this.#path).dev !== statSync(layout.root).dev;
    this.#rootHold = isElsewhere
      ? hold(await ProjectQuota.find(layout.sharedRoot, undefined, tools), layout.sharedRoot)
      : this.#ownersHold;
  }

  quotaOf(owner: string): Quota {
    const { quotaBytes } = this.#parts;
    if (quotaBytes === undefined) return { quotaBytes, quotaEnforcement: "NONE" };
    return { quotaBytes, quotaEnforcement: this.#holdOf(owner) === undefined ? "WATCHED" : "ENFORCED" };
  }

  /** Where an owner's is. @throws `WORKSPACE_BROKEN` where it was not made yet. */
  pathOf(owner: string): string {
    const path = this.#parts.layout.sharedPathOf(owner) ?? this.#path;
    if (path === undefined) throw broken();
    return path;
  }

  /** Makes an owner's where there is none, has it held, and returns its path. @throws `WORKSPACE_BROKEN`. */
  async make(place: WorkspacePlace): Promise<string> {
    try {
      const own = this.#parts.layout.sharedPathOf(place.owner);
      const path = own === undefined ? (this.#path ?? (await this.#openRoot())) : await makeOpen(own);
      await this.#hold(place, path);
      return path;
    } catch (error) {
      throw broken(error);
    }
  }

  async #openRoot(): Promise<string> {
    this.#path = await makeSharedRoot(this.#parts.layout.sharedRoot);
    return this.#path;
  }

  #holdOf(owner: string): QuotaHold | undefined {
    const isInRoot = this.#parts.layout.sharedPathOf(owner) === undefined;
    return isInRoot ? this.#rootHold : this.#ownersHold;
  }

  async #hold(place: WorkspacePlace, path: string): Promise<void> {
    const hold = this.#holdOf(place.owner);
    if (hold === undefined) return;
    let held = this.#held.get(place.owner);
    if (held === undefined) {
      // What lies in a directory stays out of its hold, and could not be moved within it.
      const isEmpty = foreignEntry(path, () => false) === undefined;
      held = isEmpty ? hold.hold(place, path) : hold.bound(place);
      this.#held.set(place.owner, held);
    }
    try {
      await held;
    } catch (error) {
      this.#held.delete(place.owner);
      throw error;
    }
  }
}

function broken(cause?: unknown): BerthError {
  return new BerthError(
    "WORKSPACE_BROKEN",
    "The server's shared directory (--shared-root) cannot be used. The operator has to mend that.",
    { cause },
  );
}
