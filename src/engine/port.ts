import type { Server } from "node:net";

/**
 * The engine port: what Berth needs of whatever runs its sandboxes.
 *
 * Walk-through: {@link Engine.ensureImage} brings the image, {@link Engine.create}
 * makes a sandbox that is ready for {@link Engine.spawn}, by which everything
 * inside happens: commands, files, sessions. {@link Engine.events} reports what
 * ends by itself. {@link Engine.remove} removes a sandbox for good.
 *
 * A sandbox is named by its `ref`, which the engine chooses (Docker: the
 * container id) and never reuses.
 *
 * Methods fail with `BerthError` only, translated in one file of each engine:
 * `ENGINE_UNAVAILABLE` where the engine does not answer, `SANDBOX_TERMINATED`
 * where the ref's sandbox is gone or not running, `UNSUPPORTED` for what
 * {@link EngineCapabilities} denies. Every method that can take long ends soon
 * after its signal is aborted, with the signal's error.
 */
export interface Engine {
  /** Its name, for instance `docker`. */
  readonly name: string;

  /**
   * Path in its sandboxes of a library that makes a program which preloads it undumpable: other processes of its user
   * then reach neither its memory nor its descriptors, while {@link OutsideControl} still sees them. Undefined where
   * there is none; a single sandbox may lack it.
   */
  readonly undumpable: string | undefined;

  /** Volumes that its sandboxes mount; undefined where they mount directories of the host. */
  readonly volumes?: EngineVolumes | undefined;

  /** What the engine is and can do. Also the health check. */
  info(signal?: AbortSignal): Promise<EngineInfo>;

  /**
   * Pulls the image unless it is there.
   * @throws `IMAGE_UNAVAILABLE` where it cannot be had; the message says what to do.
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

  /** Lets frozen processes go on. Idempotent. */
  resume(ref: string, signal?: AbortSignal): Promise<void>;

  /**
   * Mounts more in a running sandbox that nobody has used
   * yet and whose {@link EngineSandbox.takesMounts} is set.
   * @throws `UNSUPPORTED` where that turns out to be impossible, `NOT_ALLOWED`; the caller then removes the sandbox.
   */
  mount(ref: string, mounts: readonly EngineMount[], signal?: AbortSignal): Promise<void>;

  /** Changes the limits of a running sandbox, except that of its disk. */
  setResources(ref: string, resources: Resources, signal?: AbortSignal): Promise<void>;

  /** Ends and removes a sandbox, whatever its state; returns when it is gone. Idempotent: an unknown ref is gone. */
  remove(ref: string, signal?: AbortSignal): Promise<void>;

  /** Every sandbox of this instance that exists, ended ones included. */
  list(signal?: AbortSignal): Promise<EngineSandbox[]>;

  /**
   * What happens to sandboxes of this instance, from the call on, until the
   * signal is aborted. Throws `ENGINE_UNAVAILABLE` when the connection is lost:
   * {@link list} then shows what was missed.
   */
  events(signal: AbortSignal): AsyncIterable<EngineEvent>;

  /** What a sandbox uses right now. */
  usage(ref: string, signal?: AbortSignal): Promise<EngineUsage>;

  /**
   * Starts a process in a sandbox, in the directory `/`. When it returns, the
   * process runs or has run. Its output goes to the sink, from the returned
   * promise on. Where the signal is aborted halfway, the process may run.
   * @throws `INVALID_ARGUMENT` with the metadata `field`: `user` for an unknown
   * user, `argv` for a program that cannot be run, then with the `exit_code` of a
   * shell (126, 127). `SANDBOX_NOT_RUNNING` while paused, `TOO_MANY_OPERATIONS`
   * where the sandbox's own limits leave no room for a process.
   */
  spawn(ref: string, request: SpawnRequest, sink: OutputSink, signal?: AbortSignal): Promise<SpawnedProcess>;

