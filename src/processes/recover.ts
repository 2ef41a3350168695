import { BerthError } from "../base/errors.ts";
import type { Engine } from "../engine/port.ts";
import type { LeasedSandbox } from "../sandboxes/lease.ts";
import type { SandboxManager } from "../sandboxes/manager.ts";
import type { ServiceTime } from "../state/service-time.ts";
import { EndedProcess } from "./ended-process.ts";
import { Process, type ProcessInit, type ProcessParts } from "./process.ts";
import type { ExitStatus } from "./record.ts";
import type { ReattachedJob } from "./shell/reattached-job.ts";
import type { SpillDirectory } from "./spill.ts";
import type { ProcessFacts, ProcessStore, StoredProcess, SummarizedProcess } from "./store.ts";
import { readBlocks } from "./stored-blocks.ts";
import type { Block } from "./transcript-reader.ts";

/** What {@link recoverProcesses} reads from. */
export interface RecoveryParts {
  readonly store: ProcessStore;
  readonly time: ServiceTime;
  readonly disk: SpillDirectory;
  readonly engine: Pick<Engine, "recover">;
}

/** A process that was running when the service ended. */
interface Reattached {
  readonly process: Process;
  readonly job: ReattachedJob;
  readonly sandbox: LeasedSandbox;
}

/** The processes of earlier runs of the service. */
export interface RecoveredProcesses {
  /** Ended processes, in the order of their ends. */
  readonly ended: readonly EndedProcess[];
  /** Processes that may still run, and those whose end was not recorded. */
  readonly processes: readonly Process[];
  /** Those of them that are followed again. Nothing is stored of what they do meanwhile, not even if they end. */
  readonly followed: readonly Process[];
}

/**
 * Recovers the processes of earlier runs of the service. Ended processes become readable, those that may still run in
 * live sandboxes are followed again, and the others are lost.
 * @param save stores how a lost process ended.
 */
export async function recoverProcesses(
  { store, time, disk, engine }: RecoveryParts,
  sandboxes: SandboxManager,
  parts: ProcessParts,
  save: (process: Process) => void,
): Promise<RecoveredProcesses> {
  const reattached: Reattached[] = [];
  const found = store.unsummarized().map((stored) => ({
    stored,
    facts: JSON.parse(stored.facts) as ProcessFacts,
  }));
  // A shell runs one command after the other. Before the last one all have ended, whether that was stored or not.
  const inOrder = [...found].sort((a, b) => (a.facts.ranAt ?? 0) - (b.facts.ranAt ?? 0));
  const lastOf = new Map(inOrder.map(({ stored, facts }) => [leaderKey(facts), stored.processId]));
  const load = ({ stored, facts: { trace, ...known } }: (typeof found)[number]): Process => {
    const isOver = lastOf.get(leaderKey(known)) !== stored.processId;
    // Also if it is lost: who had read beyond that must learn how it ended.
    const recoveredAt = [...(known.recoveredAt ?? []), known.written];
    const facts = known.status === undefined ? { ...known, recoveredAt } : known;
    const init = initOf(stored, facts, { time, disk });
    for (const { content } of init.wrote?.blocks ?? [])
      if (!Buffer.isBuffer(content)) disk.keep(content.file);
    const lease = facts.status === undefined && !isOver ? sandboxes.recoverLease(facts.sandbox) : undefined;
    if (lease === undefined || facts.leader === undefined) {
      lease?.release();
      const status = facts.status ?? lost(facts, init, parts, isOver);
      const process = Process.ended(init, sandboxOf(facts), parts, status);
      save(process);
      return process;
    }
    const { process, job } = Process.reattach(init, lease, parts, { leader: facts.leader, trace });
    reattached.push({ process, job, sandbox: lease.sandbox });
    return process;
  };
  const read = (processId: string): Process => readProcess(processId, { store, time, disk }, parts);
  const find = ({ files, ...summary }: SummarizedProcess): EndedProcess => {
    for (const file of files) disk.keep(file);
    const removeFiles = (): void => disk.remove(files);
    return new EndedProcess({ ...summary, removeFiles }, time.toMonotonic(summary.endedAt), read);
  };
  const ended = store.ended().map(find);
  const processes = found.map(load);
  await disk.sweep();
  await follow(reattached, engine, parts);
  return { ended, processes, followed: reattached.map(({ process }) => process) };
}

/** Reads an ended process. @throws `INTERNAL` if it is not in the database. */
export function readProcess(
  processId: string,
  { store, time, disk }: Pick<RecoveryParts, "store" | "time" | "disk">,
  parts: ProcessParts,
): Process {
  const stored = store.get(processId);
  if (stored === undefined) throw new BerthError("INTERNAL", "The process is no longer in the database.");
  const facts = JSON.parse(stored.facts) as ProcessFacts;
  const init = initOf(stored, facts, { time, disk });
  return Process.ended(init, sandboxOf(facts), parts, facts.status as ExitStatus);
}

function initOf(
  { processId, transcript }: StoredProcess,
  facts: ProcessFacts,
  { time, disk }: Pick<RecoveryParts, "time" | "disk">,
): ProcessInit {
  return {
    ...facts,
    id: processId,
    startedAt: time.toMonotonic(facts.startedAt),
    wrote: { written: facts.written, blocks: blocksOf(transcript, disk) },
  };
}

async function follow(
  reattached: readonly Reattached[],
  engine: RecoveryParts["engine"],
  { control }: ProcessParts,
): Promise<void> {
  const sandboxes = new Map(reattached.map(({ sandbox }) => [sandbox.ref, sandbox]));
  await Promise.all([...sandboxes.values()].map((sandbox) => control.recover(sandbox)));
  const jobs = reattached.flatMap(({ job, sandbox }) =>
    job.trace ? [{ job, ref: sandbox.ref, handle: job.trace.handle, sink: job.sink }] : [],
  );
  const recovered = await engine.recover(jobs);
  const spawned = new Map(jobs.map(({ job }, index) => [job, recovered[index]]));
  for (const { job } of reattached) job.follow(spawned.get(job), control);
}

/** Names the process that leads it, or would if it was known to run. */
function leaderKey({ sandbox, leader }: Pick<ProcessFacts, "sandbox" | "leader">): string {
  return JSON.stringify([sandbox.owner, sandbox.sandboxId, sandbox.generation, leader]);
}

function lost(
  { written, leader }: ProcessFacts,
  { startedAt }: ProcessInit,
  { clock }: ProcessParts,
  isOver: boolean,
): ExitStatus {
  return {
    cause: "ENGINE_LOST",
    exitCode: -1,
    signal: 0,
    durationMs: clock.monotonicMs() - startedAt,
    stdoutBytes: written.stdout,
    stderrBytes: written.stderr,
    message: whyLost(leader, isOver),
  };
}

function whyLost(leader: ProcessFacts["leader"], isOver: boolean): string {
  if (leader === undefined) {
    return "The service ended while it was being started: whether it ran is not known.";
  }
  return isOver
    ? "The service ended before it had stored how it ended."
    : "The service was restarted while it ran, and its sandbox has ended.";
}

function blocksOf(transcript: Uint8Array, disk: SpillDirectory): Block[] {
  const recover = disk.recovery();
  return readBlocks(transcript).map(({ sequence, stream, offset, length, content }) => ({
    sequence,
    stream,
    offset,
    length,
    content: content instanceof Uint8Array ? Buffer.from(content) : recover(content, length),
  }));
}

/** The sandbox of an ended process, of which only the name is used. */
function sandboxOf({ sandbox }: ProcessFacts): LeasedSandbox {
  return sandbox as LeasedSandbox;
}
