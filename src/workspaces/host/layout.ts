import { createHash } from "node:crypto";
import path from "node:path";
import type { PrivateDirectory } from "../../base/private-directory.ts";
import { type WorkspaceName, workspaceKey } from "../workspace.ts";

/** The only owner while the server has no tokens. Its workspaces are in the root itself. */
const DEFAULT_OWNER = "default";

/** Entries of the root besides workspaces. */
const OWNERS = "owners";
const TRASH = ".trash";
const STAGING = ".staging";
/** Prefix of a directory that is being replaced. */
const OLD = ".old-";

/**
 * Paths below the roots. A workspace's directory is named after the hash of its id, so that the id is never a path.
 * Named owners have their own roots.
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

  /** The shared directory of an owner. Undefined: it is in {@link sharedRoot}. */
  sharedPathOf(owner: string): string | undefined {
    return owner === DEFAULT_OWNER ? undefined : path.join(this.ownerRoot(owner), "shared");
  }

  /** The root. Only the service's user may enter it. */
  get privateRoot(): PrivateDirectory {
    const isOwn = (entry: string) => Layout.isOwn(entry) || /^[0-9a-f]{64}$/.test(entry);
    return { path: this.root, option: "workspaces-root", isOwn };
  }

  ownerRoot(owner: string): string {
    return owner === DEFAULT_OWNER ? this.root : path.join(this.root, OWNERS, sha256(owner));
  }

  /** Contains the roots of named owners. */
  get owners(): string {
    return path.join(this.root, OWNERS);
  }

  /** Contains what is being deleted. */
  get trash(): string {
    return path.join(this.root, TRASH);
  }

  /** Contains what is being imported. */
  get staging(): string {
    return path.join(this.root, STAGING);
  }

  /** The place to which a workspace's directory is moved for deletion. */
  trashOf(name: WorkspaceName): string {
    return path.join(this.trash, sha256(workspaceKey(name)));
  }

  /** The place of a workspace's old directory while its replacement is moved in. */
  oldOf(name: WorkspaceName): string {
    return path.join(this.ownerRoot(name.owner), OLD + sha256(name.workspaceId));
  }

  /** The name of the directory of which an entry is the old content. Undefined: it is something else. */
  static replaced(entry: string): string | undefined {
    return entry.startsWith(OLD) ? entry.slice(OLD.length) : undefined;
  }

  /** Whether an entry of an owner's root belongs to the service but is no workspace. */
  static isOwn(entry: string): boolean {
    return (
      [OWNERS, TRASH, STAGING, "shared", "lost+found"].includes(entry) || Layout.replaced(entry) !== undefined
    );
  }

  /** The name of the directory of a workspace with this id. */
  static nameOf(workspaceId: string): string {
    return sha256(workspaceId);
  }
}

function sha256(text: string): string {
  return createHash("sha256").update(text).digest("hex");
}
