import type { WorkspacePlace } from "../files-port.ts";
import type { ProjectQuota } from "./project-quota.ts";

/**
 * Holds directories to one quota each by their file system. What is being imported
 * counts as the workspace's from its first byte, since nothing can be moved
 * from one hold into another; so there is as much room once more meanwhile.
 */
export class QuotaHold {
  readonly #quota: ProjectQuota;
  readonly #bytes: number;
  /** Imports on their way in, by the workspace's number. */
  readonly #imports = new Map<number, number>();

  constructor(quota: ProjectQuota, bytes: number) {
    this.#quota = quota;
    this.#bytes = bytes;
  }

  /** Holds an empty directory, and what will be in it. Idempotent. */
  async hold({ number }: WorkspacePlace, directory: string): Promise<void> {
    await this.#quota.assign(directory, number);
    await this.#limit(number);
  }

  /** Bounds what is held already. Idempotent. */
  async bound({ number }: WorkspacePlace): Promise<void> {
    await this.#limit(number);
  }

  /** Makes room for an import, until {@link end}. */
  async begin({ number }: WorkspacePlace): Promise<void> {
    this.#imports.set(number, this.#importsOf(number) + 1);
    await this.#limit(number);
  }

  /** Takes the room of an import back, moved in or not. */
  async end({ number }: WorkspacePlace): Promise<void> {
    const left = this.#importsOf(number) - 1;
    if (left > 0) this.#imports.set(number, left);
    else this.#imports.delete(number);
    await this.#limit(number);
  }

  #importsOf(number: number): number {
    return this.#imports.get(number) ?? 0;
  }

  #limit(number: number): Promise<void> {
    return this.#quota.limit(number, this.#bytes * (1 + this.#importsOf(number)));
  }
}
