import type { Clock } from "../base/clock.ts";
import type { SandboxSpec } from "../sandboxes/sandbox.ts";
import type { WorkspaceFiles } from "./files-port.ts";
import type { WorkspaceRecord, WorkspaceStore } from "./store.ts";
import { sharedOf } from "./workspace.ts";

/** Where the shared directory appears in every sandbox that has a workspace. */
export const SHARED_TARGET = "/shared";

/** Finds and makes what the sandboxes of each owner share. */
export class SharedDirectories {
  readonly #store: WorkspaceStore;
  readonly #files: WorkspaceFiles;
  readonly #clock: Clock;

  constructor(parts: {
    readonly store: WorkspaceStore;
    readonly files: WorkspaceFiles;
    readonly clock: Clock;
  }) {
    this.#store = parts.store;
    this.#files = parts.files;
    this.#clock = parts.clock;
  }

  /** Absolute path of an owner's, which is made where there is none. @throws `WORKSPACE_BROKEN`. */
  async pathOf(owner: string): Promise<string> {
    return this.#files.sharedPathOf(this.know(owner));
  }

  /** Has the store know an owner's. */
  know(owner: string): WorkspaceRecord {
    const name = sharedOf(owner);
    return this.#store.find(name) ?? this.#store.insert(name, "ACTIVE", this.#clock.wallMs());
  }
}

/** Whether the shared directory appears in a sandbox. */
export function mountsShared({ mounts }: Pick<SandboxSpec, "mounts">): boolean {
  return (
    mounts.some(({ source }) => source.kind === "workspace") &&
    mounts.every(({ target }) => target !== SHARED_TARGET)
  );
}