  /**
   * Opens a TCP port on 127.0.0.1 of a sandbox, whatever its network; this process accepts its connections. It lives
   * until it is closed or the sandbox ends.
   * @throws `UNSUPPORTED`, `SANDBOX_START_FAILED` where something in the sandbox has the port.
   */
  listen(ref: string, port: number, signal?: AbortSignal): Promise<Server>;

  /**
   * Called once, at start: reattaches to processes that an earlier run of the
   * service spawned and left running. Their unread output goes to their sinks;
   * their stdin ended with that run. Whatever else that run spawned is detached.
   * Returns the processes in order, undefined for those that the engine no longer
   * knows: how they ended is lost.
   */
  recover(left: readonly LeftProcess[]): Promise<readonly (SpawnedProcess | undefined)[]>;

  /**
   * Control of a running sandbox's processes from outside it; undefined where the
   * engine runs on another machine or the service lacks the rights.
   */
  outside(ref: string, signal?: AbortSignal): Promise<OutsideControl | undefined>;

  /** Gauges for the metrics. */
  figures(): EngineFigures;

  /** Closes connections. Sandboxes that can outlive the service stay. */
  close(): Promise<void>;
}

/** What a sandbox may reach. */
export type NetworkMode = "NONE" | "EGRESS";

/** How far code in a sandbox is kept from the host. */
export type IsolationLevel = "NAMESPACE" | "CONTAINER" | "USER_KERNEL" | "VIRTUAL_MACHINE";

/** Limits of a sandbox. */
export interface Resources {
  readonly memoryBytes: number;
  readonly cpuMillis: number;
  readonly pidsLimit: number;
  /** Undefined: no limit. */
  readonly diskBytes: number | undefined;
}

/** What an engine is and can do. */
export interface EngineInfo {
  readonly version: string;
  /** Level of a sandbox with the engine's default runtime. */
  readonly isolation: IsolationLevel;
  /** Whether a sandbox may have another image than the default one. */
  readonly images: boolean;
  readonly capabilities: EngineCapabilities;
  /** Whether sandboxes with the network NONE reach the engine's own network, as its operator knows. Default false. */
  readonly openNetwork?: boolean;
  /** What the operator has to know of the engine, in sentences. It answers nevertheless. */
  readonly warning?: string;
  /** CPUs of the engine's machine. */
  readonly cpus: number;
  /** Bytes of memory of the engine's machine. */
  readonly memoryBytes: number;
}

/** What an engine can do. What is `false` ends in `UNSUPPORTED` when asked for; nobody asks for the filter. */
export interface EngineCapabilities {
  readonly pause: boolean;
  readonly memoryLimit: boolean;
  readonly cpuLimit: boolean;
  readonly pidsLimit: boolean;
  readonly diskLimit: boolean;
  /** Whether a sandbox may have {@link NetworkMode} EGRESS. */
  readonly egress: boolean;
  /** Whether {@link Engine.listen} works, by which sandboxes reach the proxy for their egress domains. */
  readonly egressDomains: boolean;
  /** Whether processes in sandboxes can make only the system calls that programs need. */
  readonly systemCallFilter: boolean;
}

/** How far a pull has got. */
export interface PullProgress {
  readonly currentBytes: number;
  /** Known so far; grows while layers are discovered. */
  readonly totalBytes: number;
  readonly layersDone: number;
  readonly layersTotal: number;
}

export interface EnsureImageOptions {
  /** Called now and then during a pull; never where the image is there. */
  readonly onProgress?: (progress: PullProgress) => void;
  readonly signal?: AbortSignal;
}

/** What appears in a sandbox. An engine takes one kind: volumes where it has {@link Engine.volumes}, else directories of the host. */
export type EngineMount = HostMount | VolumeMount;

/** How something appears in a sandbox. */
export interface MountPlace {
  readonly target: string;
  readonly readOnly: boolean;
  /** Whether the sandbox's user becomes the owner of the directory itself (not of what it holds). */
  readonly giveToUser: boolean;
}

