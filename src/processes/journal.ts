import { deserialize, serialize } from "node:v8";
import type { Engine } from "../engine/port.ts";
import type { LeasedSandbox } from "../sandboxes/lease.ts";
import type { SandboxManager } from "../sandboxes/manager.ts";
import type { Transaction } from "../state/database.ts";

import type { ServiceTime } from "../state/service-time.ts";
import type { WriteBehind } from "../state/write-behind.ts";
import { Process, type ProcessInit } from "./process.ts";
import type { ExitStatus, ProcessOptions, ProcessParts } from "./record.ts";
import type { JobTrace, LeaderId } from "./shell/job.ts";
import type { ReattachedJob } from "./shell/reattached-job.ts";
import type { SpillDirectory, StoredPlace } from "./spill.ts";
import type { ProcessStore, StoredProcess } from "./store.ts";
import type { Block, Offsets } from "./transcript-reader.ts";

/** How often what running processes wrote is kept. */
const SAVE_INTERVAL_MS = 1_000;
/** What is in memory up to this size is kept in the store itself; more goes to a file. */
const INLINE_BYTES = 8 * 1024;

/** What is kept of a process beside its output. */
interface Facts {
  readonly sandbox: Pick<LeasedSandbox, "owner" | "sandboxId" | "generation">;
  readonly options: ProcessOptions;
  readonly user: string;
  readonly hasTerminal: boolean;
  readonly startTimeMs: number;
  /** In service time. */
  readonly startedAt: number;
  /** Undefined: it was not known yet to run. */
  readonly leader: LeaderId | undefined;
  /** Absent once it has ended. */
  readonly trace?: JobTrace | undefined;
  readonly status: ExitStatus | undefined;
  readonly written: Offsets;
}

/** One that ran when the service ended. */
interface Found {
  readonly job: ReattachedJob;
  readonly sandbox: LeasedSandbox;
}

/** A block of output: where it is on disk, or its bytes. */
type StoredBlock = Omit<Block, "content"> & { readonly content: StoredPlace | Uint8Array };

/** What a {@link ProcessJournal} writes to. */
export interface ProcessJournalParts {
  readonly store: ProcessStore;
  readonly transaction: Transaction;
  readonly time: ServiceTime;
  readonly writeBehind: WriteBehind;
  readonly disk: SpillDirectory;
  readonly engine: Pick<Engine, "recover">;
}

/**
 * Keeps processes and what they wrote, soon after it happened: nobody who runs
 * a command waits for it. What a service that is killed had not kept yet of a
 * running process's output is missing afterwards, and said to be.
 */
export class ProcessJournal {
  readonly #parts: ProcessJournalParts;
  /** Bytes that each had written when it was saved last. */
  readonly #running = new Map<Process, number>();
  /** Those that a request with an id asked for, which may be asked again. */
  readonly #identified = new WeakSet<Process>();
  readonly #saves = new Set<Promise<void>>();
  #timer: NodeJS.Timeout | undefined;
  #stopped = false;

  constructor(parts: ProcessJournalParts) {
    this.#parts = parts;
  }

