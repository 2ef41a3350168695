import { test } from "vitest";
import type { Engine, EngineSandboxSpec, IsolationLevel } from "../../../src/engine/port.ts";

/** What an engine may do otherwise than the suite says. */
export type Exception =
  | "users"
  | "heldOutput"
  | "unreadStdin"
  | "pause"
  | "memory"
  | "oom"
  | "pids"
  | "usage";

/** An engine that the suite is run over. */
export interface Subject {
  readonly engine: Engine;
  /** Another of its kind that shares nothing with it. */
  readonly stranger: Engine;
  spec(changes?: Partial<EngineSandboxSpec>): EngineSandboxSpec;
  /** Whom commands run as where nobody is named. */
  readonly user: string;
  /** How sandboxes of {@link spec} are kept from the host. Default: as the engine says of itself. */
  readonly isolation?: IsolationLevel;
  /** Processes of a sandbox where nothing runs. Default: 2, the main process and the one that reaps. */
  readonly idleProcesses?: number;
  /** Processes of a sandbox for each that is spawned. Default 1. */
  readonly processesEach?: number;
  /** Whether the engine limits how many processes a sandbox has. Default true. */
  readonly pidsLimit?: boolean;
  /** Sends a signal to a sandbox's main process, past the engine. */
  signalMain(ref: string, signal: "SIGTERM" | "SIGKILL"): Promise<void>;
  /** Why the engine does otherwise, and what holds on it instead. */
  readonly exceptions: {
    readonly [E in Exception]?: { readonly reason: string; readonly instead: () => Promise<void> };
  };
}

/** A test that an engine may be excepted from; then what holds instead is tested, under the reason. */
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
