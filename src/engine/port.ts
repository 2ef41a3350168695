import type { Server } from "node:net";

/**
 * The engine port: what Berth needs from the part that runs sandboxes.
 *
 * Walk-through: {@link Engine.ensureImage} pulls the image, {@link Engine.create} creates a sandbox that is ready for
 * {@link Engine.spawn}, through which everything inside happens: commands, files, sessions. {@link Engine.events}
 * reports sandboxes that end by themselves. {@link Engine.remove} removes a sandbox permanently.
 *
 * A sandbox is named by its `ref`, which the engine chooses (Docker: the
 * container id) and never reuses.
 *
 * Methods fail with `BerthError` only, translated in one file of each engine: `ENGINE_UNAVAILABLE` if the engine does
 * not answer, `SANDBOX_TERMINATED` if the ref's sandbox is gone or not running, `UNSUPPORTED` for what
 * {@link EngineCapabilities} excludes. Every method that can take long fails with its signal's error soon after the
 * signal is aborted.
 */
export interface Engine {
  /** Its name, for instance `docker`. */
  readonly name: string;

  /**
   * Path, inside sandboxes, of a library that makes a program that preloads it undumpable: other processes of its user
   * can then access neither its memory nor its descriptors, but {@link OutsideControl} still can. Undefined if there is
   * none. A particular sandbox may lack it.
   */
  readonly undumpable: string | undefined;

  /** Volumes that its sandboxes mount; undefined if they mount directories of the host. */
  readonly volumes?: EngineVolumes | undefined;

  /** Describes the engine and its capabilities. Also the health check. */
  info(signal?: AbortSignal): Promise<EngineInfo>;

  /**
   * Pulls the image unless it is present.
   * @throws `IMAGE_UNAVAILABLE` if it cannot be pulled; the message says what to do.
   */
  ensureImage(image: string, options: EnsureImageOptions): Promise<void>;

  /**
   * Creates and starts a sandbox. When it returns, commands can be spawned.
   * On any failure, and when the signal is aborted, nothing is left behind.
   * @throws `IMAGE_UNAVAILABLE`, `SANDBOX_START_FAILED`, `NOT_ALLOWED`, `INVALID_ARGUMENT`.
   */
  create(spec: EngineSandboxSpec, signal?: AbortSignal): Promise<EngineSandbox>;

  /** Freezes all processes. Idempotent. */
  pause(ref: string, signal?: AbortSignal): Promise<void>;

  /** Resumes frozen processes. Idempotent. */
  resume(ref: string, signal?: AbortSignal): Promise<void>;

  /** Whether a sandbox is paused now, by Berth or not. {@link list} may show that a moment later. */
  isPaused(ref: string, signal?: AbortSignal): Promise<boolean>;

  /**
   * Adds mounts to a running sandbox that nobody has used yet and whose {@link EngineSandbox.takesMounts} is set.
   * @throws `UNSUPPORTED` if that turns out to be impossible, `NOT_ALLOWED`. The caller then removes the sandbox.
   */
  mount(ref: string, mounts: readonly EngineMount[], signal?: AbortSignal): Promise<void>;

  /**
   * Changes the limits of a running sandbox, except its disk limit. They are in force when this returns.
   * @throws `UNSUPPORTED` if that is impossible. A new sandbox may still get these limits.
   */
  setResources(ref: string, resources: Resources, signal?: AbortSignal): Promise<void>;

  /** Ends and removes a sandbox in any state; returns when it is gone. Idempotent: an unknown ref counts as gone. */
  remove(ref: string, signal?: AbortSignal): Promise<void>;

  /** Every sandbox of this instance that exists, ended ones included. */
  list(signal?: AbortSignal): Promise<EngineSandbox[]>;

  /**
   * Events of this instance's sandboxes, from the call on, until the signal is aborted. Throws `ENGINE_UNAVAILABLE`
   * when the connection is lost; {@link list} then shows what was missed.
   */
  events(signal: AbortSignal): AsyncIterable<EngineEvent>;

  /** What a running or paused sandbox uses right now. */
  usage(ref: string, signal?: AbortSignal): Promise<EngineUsage>;

