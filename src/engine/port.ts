import type { ErrorReason } from "../base/errors.ts";

/**
 * The engine port: what Berth needs of whatever runs its sandboxes.
 *
 * Walk-through: {@link Engine.ensureImage} brings the image, {@link Engine.create}
 * makes a sandbox that is ready for {@link Engine.spawn}, by which everything
 * inside happens: commands, files, sessions. {@link Engine.events} tells what
 * ends by itself. {@link Engine.remove} takes a sandbox away for good.
 *
 * A sandbox is named by its `ref`, which the engine chose (Docker: the
 * container id) and which is never used for another one.
 *
 * Every method fails with `BerthError` only, translated in one place of the
 * engine: `ENGINE_UNAVAILABLE` where the engine does not answer,
 * `SANDBOX_TERMINATED` where the ref's sandbox is gone or not running,
 * `UNSUPPORTED` for what {@link EngineCapabilities} denies. Every method that
 * can take long ends soon after its signal is aborted, with the signal's error.
 */
export interface Engine {
  /** Its name, for instance `docker`. */
  readonly name: string;

  /** Asks the engine who it is. Also the health check. */
  info(signal?: AbortSignal): Promise<EngineInfo>;

  /**
   * Makes sure that the image is there, pulling it where it is not.
   * @throws `IMAGE_UNAVAILABLE` where there is none, with what to do.
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
   * Makes directories of the host appear in a running sandbox that nobody has
   * used yet and whose {@link EngineSandbox.takesMounts} is set.
   * @throws `UNSUPPORTED` where that cannot be done after all, `NOT_ALLOWED`; the sandbox is then to be removed.
   */
  mount(ref: string, mounts: readonly EngineMount[], signal?: AbortSignal): Promise<void>;

  /** Changes the bounds of a running sandbox; the disk's stays. */
  setResources(ref: string, resources: Resources, signal?: AbortSignal): Promise<void>;

  /** Ends and removes a sandbox, whatever its state; returns when it is gone. Idempotent: an unknown ref is gone. */
  remove(ref: string, signal?: AbortSignal): Promise<void>;

  /** Every sandbox of this instance that exists, ended ones included. */
  list(signal?: AbortSignal): Promise<EngineSandbox[]>;

  /**
   * What happens to sandboxes of this instance, from the call on, until the
   * signal is aborted. Throws `ENGINE_UNAVAILABLE` when the connection is lost:
   * what happened since then is found by {@link list}.
   */
  events(signal: AbortSignal): AsyncIterable<EngineEvent>;

  /** What a sandbox uses right now. */
  usage(ref: string, signal?: AbortSignal): Promise<EngineUsage>;

  /**
   * Starts a process in a sandbox, in the directory `/`. When it returns, the
   * process runs or has run. Its output goes to the sink, from the returned
   * promise on. Where the signal is aborted half way, the process may run.
   * @throws `INVALID_ARGUMENT` with the metadata `field`: `user` for an unknown
   * one, `argv` for a program that cannot be run, then with `exit_code` as a
   * shell would have ended (126, 127). `SANDBOX_NOT_RUNNING` while paused,
   * `TOO_MANY_OPERATIONS` where the sandbox's own bounds leave no room for a process.
   */
  spawn(ref: string, request: SpawnRequest, sink: OutputSink, signal?: AbortSignal): Promise<SpawnedProcess>;

  /**
   * Called once, at start: takes over what an earlier run of the service spawned
   * and left running. Of the processes named, what nobody has read of their
   * output goes to their sinks; their stdin ended with that run. Whatever else
   * that run spawned is let go of. Returns, in their order, those that the engine
   * still knows: of the others how they ended cannot be learnt.
   */
  recover(left: readonly LeftProcess[]): Promise<readonly (SpawnedProcess | undefined)[]>;

