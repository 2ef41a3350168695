import type { Process } from "./process.ts";
import type { SummarizedProcess } from "./store.ts";
import type { BudgetedTranscript } from "./transcript-budget.ts";

/** What is known of a process that has ended without reading it. */
export type EndedSummary = Omit<SummarizedProcess, "endedAt">;

/**
 * A process that has ended, as its lists and bounds know it. There may be ten thousand, of which few are ever asked for:
 * once the database has all of it, memory has only this, and the rest is read when somebody asks.
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
   * @param process the process itself, where it ended in this run of the service.
   */
  constructor(summary: EndedSummary, endedAt: number, read: (id: string) => Process, process?: Process) {
    this.id = summary.processId;
    this.sandbox = summary.sandbox;
    this.startTimeMs = summary.startTimeMs;
    this.commandBytes = summary.commandBytes;
    this.endedAt = endedAt;
    this.#read = read;
    this.#process = process;
    if (process === undefined) this.#unread = unread(summary.heldBytes, summary.files.length > 0, this);
  }

  /** All of it. Reads it where that has not been done. @throws what reading it throws */
  get whole(): Process {
    if (this.#process === undefined) {
      this.#process = this.#read(this.id);
      this.#unread?.leave();
    }
    return this.#process;
  }

  /**
   * Drops the process that ended in this run of the service, when the database itself has all of its output: none is in
   * files. Then count {@link transcript} in place of the process's own.
   */
  release(): void {
    if (this.#process === undefined) return;
    this.#unread = unread(this.#process.transcript.heldBytes, false, this);
    this.#process = undefined;
  }

  /** What counts for its output, and until that is read stands for it. Undefined: there is none. */
  get transcript(): BudgetedTranscript | undefined {
    return this.#process?.transcript ?? this.#unread;
  }
}

/** Stands for a transcript that has not been read, which is read when it has to give way. */
class UnreadTranscript implements BudgetedTranscript {
  readonly ended = true;
  readonly ahead = 0;
  readonly memoryBytes = 0;
  heldBytes: number;
  onHeld: () => void = nothing;
  pressed: () => boolean = never;
  readonly #inFiles: boolean;
  readonly #process: EndedProcess;

  /** @param inFiles whether a part of it is in files, which are removed with it. */
  constructor(heldBytes: number, inFiles: boolean, process: EndedProcess) {
    this.heldBytes = heldBytes;
    this.#inFiles = inFiles;
    this.#process = process;
  }

  shrink(): void {
    this.#change((transcript) => transcript.shrink());
  }

  clear(): void {
    if (this.#inFiles) this.#change((transcript) => transcript.clear());
    else this.leave();
  }

  giveWay(bytes: number): void {
    this.#change((transcript) => transcript.giveWay(bytes));
  }

  /** Nothing of it is in memory. */
  async settle(): Promise<void> {}

  /** It has been read, and counts for itself. */
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
      // Its row is damaged: nothing of it can be asked for.
      this.leave();
      return;
    }
    act(process.transcript);
  }
}

/** Undefined where there is no output: most commands write nothing. */
function unread(heldBytes: number, inFiles: boolean, process: EndedProcess): UnreadTranscript | undefined {
  return heldBytes === 0 ? undefined : new UnreadTranscript(heldBytes, inFiles, process);
}

function nothing(): void {}

function never(): boolean {
  return false;
}
