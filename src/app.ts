import path from "node:path";
import { Registry } from "prom-client";
import { auditWarning, diagnoseAudit, openAuditFile } from "./audit.ts";
import { SystemClock } from "./base/clock.ts";
import type { Finding } from "./base/diagnosis.ts";
import { BerthError } from "./base/errors.ts";
import { type Logger, SILENT } from "./base/logger.ts";
import { MemoryBudget } from "./base/memory-budget.ts";
import { exposureAt, exposureFindings } from "./base/private-directory.ts";
import type { RotatedFile } from "./base/rotated-file.ts";
import type { RunningService } from "./cli/service.ts";
import type { AppSettings } from "./config/settings.ts";
import { DataDisk } from "./data-disk.ts";
import {
  diagnoseCredentials,
  loadCredentials,
  NO_CREDENTIALS,
  type SecretSource,
} from "./egress/credentials.ts";
import { EgressManager } from "./egress/manager.ts";
import { chooseEngine, diagnoseEngines } from "./engine/choose.ts";
import { FileManager } from "./files/manager.ts";
import { TemporaryNames } from "./files/temporary-names.ts";
import { showGauges } from "./gauges.ts";
import { type ControlParts, ProcessControl } from "./processes/control.ts";
import { ProcessJournal } from "./processes/journal.ts";
import { ProcessManager } from "./processes/manager.ts";
import { SecretRunner } from "./processes/secret-runner.ts";
import { laneShell } from "./processes/shell/lane.ts";
import { Lanes } from "./processes/shell/lanes.ts";
import { PlainRunner } from "./processes/shell/plain-job.ts";
import { SpillDirectory } from "./processes/spill.ts";
import { TranscriptBudget } from "./processes/transcript-budget.ts";
import { FILE_READ_MAX_BYTES } from "./rpc/file-service.ts";
import { berthRoutes, METHOD_WORK } from "./rpc/routes.ts";
import { RunManager } from "./runs/manager.ts";
import { RunningRuns } from "./runs/running-runs.ts";
import { EngineMonitor } from "./sandboxes/engine-monitor.ts";
import { SandboxJournal } from "./sandboxes/journal.ts";
import type { SandboxObserver } from "./sandboxes/lease.ts";
import { SandboxManager } from "./sandboxes/manager.ts";
import { TenantQuotas } from "./sandboxes/tenant-quotas.ts";
import { AuditLog } from "./server/audit-log.ts";
import { formatListenAddress, type ListenAddress, parseListenAddress } from "./server/listen-address.ts";
import { diagnoseTls, LiveTls } from "./server/live-tls.ts";
import { ProcessMetrics } from "./server/process-metrics.ts";
import { createRpcServer, type RpcServer } from "./server/server.ts";
import { diagnoseDesktopPrograms } from "./sessions/diagnose.ts";
import { createSessions } from "./sessions/parts.ts";
import {
  databaseIn,
  diagnoseDatabase,
  diagnoseLock,
  holdInstance,
  privateDataDir,
} from "./state/data-dir.ts";
import { State } from "./state/state.ts";
import { Store } from "./store.ts";
import { TokenAuthenticator } from "./tenants/authenticator.ts";
import { diagnoseTokens, LiveTokens } from "./tenants/live-tokens.ts";
import { ALL_SECRETS, diagnoseSecrets, type SecretGrants, Secrets } from "./tenants/secrets.ts";
import { VERSION } from "./version.ts";
import { WorkspaceMounts } from "./workspaces/mounts.ts";
import { createWorkspaces, diagnoseRoots, workspaceStorage } from "./workspaces/parts.ts";

const STALE_TOKENS =
  "The tokens file has changed and cannot be used: the tokens it held before stay in force. The log says why.";
const STALE_SECRETS =
  "The secrets file has changed and cannot be used: the secrets it held before stay in force. The log says why.";
const STALE_TLS =
  "The TLS files have changed and cannot be used: the certificate from before stays in use. The log says why.";
