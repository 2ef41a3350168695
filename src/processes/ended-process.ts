import type { Process } from "./process.ts";
import type { SummarizedProcess } from "./store.ts";
import type { BudgetedTranscript } from "./transcript-budget.ts";

/** What is known about an ended process without reading it from the store. */
interface EndedSummary extends Omit<SummarizedProcess, "endedAt" | "files"> {
  /** Removes the files of its output. Absent: it has none, or its transcript removes them. */
  readonly removeFiles?: () => void;
}

/**
 * An ended process, as lists and limits use it. There may be ten thousand, and few are ever requested. Once the
 * database has everything about the process, memory keeps only this; the rest is read when requested.
 */
export class EndedProcess {
  readonly id: string;
  readonly sandbox: EndedSummary["sandbox"];
  readonly startTimeMs: number;
  /** On the monotonic clock. */
  readonly endedAt: number;
  readonly commandBytes: number;
  #unread: UnreadTranscript | undefined;
  readonly #read: (id: string) => Process;
  #process: Process | undefined;

  /**
   * @param endedAt on the monotonic clock.
   * @param process the process itself, if it ended in this run of the service.
   */
  constructor(summary: EndedSummary, endedAt: number, read: (id: string) => Process, process?: Process) {
    this.id = summary.processId;
    this.sandbox = summary.sandbox;
    this.startTimeMs = summary.startTimeMs;
    this.commandBytes = summary.commandBytes;
    this.endedAt = endedAt;
    this.#read = read;
    this.#process = process;
    if (process === undefined) this.#unread = unread(summary.heldBytes, this, summary.removeFiles);
  }

  /** The complete process, read from the store if necessary. @throws the errors of that read */
  get whole(): Process {
    if (this.#process === undefined) {
      this.#process = this.#read(this.id);
      this.#unread?.leave();
    }
    return this.#process;
  }

  /**
   * Drops the process, which ended in this run of the service, once the database has all of its output and none is in
   * files. Count {@link transcript} instead of the process's own afterwards.
   */
  release(): void {
    if (this.#process === undefined) return;
    this.#unread = unread(this.#process.transcript.heldBytes, this);
    this.#process = undefined;
  }

  /** Its transcript, or a placeholder until that is read. Undefined: there is no output. */
  get transcript(): BudgetedTranscript | undefined {
    return this.#process?.transcript ?? this.#unread;
  }
}

/** A placeholder for a transcript that has not been read. It is read when a part of it must be dropped. */
class UnreadTranscript implements BudgetedTranscript {
  readonly ended = true;
  readonly isUnread = true;
  readonly ahead = 0;
  readonly memoryBytes = 0;
  heldBytes: number;
  onHeld: () => void = nothing;
  pressed: () => boolean = never;
  readonly #process: EndedProcess;
  readonly #removeFiles: () => void;

  constructor(heldBytes: number, process: EndedProcess, removeFiles: () => void) {
    this.heldBytes = heldBytes;
    this.#process = process;
    this.#removeFiles = removeFiles;
  }

  shrink(): void {
    this.#change((transcript) => transcript.shrink());
  }

  clear(): void {
    this.#removeFiles();
    this.leave();
  }

  giveWay(bytes: number): void {
    this.#change((transcript) => transcript.giveWay(bytes));
  }

  /** Does nothing, because none of it is in memory. */
  async settle(): Promise<boolean> {
    return true;
  }

  /** Call this when the transcript has been read, and counts for itself. */
  leave(): void {
    this.heldBytes = 0;
    this.onHeld();
  }

  #change(act: (transcript: BudgetedTranscript) => void): void {
    if (this.heldBytes === 0) return;
    let process: Process;
    try {
      process = this.#process.whole;
    } catch {
      // Its row is damaged, so nothing of it can be read.
      this.leave();
      return;
    }
    act(process.transcript);
  }
}

/** Undefined if there is no output, as for most commands. */
function unread(
  heldBytes: number,
  process: EndedProcess,
  removeFiles = nothing,
): UnreadTranscript | undefined {
  return heldBytes === 0 ? undefined : new UnreadTranscript(heldBytes, process, removeFiles);
}

function nothing(): void {}

function never(): boolean {
  return false;
}
