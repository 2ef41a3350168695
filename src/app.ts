import path from "node:path";
import { Registry } from "prom-client";
import type { Finding } from "./base/diagnosis.ts";
import { BerthError } from "./base/errors.ts";
import type { Logger } from "./base/logger.ts";
import { exposureAt, exposureFindings } from "./base/private-directory.ts";
import { SystemClock } from "./base/system-clock.ts";
import type { AppSettings } from "./config/settings.ts";
import { chooseEngine, diagnoseEngines } from "./engine/choose.ts";
import type { IsolationLevel } from "./engine/port.ts";
import { FileManager } from "./files/manager.ts";
import { TemporaryNames } from "./files/temporary-names.ts";
import { type ControlParts, ProcessControl } from "./processes/control.ts";
import { ProcessJournal } from "./processes/journal.ts";
import { ProcessManager } from "./processes/manager.ts";
import { Lanes } from "./processes/shell/lanes.ts";
import { PlainRunner } from "./processes/shell/plain-runner.ts";
import { SpillDirectory } from "./processes/spill.ts";
import { TranscriptBudget } from "./processes/transcript-budget.ts";
import { FILE_READ_MAX_BYTES } from "./rpc/file-service.ts";
import { berthRoutes } from "./rpc/routes.ts";
import { RunManager } from "./runs/manager.ts";
import { RunningRuns } from "./runs/running-runs.ts";
import { EngineMonitor } from "./sandboxes/engine-monitor.ts";
import { SandboxJournal } from "./sandboxes/journal.ts";
import type { SandboxObserver } from "./sandboxes/lease.ts";
import { SandboxManager } from "./sandboxes/manager.ts";

import { DEFAULT_LIMITS } from "./server/limits.ts";
import { formatListenAddress, type ListenAddress, parseListenAddress } from "./server/listen-address.ts";
import { showGauge } from "./server/metrics.ts";
import { ProcessMetrics } from "./server/process-metrics.ts";
import { ReceiveBudget } from "./server/receive-budget.ts";
import { createRpcServer } from "./server/server.ts";
import { createSessions } from "./sessions/parts.ts";
import { privateDataDir } from "./state/data-dir.ts";
import { State } from "./state/state.ts";
import { Store } from "./store.ts";
import { WorkspaceMounts } from "./workspaces/mounts.ts";
import { createWorkspaces, diagnoseRoots, workspaceDirectories } from "./workspaces/parts.ts";

/** A running service. */
export interface RunningApp {
  /** Where it listens, as it would be written in the settings, with the port it got. */
  readonly address: string;
  readonly engine: { readonly name: string; readonly version: string; readonly isolation: IsolationLevel };
  /** Ends it; resolves with the ids of sandboxes that are still there. Later calls join the first. */
  stop(): Promise<{ readonly left: readonly string[] }>;
}

const KEEPALIVE_MS = 15_000;
const LANES = { spare: 1, most: 16, idleMs: 60_000 };
/** Between SIGTERM and SIGKILL, when a process tree is ended. */
const KILL_GRACE_MS = 2_000;
/** Of all transcripts; what is beyond goes to disk. */
const TRANSCRIPTS_MEMORY_BYTES = 256 * 1024 * 1024;
const TRANSCRIPT_IN_MEMORY = { headBytes: 1024 * 1024, memoryBytes: 2 * 1024 * 1024 };
/** Of the time a stop may take, what is left for running calls before their sandboxes go. */
const CALLS_SHARE_OF_STOP = 0.3;

/**
 * Puts the service together and starts it: the one place that knows the
 * concrete parts.
 * @throws `ENGINE_UNAVAILABLE` when the engine does not answer; `INVALID_ARGUMENT` where the data directory cannot be
 *   used; an error that says why the address cannot be had.
 */
export async function startApp(settings: AppSettings, logger: Logger): Promise<RunningApp> {
  const store = Store.open(settings.dataDir, { instance: settings.instance });
  try {
    return await assemble(settings, store, logger);
  } catch (error) {
    store.close();
    throw error;
  }
}

