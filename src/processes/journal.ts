import type { SandboxManager } from "../sandboxes/manager.ts";
import type { Transaction } from "../state/database.ts";
import type { WriteBehind } from "../state/write-behind.ts";
import type { Process, ProcessParts } from "./process.ts";
import { commandBytes } from "./record.ts";
import { type RecoveredProcesses, type RecoveryParts, readProcess, recoverProcesses } from "./recover.ts";
import type { ProcessFacts, ProcessSummary, StoredProcess } from "./store.ts";
import { type StoredBlocks, storeBlocks } from "./stored-blocks.ts";

/** How often the output of running processes is saved. */
const SAVE_INTERVAL_MS = 1_000;
/** Output in memory up to this size is stored in the database. More goes to a file, unless the service stops. */
const INLINE_BYTES = 8 * 1024;
/**
 * The rest after a save of running processes is at least this many times as long as the save took, which the number of
 * blocks decides: a process that writes to both streams in turn makes one for each write.
 */
const REST_FACTOR = 20;

interface ProcessJournalParts extends RecoveryParts {
  readonly transaction: Transaction;
  readonly writeBehind: WriteBehind;
}

/**
 * Saves processes and their output in the background, so that callers do not wait for it. If the service is killed,
 * output of running processes that was not saved yet is lost, and reported as missing.
 */
export class ProcessJournal {
  readonly #parts: ProcessJournalParts;
  /** Running processes, with the {@link progress} of each when last saved. */
  readonly #running = new Map<Process, number>();
  /** Processes started by a request with an id, which may be repeated. */
  readonly #identified = new WeakSet<Process>();
  readonly #saves = new Set<Promise<void>>();
  #timer: NodeJS.Timeout | undefined;
  /** When running processes may be saved again, on the clock of `performance`. */
  #restUntil = 0;
  #stopped = false;
  /** Whether a process is still readable. Others are not saved again: nothing would remove their rows. */
  isReadable: (processId: string) => boolean = () => true;
  /** Called when the database has everything about an ended process, including its output. */
  onWhole: (process: Process) => void = () => {};

  constructor(parts: ProcessJournalParts) {
    this.#parts = parts;
  }