/** A directory of the host. The engine resolves it and, unless it is `own`, checks it against the allowed roots. */
export interface HostMount extends MountPlace {
  readonly kind: "host";
  readonly hostPath: string;
  /** A directory of Berth's own that no sandbox can change: it is mounted if it is a real path. Default false. */
  readonly own?: boolean;
}

/** A directory at the top of a volume, which is made where it is missing. Every user of the sandbox may write in it. */
export interface VolumeMount extends MountPlace {
  readonly kind: "volume";
  /** The volume's name. */
  readonly volume: string;
  readonly directory: string;
}

/**
 * Storage that sandboxes mount and that outlives them. A volume's names and labels are all that the engine knows of it.
 *
 * Methods fail as the engine's own do; also with `NO_SPACE` where the engine has no room for a volume.
 */
export interface EngineVolumes {
  /** Whether any number of sandboxes may have a volume at once, wherever they run. */
  readonly shareable: boolean;
  /** Whether a volume can be made with what another one holds. */
  readonly clones: boolean;
  /** Bytes that each is made for. */
  readonly sizeBytes: number;
  /** Where a person finds a volume, there or not. */
  locate(name: string): string;
  /** Removes what an earlier run of the service left of {@link open}. */
  recover(signal?: AbortSignal): Promise<void>;
  /**
   * Makes one; returns false where there is something of that name.
   * @param options.cloneOf the name of another one that it is to hold a clone of. It is made when it is opened, and may
   *   be empty all the same: whoever made it looks.
   */
  make(volume: VolumeLabels, options?: { readonly cloneOf?: string }): Promise<boolean>;
  /** Looks for one of this instance. */
  find(name: string, signal?: AbortSignal): Promise<EngineVolume | undefined>;
  /** All of this instance. */
  list(signal?: AbortSignal): Promise<EngineVolume[]>;
  /** Removes one and all it holds; returns when it is gone. Idempotent. */
  remove(name: string, signal?: AbortSignal): Promise<void>;
  /**
   * Starts a place for the service's own work on a volume: no sandbox's code runs there, beside sandboxes that may have
   * the volume just then.
   * @throws `WORKSPACE_IN_USE` where the volume is for one sandbox alone, and one has it.
   */
  open(name: string, signal?: AbortSignal): Promise<OpenVolume>;
  /**
   * As {@link open}, with another volume beside it that can be read only.
   * @param options.timeoutMs how long it may take. Default: the engine's time for a start.
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
  /** Empty: what all sandboxes of an owner share. */
  readonly workspaceId: string;
}

/** A volume as its engine sees it. */
export interface EngineVolume extends VolumeLabels {
  /** Why no sandbox can use it, and what to do; undefined: nothing is known against it. */
  readonly problem: string | undefined;
}

/** A place where the service works on a volume, as root and without a network. */
export interface OpenVolume {
  /** Where the volume is. */
  readonly path: string;
  /** As {@link Engine.spawn}. */
  spawn(request: SpawnRequest, sink: OutputSink, signal?: AbortSignal): Promise<SpawnedProcess>;
  /** Ends it, with all that runs in it; returns when it is gone. Idempotent, never rejects. */
  close(): Promise<void>;
}

/** All an engine needs to make a sandbox. */
export interface EngineSandboxSpec {
  readonly sandboxId: string;
  readonly generation: number;
  readonly owner: string;
  readonly image: string;
  readonly env: Readonly<Record<string, string>>;
  /** Absolute. Made if missing, and then given to the user. */
  readonly workingDir: string;
  /** Empty: the image's. */
  readonly user: string;
  readonly resources: Resources;
  readonly network: NetworkMode;
  readonly mounts: readonly EngineMount[];
  /** Whether it is to take more mounts later, where the engine can do that. Default false. */
  readonly takesMounts?: boolean;
  /** An OCI runtime's name; empty: the engine's default. */
  readonly runtime: string;
  /**
   * What its default user's first process will be, with stdin and without an environment of its own. An engine that can
   * starts it together with the sandbox. Default: that is not known.
   */
  readonly firstShell?: FirstShell;
}

