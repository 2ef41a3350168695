import type { EngineSandbox } from "../engine/port.ts";
import type { SandboxEvent } from "./event.ts";
import type { SandboxSpec, Termination } from "./sandbox.ts";

/** Where a kept sandbox stands. */
export type StoredPhase =
  /** Its container may exist, or half of it, or not. */
  | { readonly state: "CREATING" }
  | { readonly state: "RUNNING" | "PAUSED"; readonly engine: EngineSandbox }
  | { readonly state: "DELETING"; readonly engine: EngineSandbox; readonly termination: Termination }
  | { readonly state: "TERMINATED"; readonly termination: Termination; readonly endedAt: number };

/** Moments of a sandbox's life: `…TimeMs` by the wall clock, `…At` in service time, by which deadlines go. */
export interface SandboxTimes {
  readonly createTimeMs: number;
  readonly createdAt: number;
  readonly usedTimeMs: number;
  readonly usedAt: number;
}

/** A sandbox as it is kept. */
export interface StoredSandbox extends SandboxTimes {
  readonly owner: string;
  readonly sandboxId: string;
  readonly generation: number;
  /** Among all lives that sandboxes ever had: the later one's is the larger. Never used twice. */
  readonly place: number;
  readonly spec: SandboxSpec;
  readonly phase: StoredPhase;
}

/** Keeps sandboxes, also past the end of the service. Every write may throw `NO_SPACE`, and has changed nothing then. */
export interface SandboxStore {
  /** All, in the order in which their lives began. */
  load(): StoredSandbox[];
  /** The largest place there ever was; 0 before the first. */
  lastPlace(): number;
  /** Keeps a sandbox, instead of an earlier life under its id. Where a later life is kept, nothing changes. */
  put(sandbox: StoredSandbox): void;
  /** Keeps when a sandbox was used last. */
  putUsed(sandbox: StoredSandbox): void;
  /** Forgets one. */
  remove(place: number): void;
}

/** Sequences of events that are gone, both ends included. */
export interface EventRange {
  readonly from: number;
  readonly to: number;
}

/** Keeps what happened to sandboxes, in the order of the sequences. */
export interface EventStore {
  /** All that are kept, oldest first. */
  load(): SandboxEvent[];
  /** The largest sequence that was stored, trimmed or lost; 0 before the first. */
  newest(): number;
  /** In which run of the machine a service stored events that did not {@link close}; undefined: the last one did. */
  readonly openedIn: string | undefined;
  /** Keeps in which run of the machine events are stored from now on, and what was lost before, also past the machine's end. */
  open(bootId: string, loss: EventRange | undefined): void;
  /** Keeps that nothing of what was stored can be lost any more. */
  close(): void;
  append(event: SandboxEvent): void;
  /** Forgets an owner's events up to a sequence, and keeps that there may have been some. */
  trim(owner: string, last: number): void;
  /** Up to which sequence the events of each owner were trimmed. */
  trims(): Map<string, number>;
  /** Keeps that there may have been events in a range, of any owner. */
  addLoss(loss: EventRange): void;
  /** What was lost of every owner's events, in order. */
  losses(): EventRange[];
}

/** Makes several writes one: all are kept, or none. What `work` throws comes out. */
export type Transaction = <T>(work: () => T) => T;
