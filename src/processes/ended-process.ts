import type { Process } from "./process.ts";
import type { SummarizedProcess } from "./store.ts";
import type { BudgetedTranscript } from "./transcript-budget.ts";

/**
 * A process that ended in an earlier run of the service, as its lists and bounds know it. There may be ten thousand, of
 * which few are ever asked for: the rest of it is read then.
 */
export class EndedProcess {
  readonly id: string;
  readonly sandbox: SummarizedProcess["sandbox"];
  readonly startTimeMs: number;
  /** On the monotonic clock. */
  readonly endedAt: number;
  readonly commandBytes: number;
  readonly #unread: UnreadTranscript | undefined;
  readonly #read: (id: string) => Process;
  #process: Process | undefined;

  /** @param endedAt on the monotonic clock. */
  constructor(
    { processId, sandbox, startTimeMs, commandBytes, heldBytes }: SummarizedProcess,
    endedAt: number,
    read: (id: string) => Process,
  ) {
    this.id = processId;
    this.sandbox = sandbox;
    this.startTimeMs = startTimeMs;
    this.commandBytes = commandBytes;
    this.endedAt = endedAt;
    this.#read = read;
    // Most commands write nothing.
    this.#unread = heldBytes === 0 ? undefined : new UnreadTranscript(heldBytes, this);
  }

  /** All of it. Reads it where that has not been done. @throws what reading it throws */
  get whole(): Process {
    if (this.#process === undefined) {
      this.#process = this.#read(this.id);
      this.#unread?.leave();
    }
    return this.#process;
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
  readonly #process: EndedProcess;

  constructor(heldBytes: number, process: EndedProcess) {
    this.heldBytes = heldBytes;
    this.#process = process;
  }

  shrink(): void {
    this.#change((transcript) => transcript.shrink());
  }

  clear(): void {
    this.#change((transcript) => transcript.clear());
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

function nothing(): void {}

function never(): boolean {
  return false;
}