/** A process that reads its stdin from the start on, where whoever asks for it writes more. */
export interface FirstShell {
  readonly argv: readonly string[];
  /** What every such process reads first. */
  readonly input: Buffer;
}

/** A sandbox as its engine sees it. */
export interface EngineSandbox {
  readonly ref: string;
  readonly sandboxId: string;
  readonly generation: number;
  readonly owner: string;
  readonly state: "running" | "paused" | "ended";
  readonly isolation: IsolationLevel;
  /** User that commands run as: the spec's, else the image's. */
  readonly user: string;
  /** How the main process ended, in state `ended`. */
  readonly end?: EngineSandboxEnd;
  /** Whether {@link Engine.mount} works on it. Default false; set only by {@link Engine.create}. */
  readonly takesMounts?: boolean;
}

export interface EngineSandboxEnd {
  readonly exitCode: number;
  readonly outOfMemory: boolean;
  /** Why, in the engine's words, where that is more than the two above: an eviction, a lost node. */
  readonly cause?: string;
  /** The node it ran on, where that is lost: its processes may run on, unseen. */
  readonly lostNode?: string;
}

/** Something that happened to a sandbox, whether Berth caused it or not. */
export type EngineEvent =
  | {
      readonly type: "ended";
      readonly ref: string;
      readonly sandboxId: string;
      readonly end: EngineSandboxEnd;
    }
  | { readonly type: "removed"; readonly ref: string; readonly sandboxId: string };

/** What a sandbox uses. */
export interface EngineUsage {
  readonly memoryBytes: number;
  /** CPU time since its start, in nanoseconds. */
  readonly cpuNanos: number;
  readonly pids: number;
}

/** Gauges of an engine. */
export interface EngineFigures {
  /** Ended processes whose output something they left behind still holds. */
  readonly orphanedPipes: number;
  /** Sandboxes whose output takes a slower path because their pipes failed. 0 where the engine has one path only. */
  readonly sandboxesWithoutPipes: number;
  /** Sandboxes that wait to start, where the engine is asked for one and starts it later. */
  readonly waiting: readonly WaitingSandbox[];
}

/** What a sandbox waits for before it runs: `STARTING` where nothing is known to keep it from that. */
export type WaitReason = (typeof WAIT_REASONS)[number];

export const WAIT_REASONS = ["STARTING", "UNSCHEDULABLE", "IMAGE", "RUNTIME", "VOLUME"] as const;

/** A sandbox that the engine has and that does not run yet. */
export interface WaitingSandbox {
  /** Empty for what looks at an image ahead of a sandbox, which has no owner either. */
  readonly sandboxId: string;
  readonly owner: string;
  readonly image: string;
  readonly reason: WaitReason;
  /** The engine's words, 500 characters at most. */
  readonly message: string;
  /** Unix time. */
  readonly sinceMs: number;
}

/** Size of a terminal in characters. */
export interface TerminalSize {
  readonly columns: number;
  readonly rows: number;
}

/** A process to start. The argument list goes to the kernel as it is; the engine looks the first element up in PATH. */
export interface SpawnRequest {
  readonly argv: readonly string[];
  /** Over the sandbox's environment. */
  readonly env?: Readonly<Record<string, string>>;
  /** Empty: the sandbox's. */
  readonly user?: string;
  /** Whether {@link SpawnedProcess.writeStdin} will be used; otherwise stdin is empty. */
  readonly stdin: boolean;
  /** Written to stdin at once, before it is known that the process runs. Needs `stdin`. */
  readonly input?: Uint8Array;
  /** Gives it a terminal; stderr then joins stdout. */
  readonly terminal?: TerminalSize;
  /**
   * Aborted before the engine is asked to start the process, it fails the spawn
   * with its error, and nothing runs. From then on it has no effect, so the
   * caller learns of every process that runs.
   */
  readonly dropSignal?: AbortSignal | undefined;
}

/** Which of a process's two streams. */
export type OutputStream = "stdout" | "stderr";