  /**
   * Starts a process in a sandbox, in the directory `/`. When it returns, the process runs or has run. Its output goes
   * to the sink once the returned promise has resolved. If the signal is aborted halfway, the process may run.
   * @throws `INVALID_ARGUMENT` with the metadata `field`: `user` for an unknown user, `argv` for a program that cannot
   * be run, with the `exit_code` that a shell would give (126, 127). `SANDBOX_NOT_RUNNING` while paused,
   * `TOO_MANY_OPERATIONS` if the sandbox's own limits leave no room for a process.
   */
  spawn(ref: string, request: SpawnRequest, sink: OutputSink, signal?: AbortSignal): Promise<SpawnedProcess>;

  /**
   * Opens a TCP port on 127.0.0.1 inside a sandbox, with any network mode; the service accepts its connections. It
   * stays open until it is closed or the sandbox ends.
   * @throws `UNSUPPORTED`, `SANDBOX_START_FAILED` if the port is in use in the sandbox.
   */
  listen(ref: string, port: number, signal?: AbortSignal): Promise<Server>;

  /**
   * Called once, at start: reattaches to processes that an earlier run of the service spawned and left running. Their
   * unread output goes to their sinks; their stdin ended with that run. Other processes of that run are detached.
   * Returns the processes in order, with undefined for those that the engine no longer knows and whose exit is lost.
   */
  recover(left: readonly LeftProcess[]): Promise<readonly (SpawnedProcess | undefined)[]>;

  /**
   * Controls a running sandbox's processes from outside it; undefined if the engine runs on another machine or the
   * service lacks the rights.
   */
  outside(ref: string, signal?: AbortSignal): Promise<OutsideControl | undefined>;

  /** Gauges for the metrics. */
  figures(): EngineFigures;

  /** Closes connections. Sandboxes that can outlive the service keep running. */
  close(): Promise<void>;
}

/** The network access of a sandbox. */
export type NetworkMode = "NONE" | "EGRESS";

/** How strongly code in a sandbox is isolated from the host. */
export type IsolationLevel = "NAMESPACE" | "CONTAINER" | "USER_KERNEL" | "VIRTUAL_MACHINE";

/** Limits of a sandbox. */
export interface Resources {
  readonly memoryBytes: number;
  readonly cpuMillis: number;
  readonly pidsLimit: number;
  /** Undefined: no limit. */
  readonly diskBytes: number | undefined;
}

/** Describes an engine and its capabilities. */
export interface EngineInfo {
  readonly version: string;
  /** Isolation level of a sandbox with the engine's default runtime. */
  readonly isolation: IsolationLevel;
  /** Whether a sandbox may use an image other than the default. */
  readonly images: boolean;
  readonly capabilities: EngineCapabilities;
  /**
   * Whether sandboxes with the network NONE may reach the engine's own network: the operator accepts that, or a test
   * has found it. Default false.
   */
  readonly openNetwork?: boolean;
  /** A warning for the operator, in sentences. The engine works nevertheless. */
  readonly warning?: string;
  /** CPUs of the engine's machine. */
  readonly cpus: number;
  /** Bytes of memory of the engine's machine. */
  readonly memoryBytes: number;
}

/**
 * What an engine can do. A request for something that is `false` fails with `UNSUPPORTED`, except for the filter, which
 * cannot be requested.
 */
export interface EngineCapabilities {
  readonly pause: boolean;
  readonly memoryLimit: boolean;
  readonly cpuLimit: boolean;
  readonly pidsLimit: boolean;
  readonly diskLimit: boolean;
  /** Whether a sandbox may have {@link NetworkMode} EGRESS. */
  readonly egress: boolean;
  /** Whether {@link Engine.listen} works. Sandboxes need it to reach the proxy for their egress domains. */
  readonly egressDomains: boolean;
  /** Whether sandboxes have a filter of system calls, which blocks those that ordinary programs do not need. */
  readonly systemCallFilter: boolean;
}

/** Progress of a pull. */
export interface PullProgress {
  readonly currentBytes: number;
  /** The total known so far; it grows as layers are discovered. */
  readonly totalBytes: number;
  readonly layersDone: number;
  readonly layersTotal: number;
}

export interface EnsureImageOptions {
  /**
   * The sandbox that needs the image. An engine that has to run the image for that isolates it like this sandbox, and
   * first refuses what {@link Engine.create} would refuse. Default: a sandbox without a network and with the default
   * runtime, which nothing refuses.
   */
  readonly sandbox?: EngineSandboxSpec;
  /** Called now and then during a pull; never if the image is present. */
  readonly onProgress?: (progress: PullProgress) => void;
  readonly signal?: AbortSignal;
}

