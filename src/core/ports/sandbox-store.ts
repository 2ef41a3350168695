import type { SandboxSpec, Termination } from "../sandbox/sandbox.ts";
import type { SandboxEvent } from "../sandbox/sandbox-event.ts";
import type { EngineSandbox } from "./engine.ts";

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
  readonly spec: SandboxSpec;
  readonly phase: StoredPhase;
}

/** Keeps sandboxes, also past the end of the service. Every write may throw `NO_SPACE`, and has changed nothing then. */
export interface SandboxStore {
  /** All, in the order in which their lives began. */
  load(): StoredSandbox[];
  /** Keeps a sandbox, in place of the one that had its id. */
  put(sandbox: StoredSandbox): void;
  /** Keeps when a sandbox was used last. */
  putUsed(sandbox: StoredSandbox): void;
  /** Forgets one. */
  remove(owner: string, sandboxId: string, generation: number): void;
}

/** Keeps what happened to sandboxes. */
export interface EventStore {
  /** The newest, oldest first. */
  load(limit: number): SandboxEvent[];
  /** The sequence of the newest there ever was; 0 before the first. */
  last(): number;
  append(event: SandboxEvent): void;
  /** Forgets those before a sequence. */
  trim(before: number): void;
}

/** Makes several writes one: all are kept, or none. What `work` throws comes out. */
export type Transaction = <T>(work: () => T) => T;
