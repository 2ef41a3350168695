import { createHash } from "node:crypto";
import type { ByteString } from "../../base/byte-string.ts";
import { throwIfAborted } from "../../base/errors.ts";
import { compositeKey } from "../../base/ids.ts";
import type { Logger } from "../../base/logger.ts";
import { takeRandom } from "../../base/random.ts";
import type { EngineMount, EngineVolume, EngineVolumes, MountPlace, OpenVolume } from "../../engine/port.ts";
import { SORTED_FILES } from "../../files/tar/restate.ts";
import type { TemporaryNames } from "../../files/temporary-names.ts";
import type { MakeOptions, StagedImport, StageOptions, Stray, WorkspaceStorage } from "../storage.ts";
import {
  isShared,
  type Quota,
  type WorkspaceName,
  type WorkspacePlace,
  workspaceBroken,
  workspaceNotFound,
} from "../workspace.ts";
import { adoptClone, copyVolume, markVolume } from "./copy.ts";
import { archiveVolume, exportVolume } from "./export.ts";
import { stageOnVolume } from "./import.ts";
import { measureVolume } from "./measure.ts";
import { Places } from "./places.ts";

const DIGITS = 40;
const NEVER = new AbortController().signal;
/** How long a clone may take: some drivers copy the whole volume. */
const CLONE_TIMEOUT_MS = 600_000;
const TOKEN_BYTES = 16;

interface VolumeStorageParts {
  readonly volumes: EngineVolumes;
  readonly names: TemporaryNames;
  readonly instance: string;
  readonly logger: Logger;
}

/**
 * Workspaces as volumes of the engine. Each is a directory `tN` of its volume. N is only in the store, so that a new
 * tree replaces all content atomically. The service works on files in its own places ({@link Places}), so that nothing
 * a sandbox puts in the way leads it elsewhere.
 */
export class VolumeStorage implements WorkspaceStorage {
  readonly sharing: boolean;
  readonly hasQuotas = false;
  readonly measuresOften = false;
  readonly #parts: VolumeStorageParts;
  readonly #places: Places;
  /** Names of the directories of running imports. */
  readonly #staging = new Set<string>();
  /** Running copies of volumes. While their pods exist, a claim cannot be deleted. */
  readonly #copies = new Set<{ readonly from: string; readonly gone: AbortController }>();
  /** Maps volumes that were created as clones to the mark that they have if they really are clones. */
  readonly #clones = new Map<string, string>();
  /** Whether a volume cannot exceed the size with which it was created, as far as is known. */
  #isEnforced = false;

  constructor(parts: VolumeStorageParts) {
    this.#parts = parts;
    this.#places = new Places(parts.volumes);
    this.sharing = parts.volumes.shareable;
  }