/**
 * A mount in a sandbox. Each engine accepts one kind: volumes if it has {@link Engine.volumes}, else directories of the
 * host.
 */
export type EngineMount = HostMount | VolumeMount;

/** Where and how a mount appears in a sandbox. */
export interface MountPlace {
  readonly target: string;
  readonly readOnly: boolean;
  /** Whether the sandbox's user becomes the owner of the directory itself (but not of its contents). */
  readonly giveToUser: boolean;
}

/** A directory of the host. The engine resolves it and, unless it is `own`, checks it against the allowed roots. */
export interface HostMount extends MountPlace {
  readonly kind: "host";
  readonly hostPath: string;
  /**
   * Whether it is Berth's own directory, which no sandbox can change. It is mounted without a check against the allowed
   * roots, as long as it is a real path. Default false.
   */
  readonly own?: boolean;
}

/** A top-level directory of a volume, created if it is missing. Every user of the sandbox may write to it. */
export interface VolumeMount extends MountPlace {
  readonly kind: "volume";
  readonly volume: string;
  readonly directory: string;
}

/**
 * Storage that sandboxes mount and that outlives them. The engine knows only names and labels of volumes.
 *
 * Methods fail like those of {@link Engine}, and also with `NO_SPACE` if there is no room for a volume.
 */
export interface EngineVolumes {
  /** Whether any number of sandboxes, on any machines, may mount a volume at once. */
  readonly shareable: boolean;
  /** Whether a volume can be created as a clone of another one. */
  readonly clones: boolean;
  /** Size of each volume in bytes. */
  readonly sizeBytes: number;
  /** Where an operator finds a volume of this name, whether or not it exists. */
  locate(name: string): string;
  /** Removes what an earlier run of the service left behind from {@link open}. */
  recover(signal?: AbortSignal): Promise<void>;
  /**
   * Creates a volume; returns false if the name is taken.
   * @param options.cloneOf the name of the volume to clone. The clone is made when the new volume is first opened, and
   *   may turn out empty: the caller has to check.
   */
  make(volume: VolumeLabels, options?: { readonly cloneOf?: string }): Promise<boolean>;
  /** Finds a volume of this instance. */
  find(name: string, signal?: AbortSignal): Promise<EngineVolume | undefined>;
  /** All volumes of this instance. */
  list(signal?: AbortSignal): Promise<EngineVolume[]>;
  /** Removes a volume with its contents; returns when it is gone. Idempotent. */
  remove(name: string, signal?: AbortSignal): Promise<void>;
  /**
   * Opens a volume for the service's own work. No code of a sandbox runs there, though sandboxes may have the volume
   * mounted at the same time.
   * @throws `WORKSPACE_IN_USE` if the volume can be mounted only once, and a sandbox has it mounted or it is open.
   */
  open(name: string, signal?: AbortSignal): Promise<OpenVolume>;
  /**
   * Like {@link open}, with a second volume mounted read-only.
   * @param options.timeoutMs how long this may take. Default: the engine's timeout for a start.
   */
  openBeside(
    name: string,
    other: string,
    options: { readonly signal: AbortSignal; readonly timeoutMs?: number },
  ): Promise<OpenVolume & { readonly otherPath: string }>;
}

/** What a volume is for. Names are 1-63 lower-case letters, digits and dashes. */
export interface VolumeLabels {
  readonly name: string;
  readonly owner: string;
  /** Empty for the shared directory of an owner. */
  readonly workspaceId: string;
}

/** A volume as the engine sees it. */
export interface EngineVolume extends VolumeLabels {
  /** Why no sandbox can use it, and what to do; undefined if no problem is known. */
  readonly problem: string | undefined;
}

/** A volume opened for the service's own work, as root and without a network. */
export interface OpenVolume {
  /** Path of the volume, for spawned processes. */
  readonly path: string;
  /** As {@link Engine.spawn}. */
  spawn(request: SpawnRequest, sink: OutputSink, signal?: AbortSignal): Promise<SpawnedProcess>;
  /** Ends all processes in it and closes it; returns when it is gone. Idempotent, never rejects. */
  close(): Promise<void>;
}