  /** Keeps at once that a process is about to be started, with `also` in the same go. @throws `NO_SPACE` */
  begin(process: Process, also: () => void): void {
    const { transaction, store } = this.#parts;
    transaction(() => {
      store.put(this.#stored(process));
      also();
    });
    this.#identified.add(process);
  }

  /** Waits until the end of a process that {@link begin} kept is kept too: what its caller is told is what a retry hears. */
  async kept(process: Process): Promise<void> {
    if (!this.#identified.has(process) || this.#stopped) return;
    await this.#saveSettled(process);
    this.#parts.writeBehind.flush();
  }

  /** Keeps a process that runs, and how it ends. */
  follow(process: Process): void {
    this.#running.set(process, 0);
    this.#save(process);
    // What outlives its caller, and what its run ends, has to be found again, however soon the service ends.
    const { onDisconnect, runId } = process.options;
    if (onDisconnect === "DETACH" || runId !== "") this.#parts.writeBehind.flush();
    this.#timer ??= setInterval(() => this.#saveRunning(), SAVE_INTERVAL_MS).unref();
    process.ended
      .then(() => {
        this.#running.delete(process);
        if (!this.#stopped) this.#track(this.#saveSettled(process));
      })
      .catch(() => {});
  }

  /** Forgets a process. */
  forget({ id }: { readonly id: string }): void {
    if (!this.#stopped) this.#parts.writeBehind.add(keyOf(id), () => this.#parts.store.remove(id));
  }

  /** Keeps what there is; what happens from now on is not kept any more. */
  async stop(): Promise<void> {
    clearInterval(this.#timer);
    this.#saveRunning();
    this.#stopped = true;
    while (this.#saves.size > 0) await Promise.all(this.#saves);
    // What waits to be written is what a process is when that happens: still running, at this moment.
    this.#parts.writeBehind.flush();
  }

  /** The processes of earlier runs of the service, in the order of their ends. */
  async recover(sandboxes: SandboxManager, parts: ProcessParts): Promise<Process[]> {
    const stored = this.#parts.store.load();
    stored.sort((a, b) => (a.endedAt ?? Number.MAX_VALUE) - (b.endedAt ?? Number.MAX_VALUE));
    const found: Found[] = [];
    const processes = stored.map((process) => this.#recallOne(process, sandboxes, parts, found));
    await this.#parts.disk.sweep();
    await this.#recover(found, parts);
    return processes;
  }

  #recallOne(stored: StoredProcess, sandboxes: SandboxManager, parts: ProcessParts, found: Found[]): Process {
    const { trace, ...facts } = JSON.parse(stored.facts) as Facts;
    const init: ProcessInit = {
      ...facts,
      id: stored.processId,
      startedAt: this.#parts.time.toMonotonic(facts.startedAt),
      wrote: { written: facts.written, blocks: this.#blocks(stored.transcript) },
    };
    if (facts.status !== undefined) return Process.ended(init, sandboxOf(facts), parts, facts.status);
    const lease = sandboxes.recoverLease(facts.sandbox);
    if (lease === undefined || facts.leader === undefined) {
      lease?.release();
      const lost = Process.ended(init, sandboxOf(facts), parts, this.#lost(facts, init, parts));
      this.#save(lost);
      return lost;
    }
    const { process, job } = Process.found(init, lease, parts, { leader: facts.leader, trace });
    found.push({ job, sandbox: lease.sandbox });
    return process;
  }

  /** Takes over what still runs. */
  async #recover(found: readonly Found[], { control }: ProcessParts): Promise<void> {
    const sandboxes = new Map(found.map(({ sandbox }) => [sandbox.ref, sandbox]));
    // What the kernel killed before is not to be blamed on what ends from now on.
    await Promise.all([...sandboxes.values()].map((sandbox) => control.newOomKills(sandbox)));
    const left = found.flatMap(({ job, sandbox }) =>
      job.trace ? [{ job, ref: sandbox.ref, handle: job.trace.handle, sink: job.sink }] : [],
    );
    const recovered = await this.#parts.engine.recover(left);
    const spawned = new Map(left.map(({ job }, index) => [job, recovered[index]]));
    for (const { job } of found) job.follow(spawned.get(job), control);
  }

  #lost({ written, leader }: Facts, { startedAt }: ProcessInit, { clock }: ProcessParts): ExitStatus {
    return {
      cause: "ENGINE_LOST",
      exitCode: -1,
      signal: 0,
      durationMs: clock.monotonicMs() - startedAt,
      stdoutBytes: written.stdout,
      stderrBytes: written.stderr,
      message:
        leader === undefined
          ? "The service ended as it was being started: whether it ran is not known."
          : "The service was restarted while it ran, and its sandbox has ended.",
    };
  }

  #blocks(transcript: Uint8Array): Block[] {
    const { disk } = this.#parts;
    const stored = deserialize(transcript) as StoredBlock[];
    return stored.map(({ content, ...block }) => ({
      ...block,
      content: content instanceof Uint8Array ? Buffer.from(content) : disk.recover(content, block.length),
    }));
  }

  #saveRunning(): void {
    for (const [process, saved] of this.#running) {
      const { stdout, stderr } = process.transcript.written;
      if (stdout + stderr === saved) continue;
      this.#running.set(process, stdout + stderr);
      this.#track(this.#saveSettled(process));
    }
    if (this.#running.size > 0) return;
    clearInterval(this.#timer);
    this.#timer = undefined;
  }

  async #saveSettled(process: Process): Promise<void> {
    // A disk that takes no more leaves what there is in memory, within the transcript's bound.
    if (process.transcript.memoryBytes > INLINE_BYTES) await process.transcript.settle().catch(() => {});
    this.#save(process);
  }

  #save(process: Process): void {
    const { writeBehind, store } = this.#parts;
    writeBehind.add(keyOf(process.id), () => store.put(this.#stored(process)));
  }

  #stored(process: Process): StoredProcess {
    const { id, status, startedAt, user, hasTerminal, startTimeMs, leader, trace } = process;
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
    const facts: Facts = {
      sandbox: { owner, sandboxId, generation },
      options,
      user,
      hasTerminal,
      startTimeMs,
      startedAt: time.at(startedAt),
      leader,
      ...(trace && { trace }),
      status,
      written: process.transcript.written,
    };
    return {
      processId: id,
      endedAt: status && time.at(startedAt + status.durationMs),
      facts: JSON.stringify(facts),
      transcript: serialize(storedBlocks(process)),
    };
  }

  #track(save: Promise<void>): void {
    const tracked = save.finally(() => this.#saves.delete(tracked));
    this.#saves.add(tracked);
  }
}

/** Of an ended process, which is asked for nothing but whose it was. */
function sandboxOf({ sandbox }: Facts): LeasedSandbox {
  return sandbox as LeasedSandbox;
}

/** What is in memory beyond the bound is left out: it goes to disk with the next save. */
function storedBlocks({ transcript }: Process): StoredBlock[] {
  const blocks: StoredBlock[] = [];
  let room = INLINE_BYTES;
  for (const { content, ...block } of transcript.held()) {
    if (!Buffer.isBuffer(content)) blocks.push({ ...block, content: content.place });
    else if (block.length <= room) {
      room -= block.length;
      blocks.push({ ...block, content: new Uint8Array(content.subarray(0, block.length)) });
    }
  }
  return blocks;
}

function keyOf(processId: string): string {
  return `process ${processId}`;
}