  quotaOf(name: WorkspaceName): Quota {
    if (isShared(name) && !this.sharing) return { quotaBytes: undefined, quotaEnforcement: "NONE" };
    const { sizeBytes: quotaBytes } = this.#parts.volumes;
    return { quotaBytes, quotaEnforcement: this.#isEnforced ? "ENFORCED" : "WATCHED" };
  }

  async prepare(): Promise<void> {
    try {
      await this.#parts.volumes.recover();
    } catch (error) {
      // Each of them ends by itself eventually.
      this.#parts.logger.warn({ err: error }, "pods that an earlier run left at workspaces were not removed");
    }
  }

  pathOf(name: WorkspaceName): string {
    return this.#parts.volumes.locate(this.#volumeOf(name));
  }

  async assertFree(name: WorkspaceName): Promise<void> {
    const { volumes } = this.#parts;
    const volume = this.#volumeOf(name);
    if ((await volumes.find(volume)) === undefined) return;
    throw workspaceBroken(
      name,
      `something that the server does not know is in its place: the claim ${volumes.locate(volume)}. Ask the operator to move that away.`,
    );
  }

  async make(place: WorkspacePlace, { forkOf, signal = NEVER }: MakeOptions = {}): Promise<void> {
    const { volumes } = this.#parts;
    const name = this.#volumeOf(place);
    const labels = { name, owner: place.owner, workspaceId: place.workspaceId };
    const cloneOf = forkOf && volumes.clones ? this.#volumeOf(forkOf) : undefined;
    const token = cloneOf === undefined ? "" : await this.#mark(cloneOf, signal);
    const isMade = await volumes.make(labels, cloneOf === undefined ? {} : { cloneOf });
    if (isMade && cloneOf !== undefined) this.#clones.set(name, token);
    if (isMade) return;
    const problem = await this.problemOf(place);
    if (problem !== undefined) throw workspaceBroken(place, problem);
  }

  async makeShared(place: WorkspacePlace): Promise<void> {
    await this.make(place);
  }

  mountOf(place: WorkspacePlace, at: MountPlace): EngineMount {
    const volume = this.#volumeOf(place);
    // Frees the volume: one that only a single pod can mount would not be available to the sandbox.
    void this.#places.endIdle(volume);
    return { kind: "volume", volume, directory: treeName(place.tree), ...at };
  }

  async problemOf(name: WorkspaceName): Promise<string | undefined> {
    return problemOf(await this.#parts.volumes.find(this.#volumeOf(name)), name);
  }

  async problemsOf(names: readonly WorkspaceName[]): Promise<(string | undefined)[]> {
    if (names.length === 0) return [];
    const found = new Map((await this.#parts.volumes.list()).map((volume) => [volume.name, volume]));
    return names.map((name) => problemOf(found.get(this.#volumeOf(name)), name));
  }

  async discard(name: WorkspaceName): Promise<void> {
    const volume = this.#volumeOf(name);
    for (const { from, gone } of this.#copies) if (from === volume) gone.abort();
    this.#clones.delete(volume);
    await this.#places.end(volume);
    await this.#parts.volumes.remove(volume);
  }

  async measure(place: WorkspacePlace, signal: AbortSignal = NEVER): Promise<number> {
    const { names, volumes } = this.#parts;
    return this.#places.use(
      this.#volumeOf(place),
      async (volume) => {
        const found = await measureVolume(
          volume,
          treeName(place.tree),
          (name) => names.isLeftBehind(name),
          signal,
        );
        this.#learnBound(found.volumeBytes, volumes.sizeBytes);
        return found.sizeBytes;
      },
      signal,
    );
  }

  /** {@link measure} does it instead, because each workspace would need a place. */
  async sweep(): Promise<number> {
    return 0;
  }

  async *export(
    place: WorkspacePlace,
    isHidden: (name: ByteString) => boolean,
    signal: AbortSignal,
  ): AsyncGenerator<Buffer> {
    const held = await this.#places.hold(this.#volumeOf(place), signal);
    try {
      yield* exportVolume(held.volume, treeName(place.tree), isHidden, signal);
    } catch (error) {
      held.spend();
      throw error;
    } finally {
      held.release();
    }
  }

  async *sorted(place: WorkspacePlace, signal: AbortSignal): AsyncGenerator<Buffer> {
    const held = await this.#places.hold(this.#volumeOf(place), signal);
    try {
      yield* archiveVolume(held.volume, treeName(place.tree), signal, SORTED_FILES);
    } catch (error) {
      held.spend();
      throw error;
    } finally {
      held.release();
    }
  }

  async copy(
    source: WorkspacePlace,
    target: WorkspacePlace,
    { maxBytes, signal }: { readonly maxBytes: number; readonly signal: AbortSignal },
  ): Promise<number> {
    const { names, volumes, logger } = this.#parts;
    const [from, to] = [this.#volumeOf(source), this.#volumeOf(target)];
    const gone = new AbortController();
    const copy = { from, gone };
    this.#copies.add(copy);
    try {
      const bound = { maxBytes, signal: AbortSignal.any([signal, gone.signal]) };
      const token = this.#clones.get(to);
      // Frees the volume: one that only a single pod can mount would not be available to the copy.
      await this.#places.endIdle(from);
      const patience = token === undefined ? {} : { timeoutMs: CLONE_TIMEOUT_MS };
      const opened = await volumes.openBeside(to, from, { signal: bound.signal, ...patience });
      await using volume = closing(opened);
      const trees = { from: treeName(source.tree), to: treeName(target.tree) };
      const isOwn = (name: string): boolean => names.isOwn(name);
      if (token !== undefined) {
        const sizeBytes = await adoptClone(volume.opened, token, trees, isOwn, bound);
        if (sizeBytes !== undefined) return sizeBytes;
        logger.warn(
          { claim: volumes.locate(to) },
          "a claim that should be a clone is empty; its workspace is copied. Start the service without --volume-clones, or with a storage class that clones",
        );
      }
      return await copyVolume(volume.opened, trees, isOwn, bound);
    } catch (error) {
      throw gone.signal.aborted ? workspaceNotFound(source) : error;
    } finally {
      this.#copies.delete(copy);
      this.#clones.delete(to);
    }
  }

  /** Puts a mark on a volume. Its clones have the mark too. */
  async #mark(volume: string, signal: AbortSignal): Promise<string> {
    const token = takeRandom(TOKEN_BYTES).toString("hex");
    await this.#places.use(volume, (opened) => markVolume(opened, token, signal), signal);
    return token;
  }

  async stage(
    place: WorkspacePlace,
    chunks: AsyncIterable<Uint8Array>,
    options: StageOptions,
  ): Promise<StagedImport> {
    throwIfAborted(options.signal);
    const { names, volumes } = this.#parts;
    const work = names.next();
    this.#staging.add(work);
    const parts = {
      ...{ place, names, work, staging: this.#staging, maxBytes: volumes.sizeBytes },
      places: this.#places,
    };
    try {
      const staged = await stageOnVolume({ ...parts, volume: this.#volumeOf(place) }, chunks, options);
      return { ...staged, discard: () => staged.discard().finally(() => this.#staging.delete(work)) };
    } catch (error) {
      this.#staging.delete(work);
      throw error;
    }
  }

  async strays(owner: string, known: Iterable<string>, limit: number): Promise<Stray[]> {
    const { volumes } = this.#parts;
    const found = await volumes.list();
    const ids = new Set(known);
    return found
      .filter((volume) => volume.owner === owner && volume.workspaceId !== "" && !ids.has(volume.workspaceId))
      .slice(0, limit)
      .map(({ name, workspaceId }) => ({
        path: volumes.locate(name),
        message: `This claim is labelled as the workspace ${JSON.stringify(workspaceId)}, which the server does not know; it leaves the claim alone. The operator may delete it.`,
      }));
  }

  /** If the file system is not much larger than requested, it belongs to the volume alone, and limits it. */
  #learnBound(volumeBytes: number, sizeBytes: number): void {
    // Provisioners round up to their unit.
    const unit = 2 ** 30;
    this.#isEnforced = volumeBytes <= Math.ceil(sizeBytes / unit) * unit;
  }

  /** A valid, unique name, whatever characters the owner and the id contain. */
  #volumeOf({ owner, workspaceId }: WorkspaceName): string {
    const key = compositeKey(this.#parts.instance, compositeKey(owner, workspaceId));
    return `berth-${createHash("sha256").update(key).digest("hex").slice(0, DIGITS)}`;
  }
}

/** Closes a volume at the end of the block that uses it. */
function closing<T extends OpenVolume>(opened: T): AsyncDisposable & { readonly opened: T } {
  return { opened, [Symbol.asyncDispose]: () => opened.close() };
}

function treeName(tree: number): string {
  return `t${tree}`;
}

function isOf({ owner, workspaceId }: EngineVolume, name: WorkspaceName): boolean {
  return owner === name.owner && workspaceId === name.workspaceId;
}

function problemOf(found: EngineVolume | undefined, name: WorkspaceName): string | undefined {
  if (found === undefined) return withRemedy("its claim is gone.");
  if (!isOf(found, name)) return withRemedy("something else has taken the place of its claim.");
  return found.problem && withRemedy(found.problem);
}

function withRemedy(problem: string): string {
  return `${problem} Clean it up with force, or ask the operator to bring its claim back.`;
}