/** Everything an engine needs to create a sandbox. */
export interface EngineSandboxSpec {
  readonly sandboxId: string;
  readonly generation: number;
  readonly owner: string;
  readonly image: string;
  readonly env: Readonly<Record<string, string>>;
  /** Absolute. Created if missing, and then owned by the user. */
  readonly workingDir: string;
  /** Empty: the image's. */
  readonly user: string;
  readonly resources: Resources;
  readonly network: NetworkMode;
  readonly mounts: readonly EngineMount[];
  /** Whether mounts may be added later, if the engine supports that. Default false. */
  readonly takesMounts?: boolean;
  /** An OCI runtime's name; empty: the engine's default. */
  readonly runtime: string;
  /**
   * The first process that the caller will spawn, as the default user, with stdin and without extra environment. An
   * engine that is able to starts it together with the sandbox. Default: not known.
   */
  readonly firstShell?: FirstShell;
}

/** A process that reads `input` from its stdin at once, and later what its user writes. */
export interface FirstShell {
  readonly argv: readonly string[];
  /** What it reads from stdin first. */
  readonly input: Buffer;
}

/** A sandbox as the engine sees it. */
export interface EngineSandbox {
  readonly ref: string;
  readonly sandboxId: string;
  readonly generation: number;
  readonly owner: string;
  readonly state: "running" | "paused" | "ended";
  readonly isolation: IsolationLevel;
  /** The user that commands run as: the spec's, else the image's. */
  readonly user: string;
  /** How the main process ended, in state `ended`. */
  readonly end?: EngineSandboxEnd;
  /** Whether {@link Engine.mount} works for it. Set only by {@link Engine.create}. Default false. */
  readonly takesMounts?: boolean;
}

export interface EngineSandboxEnd {
  readonly exitCode: number;
  readonly outOfMemory: boolean;
  /** The cause in the engine's words, if it says more than the fields above: an eviction, a lost node. */
  readonly cause?: string;
  /** Whether it was ended from outside, not by what ran in it. */
  readonly isRemoved?: true;
  /** The node it ran on, if the node is lost: its processes may still run there. */
  readonly lostNode?: string;
}

/** Something that happened to a sandbox, caused by Berth or not. */
export type EngineEvent =
  | EngineEndEvent
  | { readonly type: "paused" | "resumed"; readonly ref: string; readonly sandboxId: string };

/** The end of a sandbox, or the removal of what is left of it. */
export type EngineEndEvent =
  | {
      readonly type: "ended";
      readonly ref: string;
      readonly sandboxId: string;
      readonly end: EngineSandboxEnd;
    }
  | { readonly type: "removed"; readonly ref: string; readonly sandboxId: string };

/** The resource usage of a sandbox. */
export interface EngineUsage {
  /** Without page cache that the kernel can reclaim at any time. */
  readonly memoryBytes: number;
  /** CPU time since its start, in nanoseconds. */
  readonly cpuNanos: number;
  /** Processes and threads. */
  readonly pids: number;
}

/** Gauges of an engine. */
export interface EngineFigures {
  /** Number of ended processes whose output pipes are orphaned. */
  readonly orphanedPipes: number;
  /**
   * Number of sandboxes whose output takes a slower path because their pipes failed. 0 if the engine has only one path.
   */
  readonly sandboxesWithoutPipes: number;
  /** Sandboxes that wait to start, if the engine queues starts. */
  readonly waiting: readonly WaitingSandbox[];
}

/** What a sandbox waits for before it runs. `STARTING`: nothing is known to block it. */
export type WaitReason = (typeof WAIT_REASONS)[number];

export const WAIT_REASONS = ["STARTING", "UNSCHEDULABLE", "IMAGE", "RUNTIME", "VOLUME"] as const;

/** A sandbox that the engine has accepted and that does not run yet. */
export interface WaitingSandbox {
  /** Empty for a probe of an image, which has no owner either. */
  readonly sandboxId: string;
  readonly owner: string;
  readonly image: string;
  readonly reason: WaitReason;
  /** The engine's words, at most 500 characters. */
  readonly message: string;
  /** Unix time. */
  readonly sinceMs: number;
}

/** Size of a terminal in characters. */
export interface TerminalSize {
  readonly columns: number;
  readonly rows: number;
}

/**
 * A process to start. The argument list is passed to the kernel unchanged; the engine looks up its first element in
 * PATH.
 */
