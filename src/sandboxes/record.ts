import type { Clock } from "../base/clock.ts";
import { BerthError } from "../base/errors.ts";
import type { EngineInfo, EngineSandbox } from "../engine/port.ts";
import type { Place } from "./capacity.ts";
import { LeaseBook, type LeasedSandbox, leasedOf } from "./lease.ts";
import type { SandboxSpec, SandboxView, Termination, TerminationCause } from "./sandbox.ts";
import type { SandboxTimes } from "./store.ts";

/** The state of a sandbox, with the data of that state. */
export type Phase =
  | {
      readonly state: "CREATING";
      readonly abort: AbortController;
      /** Ref of the warm sandbox it is created from. */
      readonly warmRef: string | undefined;
    }
  | { readonly state: "RUNNING" | "PAUSED"; readonly engine: EngineSandbox }
  | { readonly state: "DELETING"; readonly engine: EngineSandbox; readonly termination: Termination }
  | {
      readonly state: "TERMINATED";
      readonly termination: Termination;
      /** On the monotonic clock. */
      readonly endedAt: number;
    };

/** A longer spec of an ended sandbox is read again when it is needed. Most are far shorter. */
const MAX_KEPT_BYTES = 4096;

/** The message of a termination that its owner asked for. */
export const DELETED = "It was deleted.";

/** Why and how to end a sandbox. */
export interface TerminationRequest {
  readonly cause: TerminationCause;
  readonly message: string;
  /** How long active operations may continue, in milliseconds. */
  readonly graceMs: number;
  /** Checked again under the lock. If it returns `false`, the sandbox is not ended. */
  readonly onlyIf?: () => boolean;
}

/** What a record begins with. */
export interface SandboxInit {
  readonly sandboxId: string;
  readonly generation: number;
  readonly owner: string;
  /** See {@link SandboxRecord.place}. */
  readonly place: number;
  /** A function reads it when it is needed. */
  readonly spec: SandboxSpec | (() => SandboxSpec);
  readonly phase: Phase;
  readonly reservation: Place;
  /** Times from an earlier run of the service, on this run's monotonic clock. Undefined: the sandbox is new. */
  readonly times?: SandboxTimes;
}

interface SandboxRecordParts {
  readonly clock: Clock;
  /** Called when the sandbox is used. */
  readonly onUse: (record: SandboxRecord) => void;
  /** Called when the last operation on it has ended, which starts its idle time. */
  readonly onIdle: (record: SandboxRecord) => void;
}

/** One sandbox in the manager's memory. Its phase changes only under the lock of its id. */
export class SandboxRecord {
  readonly sandboxId: string;
  readonly generation: number;
  readonly owner: string;
  /**
   * Its number among all sandboxes ever created. Distinguishes it from earlier and later sandboxes with the same id.
   */
  readonly place: number;
  readonly createTimeMs: number;
  readonly reservation: Place;
  phase: Phase;
  /** The deletion in progress, and a function by which another request joins it. */
  deletion:
    | { readonly done: Promise<void>; readonly join: (request: TerminationRequest) => void }
    | undefined;
  readonly #parts: SandboxRecordParts;
  readonly #createdAt: number;
  /** Undefined until the first use, which never comes for a sandbox that had ended before the service started. */
  #leases: LeaseBook | undefined;
  #spec: SandboxSpec | (() => SandboxSpec);
  /** What lists need of a spec that was read and not kept. */
  #listed: { readonly labels: SandboxSpec["labels"]; readonly bytes: number } | undefined;
  #usedAt: number;
  #usedTimeMs: number;

  constructor(init: SandboxInit, parts: SandboxRecordParts) {
    this.sandboxId = init.sandboxId;
    this.generation = init.generation;
    this.owner = init.owner;
    this.place = init.place;
    this.#spec = init.spec;
    this.phase = init.phase;
    this.reservation = init.reservation;
    this.#parts = parts;
    this.createTimeMs = init.times?.createTimeMs ?? parts.clock.wallMs();
    this.#createdAt = init.times?.createdAt ?? parts.clock.monotonicMs();
    this.#usedAt = init.times?.usedAt ?? this.#createdAt;
    this.#usedTimeMs = init.times?.usedTimeMs ?? this.createTimeMs;
  }