const EXPIRED_TLS =
  "The TLS certificate has expired, and clients refuse it: replace the file of --tls-cert and that of its key.";
const REPLACED_DATA =
  "The data directory was removed, moved or mounted over: what the service stores now is lost when it stops. Put it back, or restart the service.";
const LOW_DISK = "The disk of the data directory is nearly full: free space there.";
const KEEPALIVE_MS = 15_000;
const LANES = { spare: 1, max: 16, idleMs: 60_000 };
/** Between SIGTERM and SIGKILL when a process tree is ended. */
const KILL_GRACE_MS = 2_000;
/** For all transcripts together. The rest is on disk. */
const TRANSCRIPTS_MEMORY_BYTES = 256 * 1024 * 1024;
/** For what all calls gather until they are over. */
const GATHERED_MEMORY_BYTES = 512 * 1024 * 1024;
const TRANSCRIPT_IN_MEMORY = { headBytes: 1024 * 1024, memoryBytes: 2 * 1024 * 1024 };
/**
 * When parts of a stop have to be over, as shares of its time: running calls, the sending of their last messages, the
 * ends of sessions. Each gets what those before it left, and so do the sandboxes and the workspaces, up to the end.
 */
const STOP = { calls: 0.3, messages: 0.5, sessions: 0.6 };

/**
 * Builds the service and starts it. The only place that names the concrete parts.
 * @param signal ends the wait for an engine that does not answer.
 * @throws `ENGINE_UNAVAILABLE` if the engine does not answer; `INVALID_ARGUMENT` if the data directory cannot be used;
 *   an error that says why it cannot listen on the address.
 */
export async function startApp(
  settings: AppSettings,
  logger: Logger,
  signal?: AbortSignal,
): Promise<RunningService> {
  const store = Store.open(settings.dataDir, { instance: settings.instance });
  try {
    return await start(settings, store, logger, signal);
  } catch (error) {
    store.close();
    throw error;
  }
}