  /**
   * The processes of a running sandbox as seen from outside it; undefined where
   * the engine's machine is not the service's, or the service may not act there.
   */
  outside(ref: string, signal?: AbortSignal): Promise<OutsideControl | undefined>;

  /** How it fares right now. */
  figures(): EngineFigures;

  /** Lets go of connections. Sandboxes stay. */
  close(): Promise<void>;
}

/** What a sandbox may reach. */
export type NetworkMode = "NONE" | "EGRESS";

/** How far code in a sandbox is kept from the host. */
export type IsolationLevel = "NAMESPACE" | "CONTAINER" | "USER_KERNEL" | "VIRTUAL_MACHINE";

/** Bounds on a sandbox. */
export interface Resources {
  readonly memoryBytes: number;
  readonly cpuMillis: number;
  readonly pidsLimit: number;
  /** Undefined: no bound. */
  readonly diskBytes: number | undefined;
}

/** Who an engine is and what it can do. */
export interface EngineInfo {
  readonly version: string;
  /** Level of a sandbox with the engine's default runtime. */
  readonly isolation: IsolationLevel;
  readonly capabilities: EngineCapabilities;
  /** CPUs of the engine's machine. */
  readonly cpus: number;
  /** Bytes of memory of the engine's machine. */
  readonly memoryBytes: number;
}

/** What an engine can do. What is `false` ends in `UNSUPPORTED` when asked for. */
export interface EngineCapabilities {
  readonly pause: boolean;
  readonly memoryLimit: boolean;
  readonly cpuLimit: boolean;
  readonly pidsLimit: boolean;
  readonly diskLimit: boolean;
  readonly egress: boolean;
}

/** How far a pull is. */
export interface PullProgress {
  readonly currentBytes: number;
  /** Known so far; grows while layers are discovered. */
  readonly totalBytes: number;
  readonly layersDone: number;
  readonly layersTotal: number;
}

export interface EnsureImageOptions {
  /** Called now and then during a pull, not at all where the image is there. */
  readonly onProgress?: (progress: PullProgress) => void;
  readonly signal?: AbortSignal;
}

/** A directory of the host to appear in a sandbox. The engine resolves it and, unless it is `own`, checks it against the allowed roots. */
export interface EngineMount {
  readonly hostPath: string;
  readonly target: string;
  readonly readOnly: boolean;
  /** Whether the sandbox's user becomes the owner of the directory itself (not of what it holds). */
  readonly giveToUser: boolean;
  /** A directory of Berth's own, outside the reach of every sandbox: it is mounted if it is a real path. Default false. */
  readonly own?: boolean;
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
}

/** A sandbox as its engine knows it. */
export interface EngineSandbox {
  readonly ref: string;
  readonly sandboxId: string;
  readonly generation: number;
  readonly owner: string;
  readonly state: "running" | "paused" | "ended";
  readonly isolation: IsolationLevel;
  /** User that commands run as, where the spec named none: the image's. */
  readonly user: string;
  /** How the main process ended, in state `ended`. */
  readonly end?: EngineSandboxEnd;
  /** Whether {@link Engine.mount} can be used on it. Default false; known of those that were just made. */
  readonly takesMounts?: boolean;
}

export interface EngineSandboxEnd {
  readonly exitCode: number;
  readonly outOfMemory: boolean;
}

/** Something that happened to a sandbox without Berth's doing, or that Berth's doing came to. */
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

/** How an engine fares. */
export interface EngineFigures {
  /** Processes that are over, and whose output something that they left behind still holds. */
  readonly orphanedPipes: number;
  /** Sandboxes whose output takes a slower way, because pipes to them failed. 0 where the engine has one way only. */
  readonly sandboxesWithoutPipes: number;
}

/** Size of a terminal in characters. */
export interface TerminalSize {
  readonly columns: number;
  readonly rows: number;
}