export interface SpawnRequest {
  readonly argv: readonly string[];
  /** Added to the sandbox's environment, which it overrides. */
  readonly env?: Readonly<Record<string, string>>;
  /** Empty: the sandbox's user. */
  readonly user?: string;
  /** Whether {@link SpawnedProcess.writeStdin} will be used; otherwise stdin is empty. */
  readonly stdin: boolean;
  /** Written to stdin at once, before the process is known to run. Requires `stdin`. */
  readonly input?: Uint8Array;
  /** Gives it a terminal of this size; stderr is then part of stdout. */
  readonly terminal?: TerminalSize;
  /**
   * If it is aborted before the engine is asked to start the process, the spawn fails with its error and nothing runs.
   * Later it has no effect, so the caller knows about every process that runs.
   */
  readonly dropSignal?: AbortSignal | undefined;
}

/** Which of a process's two streams. */
export type OutputStream = "stdout" | "stderr";

/** Receives what a process writes. */
export interface OutputSink {
  /** Called with the bytes of each stream in order. The sink owns the buffer. */
  data(stream: OutputStream, chunk: Buffer): void;
  /**
   * Called once, when no more output will come: no process holds the pipes any more, the engine dropped them (Docker's
   * own streams: 2 s after the process itself ended), or the connection broke or was closed (`error`).
   */
  end(error?: Error): void;
}

/** A process that an earlier run of the service spawned, for {@link Engine.recover}. */
export interface LeftProcess {
  /** Its sandbox. */
  readonly ref: string;
  /** Its {@link SpawnedProcess.handle}. */
  readonly handle: string;
  readonly sink: OutputSink;
}

/** A process started by {@link Engine.spawn}. {@link close} does not end the process. */
export interface SpawnedProcess {
  /**
   * Identifies it to {@link Engine.recover} in a later run of the service; undefined if the process cannot outlive this
   * run.
   */
  readonly handle: string | undefined;
  /** Soon stops the flow to the sink; the process then blocks as on a full pipe. */
  pause(): void;
  resume(): void;
  /**
   * Drains output slowly, until {@link pause} or {@link resume}, for output that nobody wants. The writer is slowed to
   * a few hundred KiB per second.
   */
  trickle(): void;
  /**
   * Writes to stdin; resolves when more may be written, and hardly any memory is used for what was. Rejects with
   * `PROCESS_STATE` when no process reads it any more.
   */
  writeStdin(data: Uint8Array): Promise<void>;
  /** Ends stdin. Idempotent. */
  closeStdin(): void;
  /** Changes the terminal's size. */
  resize(size: TerminalSize): Promise<void>;
  /**
   * Resolves with the exit code once the process itself has ended, even while other processes hold its pipes; 128 + n
   * if signal n ended it. Rejects with `ENGINE_UNAVAILABLE` or `SANDBOX_TERMINATED` if the code is lost. The process is
   * not watched before the first call.
   */
  wait(signal?: AbortSignal): Promise<number>;
  /**
   * Detaches from the process: no more output is delivered, and its stdin ends. Idempotent. Ends neither the process
   * nor what it left behind: writers are slowed down as by {@link trickle}, and block for ever once too many such
   * processes are left.
   */
  close(): void;
}

/** Identifies a process in its sandbox. */
export interface ProcessName {
  readonly pid: number;
  /** When the kernel started it, in the ticks of /proc; empty if unknown. */
  readonly startTime: string;
}

/**
 * Acts on the processes of a sandbox from outside it. It relies on nothing in the sandbox, so nothing in it can delay
 * or deceive it: not a full process table, and not stopped, replaced or busy shells. It never touches a process of
 * another sandbox or of the host.
 *
 * A tree belongs to a session leader that Berth started. It is made up of the leader's session, all descendants of the
 * tree, and all processes that hold the pipes that the leader has as descriptors 3 and 4.
 */