async function start(
  settings: AppSettings,
  store: Store,
  logger: Logger,
  signal: AbortSignal | undefined,
): Promise<RunningService> {
  const tokens = settings.tokens === undefined ? undefined : await LiveTokens.start(settings.tokens, logger);
  await using early = new AsyncDisposableStack();
  early.defer(() => tokens?.stop());
  const tls = settings.tls && (await LiveTls.open(settings.tls, logger));
  const audit = await openAuditFile(settings, logger);
  early.defer(() => audit?.close());
  const secrets = await Secrets.open(settings.secrets, grantsOf(tokens), logger);
  secrets.follow();
  early.defer(() => secrets.stop());
  const disk = await DataDisk.watch(settings.dataDir, databaseIn(settings.dataDir), logger);
  early.defer(() => disk.stop());
  const service = await compose(settings, { tokens, secrets }, store, logger, signal);
  early.move();
  const { engine, monitor } = service;
  const metrics = new Registry();
  showGauges(metrics, { ...service, quota: service.workspaces.quota, disk, tokens, tls, audit });
  const server = createServer(settings, service, { tokens, tls, audit, disk }, metrics, logger);
  tls?.follow((options) => server.setTls(options));
  const processMetrics = new ProcessMetrics(metrics);

  /** From the bottom up: each part needs those recovered before it. */
  const recover = async (): Promise<void> => {
    await service.storage.prepare();
    await service.sandboxes.recover();
    await service.processes.recover();
    service.sandboxes.start();
    service.state.start();
    await service.sessions.recover();
    service.runs.recover();
    void service.workspaces.workspaces.start();
  };
  /** Stops the parts from the top down. Resolves with the ids of sandboxes that still exist. */
  const release = async (leave: boolean, leftMs: TimeLeft): Promise<string[]> => {
    service.state.requests.stop(new BerthError("SHUTTING_DOWN", "The server is shutting down."));
    processMetrics.stop();
    disk.stop();
    service.runs.stop();
    await service.sessions.shutdown({ leave, timeoutMs: leftMs(STOP.sessions) });
    const left = await service.sandboxes.shutdown({ leave, timeoutMs: leftMs() });
    await service.workspaces.workspaces.stop({ timeoutMs: leftMs() });
    await service.processes.detach();
    service.lanes.closeAll();
    service.egress.stop();
    await engine.close();
    await tokens?.stop();
    await secrets.stop();
    await tls?.stop();
    await audit?.close();
    service.state.stop();
    service.releaseInstance?.();
    return left;
  };

  let address: ListenAddress;
  try {
    await recover();
    address = await server.start();
  } catch (error) {
    // Leave what an earlier run left behind to the next one.
    await release(true, timeLeft(settings.stopTimeoutMs));
    throw error;
  }
  let stopping: Promise<{ left: string[] }> | undefined;
  const stop = async (): Promise<{ left: string[] }> => {
    const leftMs = timeLeft(settings.stopTimeoutMs);
    const callsMs = leftMs(STOP.calls);
    await server.stop({ graceMs: callsMs, flushMs: leftMs(STOP.messages) - callsMs });
    const left = await release(settings.leaveSandboxes, leftMs);
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

/** How many milliseconds are left until a share of a stop's time is over. Default: all of it. */
type TimeLeft = (share?: number) => number;

/** Starts the time of a stop. */
function timeLeft(timeoutMs: number): TimeLeft {
  const startMs = performance.now();
  return (share = 1) => Math.max(0, startMs + timeoutMs * share - performance.now());
}

type Service = Awaited<ReturnType<typeof compose>>;

/** Creates every part below the port, in the order of their dependencies. */
async function compose(
  settings: AppSettings,
  { tokens, secrets }: { readonly tokens: LiveTokens | undefined; readonly secrets: Secrets },
  store: Store,
  logger: Logger,
  signal: AbortSignal | undefined,
) {
  const { egressCredentials: file } = settings;
  const credentials = file === undefined ? NO_CREDENTIALS : await loadCredentials(file, secrets);
  const clock = new SystemClock();
  const disk = await SpillDirectory.create(path.join(settings.dataDir, "transcripts"));
  const engine = await chooseEngine(settings, store.instance, logger, () => store.sandboxes.refs(), signal);
  let monitor: EngineMonitor;
  let releaseInstance: (() => void) | undefined;
  try {
    // Containers outlive services and are found by their instance.
    if (engine.name === "docker") releaseInstance = await holdInstance(store.instance);
    monitor = await EngineMonitor.connect(engine, logger, signal);
  } catch (error) {
    releaseInstance?.();
    await engine.close();
    throw error;
  }
  const state = new State(store, {
    clock,
    logger,
    answers: { bytes: settings.answerQuotaBytes, ownerBytes: settings.answerOwnerQuotaBytes },
  });
  const { time, requests } = state;
  const common = { clock, time, logger };
  // Without tokens there is one tenant, which only has the limits of the service.
  const quotas = new TenantQuotas(clock, (tenant) =>
    tokens === undefined ? {} : { ...settings.tenantQuota, ...tokens.table.tenants.get(tenant) },
  );

  // Lanes and control give up sandboxes, and the manager of sandboxes opens and closes lanes.
  const giveUp: ControlParts["giveUp"] = ({ ref }, why, aloneForMs) => sandboxes.giveUp(ref, why, aloneForMs);
  const lanes = new Lanes(engine, new PlainRunner(engine), LANES, logger, giveUp);
  const control = new ProcessControl({ shells: lanes, engine, giveUp });
  const runner = new SecretRunner(lanes, secrets);
  const egress = new EgressManager(engine, logger, credentials);
  const observer: SandboxObserver = {
    firstShell: laneShell(engine),
    ready: (sandbox) => {
      lanes.open(sandbox);
      egress.reopen(sandbox);
    },
    ending: (sandbox) => {
      const { ref } = sandbox;
      egress.close(ref);
      lanes.close(ref);
      control.forget(ref);
      sessions.sandboxEnds(sandbox);
    },
  };
  const names = new TemporaryNames(store.instance);
  const { volumes } = engine;
  const storage = workspaceStorage(settings, { volumes, names, instance: store.instance, logger });
  // Sandboxes need the mounts, which need the sizes of workspaces, and what exceeds its quota is reported to sandboxes.
  const mounts = new WorkspaceMounts({
    store: store.workspaces,
    storage,
    clock,
    assertTenantRoom: (owner, signal) => workspaces.quota.assertTenantRoom(owner, { signal }),
  });
  const journal = new SandboxJournal({ ...state, store: store.sandboxes });
  const sandboxes = new SandboxManager(settings, {
    ...common,
    engine,
    monitor,
    journal,
    observer,
    egress,
    mounts,
    quotas,
  });
  const memory = new MemoryBudget(GATHERED_MEMORY_BYTES);
  const workspaces = createWorkspaces(settings, {
    ...common,
    store: store.workspaces,
    storage,
    mounts,
    names,
    sandboxes,
    quotas,
    monitor,
    memory,
  });

  const running = new RunningRuns(clock, time);
  const transcripts = new TranscriptBudget(
    {
      bytes: settings.transcriptQuotaBytes,
      ownerBytes: settings.transcriptOwnerQuotaBytes,
      memoryBytes: TRANSCRIPTS_MEMORY_BYTES,
    },
    (tenant) => quotas.quotaOf(tenant).transcriptBytes,
  );
  const processes = new ProcessManager(
    { maxProcessesPerSandbox: settings.maxProcessesPerSandbox, keepaliveMs: KEEPALIVE_MS },
    sandboxes,
    requests,
    running,
    {
      ...common,
      quotas,
      memory,
      runner,
      control,
      transcript: { windowBytes: settings.transcriptWindowBytes, ...TRANSCRIPT_IN_MEMORY },
      transcripts,
      openSpill: () => disk.open(),
      journal: new ProcessJournal({ ...state, store: store.processes, disk, engine }),
      killGraceMs: KILL_GRACE_MS,
    },
  );
  const files = new FileManager(
    { maxOperationsPerSandbox: settings.maxProcessesPerSandbox },
    { ...common, sandboxes, runner: lanes, control, names, memory },
  );
  const runs = new RunManager({
    ...common,
    store: store.runs,
    transaction: store.transaction,
    writeBehind: state.writeBehind,
    sandboxes,
    processes,
    running,
    maxBytesPerOwner: settings.runOwnerQuotaBytes,
  });
  const { sessions, catalog, tools, viewer } = createSessions(settings, {
    ...common,
    sandboxes,
    quotas,
    processes,
    files,
    runner,
    shells: lanes,
    control,
    store: store.sessions,
    writeBehind: state.writeBehind,
  });
  const below = {
    clock,
    secrets,
    engine,
    releaseInstance,
    monitor,
    egress,
    state,
    lanes,
    transcripts,
    quotas,
    memory,
    storage,
  };
  return { ...below, sandboxes, workspaces, processes, files, runs, sessions, catalog, tools, viewer };
}

/** Creates the port with everything that it serves. */
function createServer(
  settings: AppSettings,
  service: Service,
  live: LiveFiles,
  metrics: Registry,
  logger: Logger,
): RpcServer {
  const { tokens, tls, audit, disk } = live;
  const { engine, monitor, state, workspaces, clock, secrets, ...managers } = service;
  return createRpcServer({
    listen: parseListenAddress(settings.listen),
    methodWork: METHOD_WORK,
    routes: berthRoutes({
      ...managers,
      ...workspaces,
      monitor,
      events: state.events,
      requests: state.requests,
      logger,
      engineName: engine.name,
      defaults: settings.defaults,
      keepaliveMs: KEEPALIVE_MS,
      version: VERSION,
    }),
    logger,
    metrics,
    health: {
      isServing: () => monitor.available && disk.problem === undefined,
      reason: () =>
        monitor.available
          ? `The data directory cannot be written (${disk.problem}), so nothing can be created or changed: check its disk (dmesg).`
          : `The engine ${engine.name} does not answer. ${monitor.trouble}`.trimEnd(),
      warning: () => warningsOf(live, secrets, monitor.info.warning),
      onChange: (changed) => {
        const stops = [monitor.onAvailabilityChange(changed), disk.onProblemChange(changed)];
        return () => stops.forEach((stop) => void stop());
      },
    },
    ...(tls && { tls: tls.options }),
    ...(audit && { audit: new AuditLog(audit, { reads: settings.auditReads }) }),
    ...(tokens && { authenticator: new TokenAuthenticator(tokens, clock) }),
    allowHosts: settings.allowHosts,
    corsOrigins: settings.corsOrigins,
    limits: { readMaxBytesByMethod: FILE_READ_MAX_BYTES },
  });
}

/** What the service reads or writes while it runs. Undefined: not configured. */
interface LiveFiles {
  readonly tokens: LiveTokens | undefined;
  readonly tls: LiveTls | undefined;
  readonly audit: RotatedFile | undefined;
  readonly disk: DataDisk;
}

/** The secrets that the tokens file currently grants. */
function grantsOf(tokens: LiveTokens | undefined): SecretGrants {
  if (tokens === undefined) return ALL_SECRETS;
  return { allows: (tenant, name) => tokens.table.grants.get(tenant)?.has(name) ?? false };
}

function warningsOf(
  { tokens, tls, audit, disk }: LiveFiles,
  secrets: Secrets,
  engine: string | undefined,
): string | undefined {
  const warnings = [
    engine,
    tokens?.isStale && STALE_TOKENS,
    tls?.isStale && STALE_TLS,
    tls && tls.expireTimeMs <= Date.now() && EXPIRED_TLS,
    ...(tls?.authorityProblems ?? []).map(
      (problem) =>
        `An authority of client certificates is not trusted (${problem}): replace it in the file of --tls-client-ca.`,
    ),
    secrets.isStale && STALE_SECRETS,
    disk.isReplaced && REPLACED_DATA,
    disk.isLow && LOW_DISK,
    audit && auditWarning(audit),
  ].filter(Boolean);
  return warnings.length === 0 ? undefined : warnings.join(" ");
}

/**
 * Checks whether a service with these settings could run here. Changes nothing.
 * @param runs whether it may be running already, and so hold its data directory.
 */
export async function diagnose(settings: AppSettings, runs: boolean): Promise<Finding[]> {
  return [
    ...exposureFindings("data-dir", exposureAt(privateDataDir(settings.dataDir))),
    ...(runs ? [] : diagnoseLock(settings.dataDir)),
    ...diagnoseDatabase(settings.dataDir),
    ...(settings.tls === undefined ? [] : diagnoseTls(settings.tls)),
    ...(settings.tokens === undefined ? [] : [await diagnoseTokens(settings.tokens)]),
    ...(settings.secrets === undefined ? [] : [await diagnoseSecrets(settings.secrets)]),
    ...(settings.egressCredentials === undefined
      ? []
      : [await diagnoseCredentials(settings.egressCredentials, await secretsToDiagnose(settings))]),
    ...(await diagnoseAudit(settings)),
    // With Kubernetes, the cluster checks its volumes.
    ...(settings.engine === "kubernetes" ? [] : await diagnoseRoots(settings)),
    ...(await diagnoseEngines(settings, diagnoseDesktopPrograms)),
  ];
}

/** The secrets, or empty ones if they cannot be read: problems with them are a separate finding. */
function secretsToDiagnose({ secrets }: AppSettings): Promise<SecretSource> {
  return Secrets.open(secrets, ALL_SECRETS, SILENT).catch(() => ({ read: async () => "" }));
}
