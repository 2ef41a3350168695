import { test } from "vitest";
import type { Engine, EngineSandboxSpec, IsolationLevel } from "../../../src/engine/port.ts";

/** Ways in which an engine may deviate from the suite. */
export type Exception =
  | "users"
  | "heldOutput"
  | "unreadStdin"
  | "pause"
  | "memory"
  | "oom"
  | "pids"
  | "usage";

/** An engine to run the suite with. */
export interface Subject {
  readonly engine: Engine;
  /** Another engine of the same kind that shares nothing with it. */
  readonly stranger: Engine;
  spec(changes?: Partial<EngineSandboxSpec>): EngineSandboxSpec;
  /** The default user of commands. */
  readonly user: string;
  /** The isolation level of sandboxes with {@link spec}. Default: the engine's. */
  readonly isolation?: IsolationLevel;
  /** Number of processes of an idle sandbox. Default: 2, the main process and the one that reaps. */
  readonly idleProcesses?: number;
  /** Number of a sandbox's processes per spawned process. Default 1. */
  readonly processesEach?: number;
  /** Whether the engine limits how many processes a sandbox has. Default true. */
  readonly pidsLimit?: boolean;
  /** Sends a signal to a sandbox's main process, without the engine. */
  signalMain(ref: string, signal: "SIGTERM" | "SIGKILL"): Promise<void>;
  /** Why the engine deviates, and what is true for it instead. */
  readonly exceptions: {
    readonly [E in Exception]?: { readonly reason: string; readonly instead: () => Promise<void> };
  };
}

/** A test from which an engine may be excepted. Then the exception's own test runs instead, named after the reason. */
export function testUnless(
  exception: Exception,
  subject: Subject,
  name: string,
  body: () => Promise<void>,
): void {
  const excepted = subject.exceptions[exception];
  if (excepted === undefined) test(name, body);
  else test(`${name}: not here, since ${excepted.reason}`, excepted.instead);
}
