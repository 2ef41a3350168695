import { deserialize } from "node:v8";
import type { Engine } from "../engine/port.ts";
import type { LeasedSandbox } from "../sandboxes/lease.ts";
import type { SandboxManager } from "../sandboxes/manager.ts";
import type { ServiceTime } from "../state/service-time.ts";
import { Process, type ProcessInit, type ProcessParts } from "./process.ts";
import type { ExitStatus } from "./record.ts";
import type { ReattachedJob } from "./shell/reattached-job.ts";
import type { SpillDirectory } from "./spill.ts";
import type { ProcessFacts, ProcessStore, StoredBlock, StoredProcess } from "./store.ts";
import type { Block } from "./transcript-reader.ts";

/** What {@link recoverProcesses} reads from. */
export interface RecoveryParts {
  readonly store: ProcessStore;
  readonly time: ServiceTime;
  readonly disk: SpillDirectory;
  readonly engine: Pick<Engine, "recover">;
}

/** A process that ran when the service ended. */
interface Reattached {
  readonly job: ReattachedJob;
  readonly sandbox: LeasedSandbox;
}

/**
 * The processes of earlier runs of the service, in the order of their ends: those that ended can be read, those that
 * may still run in sandboxes that live are followed again, and the others are lost.
 * @param save stores how a process that was lost ended.
 */
export async function recoverProcesses(
  { store, time, disk, engine }: RecoveryParts,
  sandboxes: SandboxManager,
  parts: ProcessParts,
  save: (process: Process) => void,
): Promise<Process[]> {
  const stored = store.load();
  stored.sort((a, b) => (a.endedAt ?? Number.MAX_VALUE) - (b.endedAt ?? Number.MAX_VALUE));
  const reattached: Reattached[] = [];
  const load = ({ processId, facts: json, transcript }: StoredProcess): Process => {
    const { trace, ...facts } = JSON.parse(json) as ProcessFacts;
    const init: ProcessInit = {
      ...facts,
      id: processId,
      startedAt: time.toMonotonic(facts.startedAt),
      wrote: { written: facts.written, blocks: blocksOf(transcript, disk) },
    };
    if (facts.status !== undefined) return Process.ended(init, sandboxOf(facts), parts, facts.status);
    const lease = sandboxes.recoverLease(facts.sandbox);
    if (lease === undefined || facts.leader === undefined) {
      lease?.release();
      const process = Process.ended(init, sandboxOf(facts), parts, lost(facts, init, parts));
      save(process);
      return process;
    }
    const { process, job } = Process.reattach(init, lease, parts, { leader: facts.leader, trace });
    reattached.push({ job, sandbox: lease.sandbox });
    return process;
  };
  const processes = stored.map(load);
  await disk.sweep();
  await follow(reattached, engine, parts);
  return processes;
}

/** Follows the processes that may still run. */
async function follow(
  reattached: readonly Reattached[],
  engine: RecoveryParts["engine"],
  { control }: ProcessParts,
): Promise<void> {
  const sandboxes = new Map(reattached.map(({ sandbox }) => [sandbox.ref, sandbox]));
  // The kernel's earlier kills for want of memory must not explain ends from now on.
  await Promise.all([...sandboxes.values()].map((sandbox) => control.newOomKills(sandbox)));
  const jobs = reattached.flatMap(({ job, sandbox }) =>
    job.trace ? [{ job, ref: sandbox.ref, handle: job.trace.handle, sink: job.sink }] : [],
  );
  const recovered = await engine.recover(jobs);
  const spawned = new Map(jobs.map(({ job }, index) => [job, recovered[index]]));
  for (const { job } of reattached) job.follow(spawned.get(job), control);
}

function lost(
  { written, leader }: ProcessFacts,
  { startedAt }: ProcessInit,
  { clock }: ProcessParts,
): ExitStatus {
  return {
    cause: "ENGINE_LOST",
    exitCode: -1,
    signal: 0,
    durationMs: clock.monotonicMs() - startedAt,
    stdoutBytes: written.stdout,
    stderrBytes: written.stderr,
    message:
      leader === undefined
        ? "The service ended while it was being started: whether it ran is not known."
        : "The service was restarted while it ran, and its sandbox has ended.",
  };
}

function blocksOf(transcript: Uint8Array, disk: SpillDirectory): Block[] {
  if (transcript.length === 0) return [];
  const stored = deserialize(transcript) as StoredBlock[];
  return stored.map(({ content, ...block }) => ({
    ...block,
    content: content instanceof Uint8Array ? Buffer.from(content) : disk.recover(content, block.length),
  }));
}

/** Of an ended process, whose sandbox is only used for its name. */
function sandboxOf({ sandbox }: ProcessFacts): LeasedSandbox {
  return sandbox as LeasedSandbox;
}