  get leases(): LeaseBook {
    this.#leases ??= new LeaseBook(
      () => {
        this.touch();
        if (this.activeOperations === 0) this.#parts.onIdle(this);
      },
      () => this.#parts.clock.monotonicMs(),
    );
    return this.#leases;
  }

  get activeOperations(): number {
    return this.#leases?.count ?? 0;
  }

  get spec(): SandboxSpec {
    if (typeof this.#spec !== "function") return this.#spec;
    const spec = this.#spec();
    const bytes = bytesOf(spec);
    if (this.live || bytes <= MAX_KEPT_BYTES) this.#spec = spec;
    else this.#listed = { labels: spec.labels, bytes };
    return spec;
  }

  set spec(spec: SandboxSpec) {
    this.#spec = spec;
  }

  get labels(): SandboxSpec["labels"] {
    return this.#listed?.labels ?? this.spec.labels;
  }

  /** Size of its spec as JSON. */
  get specBytes(): number {
    return this.#listed?.bytes ?? bytesOf(this.spec);
  }

  /**
   * Frees what an ended sandbox does not need. Call it when its end is stored.
   * @param read reads the spec from the store.
   */
  shrink(read: () => SandboxSpec): void {
    const { labels, specBytes: bytes } = this;
    this.#leases = undefined;
    if (bytes <= MAX_KEPT_BYTES) return;
    this.#spec = read;
    this.#listed = { labels, bytes };
  }

  /** Resets the idle clock. */
  touch(): void {
    this.#usedAt = this.#parts.clock.monotonicMs();
    this.#usedTimeMs = this.#parts.clock.wallMs();
    this.#parts.onUse(this);
  }

  /** `…At` on the monotonic clock. */
  get times(): SandboxTimes {
    return {
      createTimeMs: this.createTimeMs,
      createdAt: this.#createdAt,
      usedTimeMs: this.#usedTimeMs,
      usedAt: this.#usedAt,
    };
  }

  get lastUsedTimeMs(): number {
    return this.#usedTimeMs;
  }

  get live(): boolean {
    return this.phase.state !== "TERMINATED";
  }

  /** The next deadline, in milliseconds from now (negative if it has passed). Undefined if there is none. */
  expiry(): { readonly cause: "IDLE_TIMEOUT" | "MAX_LIFETIME"; readonly inMs: number } | undefined {
    if (this.phase.state !== "RUNNING" && this.phase.state !== "PAUSED") return undefined;
    const now = this.#parts.clock.monotonicMs();
    const idle =
      this.activeOperations === 0 ? this.#usedAt + this.spec.idleTimeoutMs - now : Number.POSITIVE_INFINITY;
    const life = this.#createdAt + (this.spec.maxLifetimeMs ?? Number.POSITIVE_INFINITY) - now;
    if (idle === Number.POSITIVE_INFINITY && life === Number.POSITIVE_INFINITY) return undefined;
    return idle < life ? { cause: "IDLE_TIMEOUT", inMs: idle } : { cause: "MAX_LIFETIME", inMs: life };
  }

  /** What an operation needs to know; undefined while there is no container. */
  leased(): LeasedSandbox | undefined {
    if (!("engine" in this.phase)) return undefined;
    return leasedOf(this.phase.engine, this.spec, this);
  }

  view(engineName: string, { isolation, openNetwork = false }: EngineInfo): SandboxView {
    const { phase } = this;
    const expiry = this.expiry();
    return {
      sandboxId: this.sandboxId,
      generation: this.generation,
      owner: this.owner,
      spec: this.spec,
      state: phase.state,
      engine: engineName,
      isolation: "engine" in phase ? phase.engine.isolation : isolation,
      createTimeMs: this.createTimeMs,
      lastUsedTimeMs: this.#usedTimeMs,
      expireTimeMs: expiry && this.#parts.clock.wallMs() + expiry.inMs,
      activeOperations: this.activeOperations,
      termination: phase.state === "TERMINATED" ? phase.termination : undefined,
      networkOpen: openNetwork && this.spec.network === "NONE",
    };
  }
}

/** All of it counts: variables, names of secrets, mounts, labels and domains may each be large. */
function bytesOf(spec: SandboxSpec): number {
  return JSON.stringify(spec).length;
}

/** The error for an id that is taken. */
export function exists({ sandboxId }: SandboxRecord): BerthError {
  return new BerthError(
    "SANDBOX_EXISTS",
    `sandbox_id: a sandbox with the id ${JSON.stringify(sandboxId)} exists. Delete it, or choose another id.`,
    { metadata: { sandbox_id: sandboxId } },
  );
}

/** The error for an unknown id, or one of another owner's sandbox. */
export function notFound(sandboxId: string): BerthError {
  return new BerthError("SANDBOX_NOT_FOUND", `There is no sandbox ${JSON.stringify(sandboxId)}.`, {
    metadata: { sandbox_id: sandboxId },
  });
}

/** @throws `SANDBOX_REPLACED` if the caller names another generation. */
export function assertGeneration(record: SandboxRecord, name: { readonly generation?: number }): void {
  if (name.generation === undefined || name.generation === record.generation) return;
  throw new BerthError(
    "SANDBOX_REPLACED",
    `generation: the sandbox is in generation ${record.generation} now, not ${name.generation}: its container was replaced, with an empty disk. Read it again before you continue.`,
    { metadata: { sandbox_id: record.sandboxId, generation: String(record.generation) } },
  );
}

/** The error for a sandbox whose state does not allow its use. The message says what to do. */
export function notRunning({ phase, sandboxId }: SandboxRecord): BerthError {
  const metadata = { sandbox_id: sandboxId, state: phase.state };
  const advice = {
    CREATING: "It is still being created.",
    PAUSED: "It is paused: resume it first.",
    RUNNING: "It is running.",
    DELETING: phase.state === "DELETING" ? deletingText(phase.termination) : "",
    TERMINATED: phase.state === "TERMINATED" ? `It has ended: ${phase.termination.message}` : "",
  }[phase.state];
  return new BerthError("SANDBOX_NOT_RUNNING", `The sandbox cannot be used. ${advice}`, { metadata });
}

function deletingText({ message }: Termination): string {
  return message === DELETED ? "It is being deleted." : `It is being deleted: ${message}`;
}
