import { createHash } from "node:crypto";
import path from "node:path";
import type { PrivateDirectory } from "../../base/private-directory.ts";
import { type WorkspaceName, workspaceKey } from "../workspace.ts";

/** The owner of everything while the server has no tokens: its workspaces lie in the root itself. */
const DEFAULT_OWNER = "default";

/** Entries of the root beside workspaces. */
const OWNERS = "owners";
const TRASH = ".trash";
const STAGING = ".staging";
/** Before the name of a directory whose replacement is being put in its place. */
const OLD = ".old-";

/**
 * Paths below the roots. A workspace's directory is named by the hash of its id, so
 * that the id is never a path; owners with names have roots of their own.
 */
export class Layout {
  readonly root: string;
  readonly sharedRoot: string;

  constructor(root: string, sharedRoot: string) {
    this.root = root;
    this.sharedRoot = sharedRoot;
  }

  pathOf({ owner, workspaceId }: WorkspaceName): string {
    return path.join(this.ownerRoot(owner), sha256(workspaceId));
  }

  /** The shared directory of an owner; undefined: it is in {@link sharedRoot}. */
  sharedPathOf(owner: string): string | undefined {
    return owner === DEFAULT_OWNER ? undefined : path.join(this.ownerRoot(owner), "shared");
  }

  /** The root, which is closed to others. */
  get privateRoot(): PrivateDirectory {
    const isOwn = (entry: string) => Layout.isOwn(entry) || /^[0-9a-f]{64}$/.test(entry);
    return { path: this.root, option: "workspaces-root", isOwn };
  }

  ownerRoot(owner: string): string {
    return owner === DEFAULT_OWNER ? this.root : path.join(this.root, OWNERS, sha256(owner));
  }

  /** Holds the roots of owners with names. */
  get owners(): string {
    return path.join(this.root, OWNERS);
  }

  /** Holds what is being deleted. */
  get trash(): string {
    return path.join(this.root, TRASH);
  }

  /** Holds what is being imported. */
  get staging(): string {
    return path.join(this.root, STAGING);
  }

  /** Where a workspace's directory goes to be deleted. */
  trashOf(name: WorkspaceName): string {
    return path.join(this.trash, sha256(workspaceKey(name)));
  }

  /** Where a workspace's directory is while its replacement is moved into place. */
  oldOf(name: WorkspaceName): string {
    return path.join(this.ownerRoot(name.owner), OLD + sha256(name.workspaceId));
  }

  /** The name of the directory whose old content an entry is; undefined: it is something else. */
  static replaced(entry: string): string | undefined {
    return entry.startsWith(OLD) ? entry.slice(OLD.length) : undefined;
  }

  /** Whether a name in an owner's root is the service's own, beside workspaces. */
  static isOwn(entry: string): boolean {
    return (
      [OWNERS, TRASH, STAGING, "shared", "lost+found"].includes(entry) || Layout.replaced(entry) !== undefined
    );
  }

  /** Names of the directories of workspaces with these ids. */
  static namesOf(workspaceIds: Iterable<string>): Set<string> {
    return new Set(Array.from(workspaceIds, sha256));
  }
}

function sha256(text: string): string {
  return createHash("sha256").update(text).digest("hex");
}