async function assemble(settings: AppSettings, store: Store, logger: Logger): Promise<RunningApp> {
  const clock = new SystemClock();
  const disk = await SpillDirectory.create(path.join(settings.dataDir, "transcripts"));
  const engine = await chooseEngine(settings, store.instance, logger);
  const monitor = await EngineMonitor.connect(engine, logger).catch(async (error: unknown) => {
    await engine.close();
    throw error;
  });
  const state = new State(store, {
    clock,
    logger,
    answers: { bytes: settings.answerQuotaBytes, ownerBytes: settings.answerOwnerQuotaBytes },
  });
  const transcripts = new TranscriptBudget({
    bytes: settings.transcriptQuotaBytes,
    ownerBytes: settings.transcriptOwnerQuotaBytes,
    memoryBytes: TRANSCRIPTS_MEMORY_BYTES,
  });
  const { requests } = state;
  const giveUp: ControlParts["giveUp"] = ({ ref }, why, options) => sandboxes.giveUp(ref, why, options);
  const lanes = new Lanes(engine, new PlainRunner(engine), LANES, logger, giveUp);
  const control = new ProcessControl({ shells: lanes, engine, giveUp });
  const observer: SandboxObserver = {
    ready: (sandbox) => lanes.open(sandbox),
    ending: ({ ref }) => {
      lanes.close(ref);
      control.forget(ref);
    },
  };
  const names = new TemporaryNames(store.instance);
  const directories = workspaceDirectories(settings, logger);
  const mounts = new WorkspaceMounts(store.workspaces, directories, clock);
  const sandboxes = new SandboxManager(settings, {
    journal: new SandboxJournal({ ...state, store: store.sandboxes }),
    time: state.time,
    engine,
    monitor,
    clock,
    logger,
    observer,
    mounts,
  });
  const running = new RunningRuns(clock, state.time);
  const workspaces = createWorkspaces(settings, {
    store: store.workspaces,
    directories,
    mounts,
    names,
    sandboxes,
    monitor,
    clock,
    logger,
  });
  const processes = new ProcessManager(
    { maxProcessesPerSandbox: settings.maxProcessesPerSandbox, keepaliveMs: KEEPALIVE_MS },
    sandboxes,
    requests,
    running,
    {
      runner: lanes,
      control,
      clock,
      logger,
      transcript: { windowBytes: settings.transcriptWindowBytes, ...TRANSCRIPT_IN_MEMORY },
      transcripts,
      openSpill: () => disk.open(),
      journal: new ProcessJournal({
        ...state,
        store: store.processes,
        disk,
        engine,
      }),
      killGraceMs: KILL_GRACE_MS,
    },
  );
  const files = new FileManager(
    { maxOperationsPerSandbox: settings.maxProcessesPerSandbox },
    { sandboxes, runner: lanes, control, names, clock, logger },
  );
  const runs = new RunManager({
    store: store.runs,
    transaction: store.transaction,
    sandboxes,
    processes,
    running,
    clock,
    time: state.time,
    logger,
  });
  const { sessions, catalog, tools } = createSessions(settings, {
    sandboxes,
    processes,
    files,
    runner: lanes,
    shells: lanes,
    control,
    store: store.sessions,
    writeBehind: state.writeBehind,
    time: state.time,
    clock,
    logger,
  });
  const metrics = new Registry();
  const gauges: readonly [name: string, help: string, read: () => number][] = [
    [
      "berth_sandboxes_stuck_deleting",
      "Sandboxes that could not be removed so far; the log says why. Berth keeps retrying.",
      () => sandboxes.stuckRemovals,
    ],
    [
      "berth_sandboxes_without_pipes",
      "Sandboxes whose output comes through Docker's own streams, which is slower; the log says why. Berth keeps retrying.",
      () => engine.figures().sandboxesWithoutPipes,
    ],
    [
      "berth_orphaned_pipes",
      "Commands that are over, and whose output something that they left behind still holds.",
      () => engine.figures().orphanedPipes,
    ],
    [
      "berth_transcript_bytes",
      "Output of commands that is kept, in memory and on disk.",
      () => transcripts.usage.bytes,
    ],
    [
      "berth_transcript_memory_bytes",
      "Output of commands that is kept in memory.",
      () => transcripts.usage.memoryBytes,
    ],
    ["berth_answer_bytes", "Answers that are kept for retries by request_id.", () => requests.answerBytes()],
    [
      "berth_shared_directory_bytes",
      "What shared directories take that have a quota, as last measured.",
      () => workspaces.quota.shared.sizeBytes,
    ],
    [
      "berth_shared_directories_over_quota",
      "Shared directories that are past their quota.",
      () => workspaces.quota.shared.over,
    ],
  ];
  for (const [name, help, read] of gauges) showGauge(metrics, name, help, read);
  const receiving = new ReceiveBudget(DEFAULT_LIMITS.maxReceivingBytes);
  const server = createRpcServer({
    listen: parseListenAddress(settings.listen),
    routes: berthRoutes({
      sandboxes,
      processes,
      files,
      sessions,
      catalog,
      tools,
      logger,
      ...workspaces,
      runs,
      events: state.events,
      requests,
      receiving,
      monitor,
      transcripts,
      engineName: engine.name,
      defaults: settings.defaults,
      keepaliveMs: KEEPALIVE_MS,
    }),
    logger,
    metrics,
    health: {
      isServing: () => monitor.available,
      reason: () => `The engine ${engine.name} does not answer.`,
      onChange: (changed) => monitor.onAvailabilityChange(changed),
    },
    ...(settings.tls && { tls: settings.tls }),
    allowHosts: settings.allowHosts,
    corsOrigins: settings.corsOrigins,
    limits: { readMaxBytesByMethod: FILE_READ_MAX_BYTES },
    receiving,
  });
  const processMetrics = new ProcessMetrics(metrics);
  let recovered: Promise<void> | undefined;
  /** Lets go of everything below the port; resolves with the ids of sandboxes that are still there. */
  const release = async (leave: boolean): Promise<string[]> => {
    const callsMs = settings.stopTimeoutMs * CALLS_SHARE_OF_STOP;
    requests.stop(new BerthError("SHUTTING_DOWN", "The server is shutting down."));
    processMetrics.stop();
    runs.stop();
    await sessions.shutdown({ leave, timeoutMs: callsMs });
    const left = await sandboxes.shutdown({ leave, timeoutMs: settings.stopTimeoutMs - callsMs });
    // What it begins when it has recovered is to be stopped too.
    await recovered;
    await workspaces.workspaces.stop();
    await processes.detach();
    lanes.closeAll();
    await engine.close();
    state.stop();
    return left;
  };
  const start = async (): Promise<ListenAddress> => {
    await directories.prepare();
    await sandboxes.recover();
    await processes.recover();
    sandboxes.start();
    state.start();
    sessions.recover();
    runs.recover();
    recovered = workspaces.workspaces.start();
    return server.start();
  };
  const address = await start().catch(async (error: unknown) => {
    // What an earlier run left stays for the next one.
    await release(true);
    throw error;
  });

  let stopping: Promise<{ left: string[] }> | undefined;
  const stop = async (): Promise<{ left: string[] }> => {
    await server.stop({ graceMs: settings.stopTimeoutMs * CALLS_SHARE_OF_STOP });
    const left = await release(settings.leaveSandboxes);
    store.close();
    return { left };
  };
  return {
    address: formatListenAddress(address),
    engine: { name: engine.name, version: monitor.info.version, isolation: monitor.info.isolation },
    stop: () => {
      stopping ??= stop();
      return stopping;
    },
  };
}

/** Looks whether a service with these settings could run here. Changes nothing. */
export async function diagnose(settings: AppSettings): Promise<Finding[]> {
  return [
    ...exposureFindings("data-dir", exposureAt(privateDataDir(settings.dataDir))),
    ...(await diagnoseRoots(settings)),
    ...(await diagnoseEngines(settings)),
  ];
}