/** Receives what a process writes. */
export interface OutputSink {
  /** Bytes in the order of their stream. The sink owns the buffer. */
  data(stream: OutputStream, chunk: Buffer): void;
  /**
   * Nothing more will come: every holder of the process's pipes has gone, the
   * engine dropped them (Docker's own streams: 2 s after the process itself ended), or the
   * connection broke or was closed (`error`). Called once.
   */
  end(error?: Error): void;
}

/** A process that an earlier run of the service spawned, for {@link Engine.recover}. */
export interface LeftProcess {
  /** Of its sandbox. */
  readonly ref: string;
  /** Its {@link SpawnedProcess.handle}. */
  readonly handle: string;
  readonly sink: OutputSink;
}

/** A process started by {@link Engine.spawn}. Closing it does not end the process. */
export interface SpawnedProcess {
  /** Names it to {@link Engine.recover} in a later run of the service; undefined where it cannot outlive this one. */
  readonly handle: string | undefined;
  /** Stops the flow to the sink soon; the process then blocks as on a full pipe. */
  pause(): void;
  /** Resumes the flow. */
  resume(): void;
  /**
   * Drains output slowly, until {@link pause} or {@link resume}: for output that nobody wants. The writer is slowed to
   * some hundred KiB a second.
   */
  trickle(): void;
  /** Writes to stdin; resolves when more may be written. Rejects with `PROCESS_STATE` when nobody reads it any more. */
  writeStdin(data: Uint8Array): Promise<void>;
  /** Ends stdin. Idempotent. */
  closeStdin(): void;
  /** Changes the terminal's size. */
  resize(size: TerminalSize): Promise<void>;
  /**
   * Resolves with the exit code once the process itself has ended, even while
   * others hold its pipes; 128 + n where signal n ended it. Rejects with
   * `ENGINE_UNAVAILABLE` or `SANDBOX_TERMINATED` where the code is lost.
   * Nothing is watched before the first call.
   */
  wait(signal?: AbortSignal): Promise<number>;
  /**
   * Detaches from the process: no more output, and its stdin ends. Idempotent. Does not end the process, nor what it
   * left behind: writers are slowed down as by {@link trickle}, and block for ever once too many such processes are
   * left.
   */
  close(): void;
}

/** Identifies a process in its sandbox. */
export interface ProcessName {
  readonly pid: number;
  /** When the kernel started it, in the ticks of /proc; empty where unknown. */
  readonly startTime: string;
}

/**
 * Acts on the processes of a sandbox from outside it. It asks nothing in the
 * sandbox, so nothing in it can delay or deceive: neither a full process table
 * nor stopped, replaced or busy shells. It never touches a process of another
 * sandbox or of the host.
 *
 * A tree belongs to a session leader that Berth started: its session, whatever
 * descends from the tree, and whoever holds the pipes that the leader has as
 * descriptors 3 and 4.
 */
