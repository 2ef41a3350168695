import type { Clock } from "../core/ports/clock.ts";
import { EndedTranscripts } from "./ended-transcripts.ts";
import type { Process } from "./process.ts";

const KEEP_ENDED_MS = 24 * 3600 * 1000;
const MOST_ENDED = 10_000;
/** What the commands of ended processes may come to, which stay in memory: beyond it the oldest go. */
const MOST_COMMAND_BYTES = 32 * 1024 * 1024;
/** What an argument costs beside its characters. */
const ARGUMENT_COST_BYTES = 32;

/** Every process that can be read: those that run, and those that ended in the last 24 hours. */
export class ProcessRegistry {
  readonly #clock: Clock;
  readonly #processes = new Map<string, Process>();
  /** Processes of each sandbox, oldest first. */
  readonly #bySandbox = new Map<string, Set<Process>>();
  readonly #running = new Map<string, number>();
  /** When each ended process may be forgotten, oldest first. */
  readonly #ended = new Map<Process, number>();
  #commandBytes = 0;
  readonly #onForget: (process: Process) => void;
  readonly #transcripts = new EndedTranscripts();

  /** @param onForget called with each ended process that is readable no more. */
  constructor(clock: Clock, onForget: (process: Process) => void) {
    this.#clock = clock;
    this.#onForget = onForget;
  }

  add(process: Process): void {
    const key = keyOf(process);
    this.#processes.set(process.id, process);
    const siblings = this.#bySandbox.get(key) ?? new Set();
    this.#bySandbox.set(key, siblings.add(process));
    this.#running.set(key, (this.#running.get(key) ?? 0) + 1);
    process.ended.then(() => this.#retire(process));
  }

  get(owner: string, processId: string): Process | undefined {
    this.#forget();
    const process = this.#processes.get(processId);
    return process?.sandbox.owner === owner ? process : undefined;
  }

  all(): Process[] {
    return [...this.#processes.values()];
  }

  /** Processes of a sandbox, oldest first. */
  ofSandbox(owner: string, sandboxId: string): Process[] {
    this.#forget();
    return [...(this.#bySandbox.get(JSON.stringify([owner, sandboxId])) ?? [])];
  }

  /** How many processes of a sandbox run. */
  running(owner: string, sandboxId: string): number {
    return this.#running.get(JSON.stringify([owner, sandboxId])) ?? 0;
  }

  #retire(process: Process): void {
    const key = keyOf(process);
    const left = (this.#running.get(key) ?? 1) - 1;
    if (left === 0) this.#running.delete(key);
    else this.#running.set(key, left);
    this.#ended.set(process, endOf(process) + KEEP_ENDED_MS);
    this.#commandBytes += commandBytes(process);
    this.#transcripts.add(process.transcript);
    this.#forget();
  }

  #forget(): void {
    const now = this.#clock.monotonicMs();
    for (const [process, forgetAt] of this.#ended) {
      const few = this.#ended.size <= MOST_ENDED && this.#commandBytes <= MOST_COMMAND_BYTES;
      if (forgetAt > now && few) return;
      this.#ended.delete(process);
      this.#commandBytes -= commandBytes(process);
      this.#transcripts.remove(process.transcript);
      this.#processes.delete(process.id);
      this.#onForget(process);
      const siblings = this.#bySandbox.get(keyOf(process));
      siblings?.delete(process);
      if (siblings?.size === 0) this.#bySandbox.delete(keyOf(process));
    }
  }
}

/** About what a process's command takes in memory. */
function commandBytes({ options: { command } }: Process): number {
  if (command.kind === "shell") return command.line.length;
  return command.args.reduce((sum, arg) => sum + ARGUMENT_COST_BYTES + arg.length, 0);
}

/** When an ended process did so, on the monotonic clock. */
function endOf(process: Process): number {
  return process.startedAt + (process.status?.durationMs ?? 0);
}

function keyOf(process: Process): string {
  const { owner, sandboxId } = process.sandbox;
  return JSON.stringify([owner, sandboxId]);
}