  /** Saves at once that a process is about to start, and runs `also` in the same transaction. @throws `NO_SPACE` */
  begin(process: Process, also: () => void): void {
    const { transaction, store } = this.#parts;
    transaction(() => {
      store.put(this.#stored(process));
      also();
    });
    this.#identified.add(process);
  }

  /** Waits until the end of a process that {@link begin} saved is saved too, so that a retry gets the same result. */
  async kept(process: Process): Promise<void> {
    if (!this.#identified.has(process) || this.#stopped) return;
    await this.#saveSettled(process);
    this.#parts.writeBehind.flushOne(keyOf(process.id));
  }

  /** Saves a running process from now on, and how it ends. */
  follow(process: Process): void {
    this.#running.set(process, 0);
    this.#save(process);
    // A process that outlives its caller, or that a run must end, must be recoverable even if the service ends at once.
    const { onDisconnect, runId } = process.options;
    if (onDisconnect === "DETACH" || runId !== "") this.#parts.writeBehind.flushOne(keyOf(process.id));
    this.#timer ??= setInterval(() => {
      if (performance.now() >= this.#restUntil) this.#saveRunning();
    }, SAVE_INTERVAL_MS).unref();
    process.ended
      .then(() => {
        this.#running.delete(process);
        if (!this.#stopped) this.#track(this.#saveSettled(process));
      })
      .catch(() => {});
  }

  forget({ id }: { readonly id: string }): void {
    if (!this.#stopped) this.#parts.writeBehind.add(keyOf(id), () => this.#parts.store.remove(id));
  }

  /** Reads an ended process. @throws `INTERNAL` if it is not in the database. */
  read(processId: string, parts: ProcessParts): Process {
    return readProcess(processId, this.#parts, parts);
  }

  /** Saves the current state of everything, and nothing that happens later. */
  async stop(): Promise<void> {
    clearInterval(this.#timer);
    this.#saveRunning();
    while (this.#saves.size > 0) await Promise.all(this.#saves);
    this.#stopped = true;
    // What came while the disk took the rest.
    for (const process of this.#running.keys()) this.#save(process);
    // The write reads the processes when it happens, so flush it while they still count as running.
    this.#parts.writeBehind.flush();
  }

  /** See {@link recoverProcesses}. */
  recover(sandboxes: SandboxManager, parts: ProcessParts): Promise<RecoveredProcesses> {
    // They become readable only when all of them are recovered.
    return recoverProcesses(this.#parts, sandboxes, parts, (process) => this.#write(process));
  }

  /**
   * Saves at once where recovered processes continued, or how they ended, which the next run must know even if this one
   * is killed.
   */
  recovered(processes: readonly Process[]): void {
    for (const process of processes) this.follow(process);
    if (processes.length > 0) this.#parts.writeBehind.flush();
  }

  #saveRunning(): void {
    for (const [process, saved] of this.#running) {
      const now = progress(process);
      if (now === saved) continue;
      this.#running.set(process, now);
      const onSave = (ms: number): void => {
        this.#restUntil = Math.max(this.#restUntil, performance.now()) + ms * REST_FACTOR;
      };
      this.#track(this.#saveSettled(process, onSave));
    }
    if (this.#running.size > 0) return;
    clearInterval(this.#timer);
    this.#timer = undefined;
  }

  async #saveSettled(process: Process, onSave?: (ms: number) => void): Promise<void> {
    // If the disk is full, the output stays in memory, within the transcript's limit.
    if (process.transcript.memoryBytes > INLINE_BYTES) await process.transcript.settle().catch(() => {});
    this.#save(process, onSave);
  }

  #save(process: Process, onSave?: (ms: number) => void): void {
    if (this.isReadable(process.id)) this.#write(process, onSave);
  }

  /** @param onSave gets how many milliseconds the event loop was busy with it. */
  #write(process: Process, onSave: (ms: number) => void = () => {}): void {
    const { writeBehind, store } = this.#parts;
    let isWhole = false;
    const write = (): void => {
      const start = performance.now();
      const blocks = this.#blocksOf(process);
      isWhole = process.status !== undefined && isInline(process, blocks);
      store.put(this.#stored(process, blocks));
      onSave(performance.now() - start);
    };
    writeBehind.add(keyOf(process.id), write, () => {
      if (isWhole) this.onWhole(process);
    });
  }

  #stored(process: Process, blocks = this.#blocksOf(process)): StoredProcess {
    const {
      id,
      status,
      startedAt,
      ranAt,
      user,
      hasTerminal,
      startTimeMs,
      leader,
      trace,
      stdin,
      recoveredAt,
    } = process;
    const { command, timeoutMs, keepStdinOpen, onDisconnect, disconnectGraceMs, outputLimitBytes, runId } =
      process.options;
    const options = {
      command,
      timeoutMs,
      keepStdinOpen,
      onDisconnect,
      disconnectGraceMs,
      outputLimitBytes,
      runId,
    };
    const { owner, sandboxId, generation } = process.sandbox;
    const { time } = this.#parts;
    const facts: ProcessFacts = {
      sandbox: { owner, sandboxId, generation },
      options,
      user,
      hasTerminal,
      startTimeMs,
      startedAt: time.at(startedAt),
      leader,
      ...(ranAt !== undefined && { ranAt: time.at(ranAt) }),
      ...(trace && { trace }),
      ...(stdin && { stdin }),
      status,
      written: process.transcript.written,
      ...(recoveredAt.length > 0 && { recoveredAt }),
    };
    return {
      processId: id,
      endedAt: status && time.at(startedAt + status.durationMs),
      summary: status && summaryOf(facts, blocks),
      facts: JSON.stringify(facts),
      transcript: blocks.bytes,
    };
  }

  /** The blocks to store. Output in memory beyond the limit is left out: the next save, if there is one, moves it to disk. */
  #blocksOf({ transcript }: Process): StoredBlocks {
    return storeBlocks(transcript.held(), this.#stopped ? Number.MAX_SAFE_INTEGER : INLINE_BYTES);
  }

  #track(save: Promise<void>): void {
    const tracked = save.finally(() => this.#saves.delete(tracked));
    this.#saves.add(tracked);
  }
}

/** A number that grows whenever the process writes output or gets input. */
function progress({ transcript, stdin }: Process): number {
  const { stdout, stderr } = transcript.written;
  return stdout + stderr + (stdin ? stdin.passed + (stdin.open ? 0 : 1) : 0);
}

function summaryOf(
  { sandbox, startTimeMs, options: { command } }: ProcessFacts,
  { heldBytes, files }: StoredBlocks,
): ProcessSummary {
  return { sandbox, startTimeMs, commandBytes: commandBytes(command), heldBytes, files };
}

/** Whether these blocks are all that a process's transcript holds, and none of it is in a file. */
function isInline({ transcript }: Process, { files, inlineBytes }: StoredBlocks): boolean {
  return files.length === 0 && inlineBytes === transcript.memoryBytes;
}

function keyOf(processId: string): string {
  return `process ${processId}`;
}