export interface OutsideControl {
  /** The processes of a leader's tree, the leader included; empty where nothing of it is left. */
  tree(leader: ProcessName): Promise<readonly ProcessName[]>;
  /** The leader's own state; undefined where it has ended. */
  stateOf(leader: ProcessName): Promise<"running" | "stopped" | undefined>;
  /** Whether a signal has stopped any process of a leader's tree. */
  isHeldUp(leader: ProcessName): Promise<boolean>;
  /** Continues what a signal has stopped in a leader's tree. */
  continueTree(leader: ProcessName): Promise<void>;
  /** Sends a signal to the leader's process group; 0 sends none. Returns whether it has a process. */
  signalGroup(leader: ProcessName, signal: number): Promise<boolean>;
  /** Sends SIGTERM to a tree, and continues its stopped processes so that they get it. Returns the tree for {@link DoomedTree.kill}. */
  terminateTree(leader: ProcessName): Promise<DoomedTree>;
  /** Kills a tree at once, as {@link DoomedTree.kill} does; its stopped processes do not run again. */
  killTree(leader: ProcessName): Promise<void>;
  /**
   * Whether a shell that Berth started is alone: it runs nothing, nothing that
   * came since `before` is in its session or holds its pipes, and nobody has
   * stopped or traces it. Undefined where it is not, or where that cannot be seen.
   * @param before the result of the last look; undefined: look at every process.
   */
  seclusion(shell: ProcessName, before?: Seclusion): Promise<Seclusion | undefined>;
  /** How often the kernel's OOM killer struck in the sandbox; undefined where the kernel does not count that. */
  oomKills(): number | undefined;
  /** Whether the sandbox's main process is ending or has ended, which ends all others. */
  isEnding(): Promise<boolean>;
  /**
   * Continues starts of processes that a signal has stopped halfway, among those under way and those of the last
   * `withinMs`. On Docker a start that is stopped halfway blocks all later starts and the container's removal.
   */
  continueStarts(withinMs: number): Promise<void>;
  /** Kills what {@link continueStarts} would continue and has no child yet: nobody waits for it any more. */
  endStoppedStarts(withinMs: number): Promise<void>;
  /** Kills every process of the sandbox at once. */
  killAll(): Promise<void>;
  /**
   * Opens the regular file that a leader or a child of it has open as this descriptor, where that process may read it: its
   * bytes then pass no pipe. Undefined where there is none, it cannot be opened from outside, or it might say more there
   * than in the sandbox.
   */
  openFile(leader: ProcessName, descriptor: number): Promise<OpenFile | undefined>;
  /** What keeps Berth from starting processes in the sandbox, judged by the starts of the last `withinMs`. */
  obstacle(withinMs: number): Promise<Obstacle | undefined>;
}

/** A file of a sandbox that was opened from outside. Errors are those of Node, and the signal's. */
export interface OpenFile {
  /** Resolves with what is there from this place on, which may be less than asked for; empty at the end. */
  read(position: number, maxBytes: number, signal: AbortSignal): Promise<Buffer>;
  /**
   * Kills the process that it was found in, with that process's descendants. Returns whether the process was still there.
   * What else is of the leader's tree goes on.
   */
  killHolder(): boolean;
  /** Waits for reads that go on. */
  close(): Promise<void>;
}

/** Evidence that a shell was alone. */
export interface Seclusion {
  /** Changes with every `exec` of the process, also where the program is the same. */
  readonly program: string;
}

/** Why nothing can be started: a signal stopped what was started, or the sandbox has reached its limit of processes. */
export type Obstacle = "stopped" | "no-processes";

/** A process tree that is being ended. */
export interface DoomedTree {
  /**
   * Kills what is left of it, however fast it starts more. When it returns,
   * nothing of it runs another instruction, unless the sandbox is paused: then
   * it ends when the sandbox is resumed.
   * @throws `ENGINE_UNAVAILABLE` where that failed within about a second.
   */
  kill(): Promise<void>;
}

const MEANINGS: Readonly<Record<IsolationLevel, string>> = {
  NAMESPACE: "namespace (one user's processes on a shared kernel, for your own code)",
  CONTAINER: "container (shared kernel, for semi-trusted code)",
  USER_KERNEL: "user-kernel (a kernel of its own in user space, for untrusted code)",
  VIRTUAL_MACHINE: "virtual-machine (a machine of its own, for untrusted code)",
};

/** Reads what a label says of a sandbox's isolation; what it does not say is the most cautious. */
export function readIsolation(text: string): IsolationLevel {
  return Object.keys(MEANINGS).includes(text) ? (text as IsolationLevel) : "CONTAINER";
}

/** An isolation level and what it is good for, in one line. */
export function describeIsolation(level: IsolationLevel): string {
  return MEANINGS[level];
}

/** The signal that ends a spawn until the engine is asked to start the process. */
export function startSignal({ dropSignal }: SpawnRequest, signal?: AbortSignal): AbortSignal | undefined {
  if (dropSignal === undefined || signal === undefined) return dropSignal ?? signal;
  return AbortSignal.any([dropSignal, signal]);
}