/** A process to start. The argument list goes to the kernel as it is; the first element is looked up by the engine. */
export interface SpawnRequest {
  readonly argv: readonly string[];
  /** Over the sandbox's environment. */
  readonly env?: Readonly<Record<string, string>>;
  /** Empty: the sandbox's. */
  readonly user?: string;
  /** Whether {@link SpawnedProcess.writeStdin} will be used; otherwise stdin is empty. */
  readonly stdin: boolean;
  /** Written to stdin at once, without waiting until it is known that the process runs. Needs `stdin`. */
  readonly input?: Uint8Array;
  /** Gives it a terminal; stderr then joins stdout. */
  readonly terminal?: TerminalSize;
  /**
   * Aborted while the process is not being started yet, it fails the spawn with
   * its error, and nothing runs. From then on it changes nothing: who has such a
   * process gets to know it.
   */
  readonly dropSignal?: AbortSignal | undefined;
}

/** Which of a process's two streams. */
export type OutputStream = "stdout" | "stderr";

/** Takes what a process writes. */
export interface OutputSink {
  /** Bytes in the order of their stream. The buffer is the sink's own: it is not written to again. */
  data(stream: OutputStream, chunk: Buffer): void;
  /**
   * Nothing more will come: every holder of the process's pipes has gone, the
   * engine let go of them (Docker's own streams: 2 s after the process itself ended), or the
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

/** A process started by {@link Engine.spawn}. Letting go of it does not end it. */
export interface SpawnedProcess {
  /** Names it to {@link Engine.recover} in a later run of the service; undefined where it cannot outlive this one. */
  readonly handle: string | undefined;
  /** Stops the flow to the sink soon; the process then waits as for a full pipe. */
  pause(): void;
  /** Lets the flow go on. */
  resume(): void;
  /**
   * Lets output flow slowly, until {@link pause} or {@link resume}: for output that nobody wants. Whoever writes it is
   * slowed down to some hundred KiB a second.
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
   * `ENGINE_UNAVAILABLE` or `SANDBOX_TERMINATED` where that cannot be learnt.
   * Nothing is watched before the first call.
   */
  wait(signal?: AbortSignal): Promise<number>;
  /**
   * Lets go of the process: no more output, and its stdin ends. Idempotent. Does not end the process, nor what it left
   * behind: whoever writes on is slowed down as by {@link trickle}, and waits for ever where too many such processes
   * are left.
   */
  close(): void;
}

/** What a process is known by in its sandbox. */
export interface ProcessName {
  readonly pid: number;
  /** When the kernel started it, as /proc counts that; empty where nobody knows. */
  readonly startTime: string;
}

/**
 * Acts on the processes of a sandbox from outside it. Nothing in the sandbox is
 * asked, so nothing in it can delay or deceive: neither a full process table nor
 * stopped, replaced or busy shells. No process of anybody else is ever touched.
 *
 * A tree is that of a session leader which Berth started: its session, whatever
 * descends from one of the tree, and whoever holds the pipes that the leader has
 * as descriptors 3 and 4.
 */
export interface OutsideControl {
  /**
   * Path in the sandbox of a library that makes a program which preloads it undumpable: other processes of its user
   * then reach neither its memory nor its descriptors, while this control still sees them. Undefined: there is none.
   */
  readonly undumpable: string | undefined;
  /** The processes of a leader's tree, the leader included; empty where nothing of it is left. */
  tree(leader: ProcessName): Promise<readonly ProcessName[]>;
  /** Whether the leader itself runs; undefined where it has ended. */
  stateOf(leader: ProcessName): Promise<"running" | "stopped" | undefined>;
  /** Whether a signal has stopped any process of a leader's tree. */
  isHeldUp(leader: ProcessName): Promise<boolean>;
  /** Continues what a signal has stopped of a leader's tree. */
  continueTree(leader: ProcessName): Promise<void>;
  /** Sends a signal to the leader's process group; 0 sends none. Returns whether it has a process. */
  signalGroup(leader: ProcessName, signal: number): Promise<boolean>;
  /** Sends SIGTERM to a tree, and has what is stopped of it go on to take it. Returns the tree for its {@link DoomedTree.kill}. */
  terminateTree(leader: ProcessName): Promise<DoomedTree>;
  /** Kills a tree at once, as {@link DoomedTree.kill} does: what is stopped of it does nothing more. */
  killTree(leader: ProcessName): Promise<void>;
  /**
   * Whether a shell that Berth started is by itself: it runs nothing, nothing
   * that came since `before` is of its session or holds its pipes, and nobody
   * has stopped or traces it. Undefined where it is not, or that cannot be seen.
   * @param before what the last look found; undefined: every process is looked at.
   */
  seclusion(shell: ProcessName, before?: Seclusion): Promise<Seclusion | undefined>;
  /** How often the kernel killed in the sandbox for want of memory; undefined where it does not count that. */
  oomKills(): number | undefined;
  /** Whether the sandbox's main process is ending or has ended, which takes all others along. */
  isEnding(): Promise<boolean>;
  /**
   * Continues what a signal has stopped before it began, of what is being started in the sandbox or was in the last
   * while. On Docker whatever is stopped half-way in keeps all later starts, and the container's removal, waiting.
   */
  continueStarts(withinMs: number): Promise<void>;
  /** Ends what {@link continueStarts} would continue and what runs nothing yet: nobody waits for it any more. */
  endStoppedStarts(withinMs: number): Promise<void>;
  /** Ends every process of the sandbox at once. */
  killAll(): Promise<void>;
  /** What keeps Berth from starting processes in the sandbox, as far as can be seen of what it started in the last while. */
  obstacle(withinMs: number): Promise<Obstacle | undefined>;
}

/** That a shell was by itself. */
export interface Seclusion {
  /** Differs after each program that the process has become, also where that is the same one again. */
  readonly program: string;
}

/** Why nothing can be started: a signal stopped what was started, or there are as many processes as there may be. */
export type Obstacle = "stopped" | "no-processes";

/** A process tree that is to end. */
export interface DoomedTree {
  /**
   * Kills what is left of it, however fast it starts more. When it returns,
   * nothing of it runs another instruction, unless the sandbox is paused: then
   * it ends as that goes on.
   * @throws `ENGINE_UNAVAILABLE` where that could not be done in about a second.
   */
  kill(): Promise<void>;
}

/** The reasons an engine's methods may fail with, for contract suites. */
export const ENGINE_ERROR_REASONS: readonly ErrorReason[] = [
  "ENGINE_UNAVAILABLE",
  "IMAGE_UNAVAILABLE",
  "INVALID_ARGUMENT",
  "NOT_ALLOWED",
  "NO_SPACE",
  "PROCESS_STATE",
  "SANDBOX_NOT_RUNNING",
  "SANDBOX_START_FAILED",
  "SANDBOX_TERMINATED",
  "TOO_MANY_OPERATIONS",
  "UNSUPPORTED",
  "CANCELED",
  "DEADLINE_EXCEEDED",
];

const MEANINGS: Readonly<Record<IsolationLevel, string>> = {
  NAMESPACE: "namespace (one user's processes on a shared kernel, for your own code)",
  CONTAINER: "container (shared kernel, for semi-trusted code)",
  USER_KERNEL: "user-kernel (a kernel of its own in user space, for untrusted code)",
  VIRTUAL_MACHINE: "virtual-machine (a machine of its own, for untrusted code)",
};

/** Says a level and what it is good for, in one line. */
export function describeIsolation(level: IsolationLevel): string {
  return MEANINGS[level];
}

/** The signal that ends a spawn while the engine has not been asked to start the process. */
export function startSignal({ dropSignal }: SpawnRequest, signal?: AbortSignal): AbortSignal | undefined {
  if (dropSignal === undefined || signal === undefined) return dropSignal ?? signal;
  return AbortSignal.any([dropSignal, signal]);
}