export interface OutsideControl {
  /** The processes of a leader's tree, including the leader; empty if none is left. */
  tree(leader: ProcessName): Promise<readonly ProcessName[]>;
  /** The leader's own state; undefined if it has ended. */
  stateOf(leader: ProcessName): Promise<"running" | "stopped" | undefined>;
  /** Whether any process of a leader's tree is stopped by a signal. */
  isHeldUp(leader: ProcessName): Promise<boolean>;
  /** Continues stopped processes of a leader's tree. */
  continueTree(leader: ProcessName): Promise<void>;
  /** Sends a signal to the leader's process group; 0 sends none. Returns whether the group has a process. */
  signalGroup(leader: ProcessName, signal: number): Promise<boolean>;
  /**
   * Sends SIGTERM to a tree, and continues its stopped processes so that they receive it. Returns the tree for
   * {@link DoomedTree.kill}.
   */
  terminateTree(leader: ProcessName): Promise<DoomedTree>;
  /** Kills a tree at once, as {@link DoomedTree.kill} does; its stopped processes do not run again. */
  killTree(leader: ProcessName): Promise<void>;
  /**
   * Checks that a shell that Berth started is alone: it runs nothing, no process that appeared since `before` is in its
   * session or holds its pipes, and it is neither stopped nor traced. Undefined if it is not alone, or if that cannot
   * be seen.
   * @param before the result of the previous check; undefined: check every process.
   */
  seclusion(shell: ProcessName, before?: Seclusion): Promise<Seclusion | undefined>;
  /** How often the kernel's OOM killer has killed in the sandbox; undefined if the kernel does not count that. */
  oomKills(): number | undefined;
  /** Whether the sandbox's main process is ending or has ended, which ends all others. */
  isEnding(): Promise<boolean>;
  /**
   * Continues process starts that a signal has stopped halfway: those in progress, and those of the last `withinMs`. On
   * Docker a start that is stopped halfway blocks all later starts and the container's removal.
   */
  continueStarts(withinMs: number): Promise<void>;
  /** Kills what {@link continueStarts} would continue and has no child yet, because nobody waits for it any more. */
  endStoppedStarts(withinMs: number): Promise<void>;
  /** Kills every process of the sandbox at once. */
  killAll(): Promise<void>;
  /**
   * Opens the regular file that a leader or one of its first few children has open as this descriptor, if that process
   * may read it. Its bytes then need not pass through a pipe. Undefined if there is none, if it cannot be opened from
   * outside, or if it might reveal more outside than in the sandbox.
   */
  openFile(leader: ProcessName, descriptor: number): Promise<OpenFile | undefined>;
  /** What keeps Berth from starting processes in the sandbox, judging by the starts of the last `withinMs`. */
  obstacle(withinMs: number): Promise<Obstacle | undefined>;
}

/** A file of a sandbox, opened from outside. Methods fail with Node's errors, or the signal's. */
export interface OpenFile {
  /**
   * Resolves with the bytes at this position, which may be fewer than `maxBytes`; empty at the end. They may be lent: see
   * `base/lent-bytes.ts`.
   */
  read(position: number, maxBytes: number, signal: AbortSignal): Promise<Buffer>;
  /**
   * Kills the process that the file was found in, with its descendants. Returns whether that process still existed. The
   * rest of the leader's tree keeps running.
   */
  killHolder(): Promise<boolean>;
  /** Closes it, after reads in progress. */
  close(): Promise<void>;
}

/** Evidence that a shell was alone. */
export interface Seclusion {
  /** Identifies the program. Changes with every `exec` of the process, even of the same program. */
  readonly program: string;
}

/**
 * Why no process can be started: a signal stopped those that were started, or the sandbox has reached its limit of
 * processes.
 */
export type Obstacle = "stopped" | "no-processes";

/** A process tree that is being ended. */
export interface DoomedTree {
  /**
   * Kills what is left of it, however fast it starts new processes. When it returns, nothing of the tree runs another
   * instruction. If the sandbox is paused, the tree ends when the sandbox is resumed.
   * @throws `ENGINE_UNAVAILABLE` if that failed within about a second.
   */
  kill(): Promise<void>;
}

const MEANINGS: Readonly<Record<IsolationLevel, string>> = {
  NAMESPACE: "namespace (one user's processes on a shared kernel, for your own code)",
  CONTAINER: "container (shared kernel, for semi-trusted code)",
  USER_KERNEL: "user-kernel (a kernel of its own in user space, for untrusted code)",
  VIRTUAL_MACHINE: "virtual-machine (a machine of its own, for untrusted code)",
};

/** Parses the isolation level in a label; anything unknown is CONTAINER. */
export function readIsolation(text: string): IsolationLevel {
  return Object.keys(MEANINGS).includes(text) ? (text as IsolationLevel) : "CONTAINER";
}

/** Describes an isolation level in one line. */
export function describeIsolation(level: IsolationLevel): string {
  return MEANINGS[level];
}

/** The signal that cancels a spawn before the engine is asked to start the process. */
export function startSignal({ dropSignal }: SpawnRequest, signal?: AbortSignal): AbortSignal | undefined {
  if (dropSignal === undefined || signal === undefined) return dropSignal ?? signal;
  return AbortSignal.any([dropSignal, signal]);
}
