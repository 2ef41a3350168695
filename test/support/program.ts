import { type ChildProcessWithoutNullStreams, spawn } from "node:child_process";
import { once } from "node:events";
import path from "node:path";
import { buffer } from "node:stream/consumers";
import { TEST_IMAGE } from "./images.ts";
import { launcherSettings } from "./launcher.ts";
import { runProgramHere } from "./program-here.ts";
import { newDataDir, newInstance, packageDir } from "./settings.ts";

const isBuilt = process.env.BERTH_TEST_RUN !== undefined;

/** The program as built by global-setup.ts, which starts twice as fast as the sources; or the sources. */
export const MAIN = isBuilt
  ? path.join(packageDir(), "dist/main.js")
  : path.join(import.meta.dirname, "../../src/main.ts");

const LAUNCHED = launcherSettings(path.join(import.meta.dirname, "../.."));

/** The same for the program with failing-main.ts. */
export const FAILING_MAIN = isBuilt
  ? path.join(packageDir(), "dist/failing-main.js")
  : path.join(import.meta.dirname, "failing-main.ts");

/** How a run of the program ended. */
export interface ProgramEnd {
  readonly exitCode: number | null;
  readonly signal: NodeJS.Signals | null;
  readonly stdout: Buffer;
  readonly stderr: string;
}

/** Options for a run of the program. */
export interface ProgramOptions {
  readonly env?: Readonly<Record<string, string>>;
  /** Its whole stdin. Undefined: empty. "open": stays open. */
  readonly stdin?: Buffer | string | "open";
  /** What to run instead of the program's sources. */
  readonly entry?: readonly string[];
  /** A command prefix that runs the program, such as `nsenter` with its arguments. */
  readonly within?: readonly string[];
}

/** Starts the program like a shell does. */
export function startProgram(
  args: readonly string[],
  { env, stdin, entry = [MAIN], within = [] }: ProgramOptions = {},
): ChildProcessWithoutNullStreams {
  const { BERTH_TEST_RUN: _run, ...inherited } = process.env;
  const [file = "", ...before] = [...within, process.execPath];
  const child = spawn(file, [...before, ...entry, ...args], {
    // No test may find or leave anything where a service on this machine keeps its state.
    env: {
      ...LAUNCHED,
      ...inherited,
      NODE_COMPILE_CACHE: path.join(packageDir(), "cache"),
      ...(args[0] === "serve" && { BERTH_DATA_DIR: newDataDir() }),
      ...env,
    },
    stdio: "pipe",
  });
  // A program that does not read all of its stdin is not a failure of the test.
  child.stdin.on("error", () => {});
  if (stdin !== "open") child.stdin.end(stdin);
  return child;
}

/** Waits for the end of a program and collects its output. */
export async function endOf(child: ChildProcessWithoutNullStreams): Promise<ProgramEnd> {
  const [[exitCode, signal], stdout, stderr] = await Promise.all([
    once(child, "close") as Promise<[number | null, NodeJS.Signals | null]>,
    buffer(child.stdout),
    buffer(child.stderr),
  ]);
  return { exitCode, signal, stdout, stderr: stderr.toString() };
}

/** Runs the program to its end. */
export function runProgram(args: readonly string[], options?: ProgramOptions): Promise<ProgramEnd> {
  return endOf(startProgram(args, options));
}

/** How a {@link ServeProcess} is run. */
export interface ServeSettings {
  /** What to run instead of the program's sources. */
  readonly entry?: readonly string[];
  readonly within?: readonly string[];
  /** The directory of an earlier run. Default: a new one. */
  readonly dataDir?: string;
  readonly instance?: string;
}

/** `berth serve` in its own process, with the test image as default, on any free port. */
export class ServeProcess {
  readonly address: string;
  readonly startLine: string;
  readonly instance: string;
  readonly dataDir: string;
  readonly #settings: ServeSettings;
  readonly #child: ChildProcessWithoutNullStreams;
  readonly #end: Promise<ProgramEnd>;

  private constructor(
    child: ChildProcessWithoutNullStreams,
    end: Promise<ProgramEnd>,
    startLine: string,
    settings: Required<Omit<ServeSettings, "entry">>,
  ) {
    this.#child = child;
    this.#end = end;
    this.startLine = startLine;
    this.instance = settings.instance;
    this.dataDir = settings.dataDir;
    this.#settings = settings;
    this.address = /^berth listens on (.+); engine /.exec(startLine)?.[1] ?? "";
  }

  static async start(
    args: readonly string[] = [],
    env: Readonly<Record<string, string>> = {},
    more: ServeSettings = {},
  ): Promise<ServeProcess> {
    const instance = more.instance ?? newInstance();
    const dataDir = more.dataDir ?? newDataDir();
    const child = startProgram(["serve", ...args], {
      ...(more.entry && { entry: more.entry }),
      ...(more.within && { within: more.within }),
      env: {
        BERTH_LISTEN: "127.0.0.1:0",
        BERTH_DEFAULT_IMAGE: TEST_IMAGE,
        BERTH_INSTANCE: instance,
        BERTH_DATA_DIR: dataDir,
        BERTH_LOG_LEVEL: "warn",
        ...env,
      },
    });
    const end = endOf(child);
    const line = new Promise<string>((resolve) => {
      let text = "";
      child.stdout.on("data", (data: Buffer) => {
        text += data;
        if (text.includes("\n")) resolve(text.slice(0, text.indexOf("\n")));
      });
    });
    const died = end.then(({ exitCode, stderr }) =>
      Promise.reject(new Error(`serve ended (${exitCode}): ${stderr}`)),
    );
    died.catch(() => {});
    return new ServeProcess(child, end, await Promise.race([line, died]), {
      instance,
      dataDir,
      within: more.within ?? [],
    });
  }

  /** Runs a client command against it. */
  run(args: readonly string[], options: ProgramOptions = {}): Promise<ProgramEnd> {
    return runProgram(args, { ...options, env: { BERTH_ADDRESS: this.address, ...options.env } });
  }

  /** Runs a client command against it in this process. */
  runHere(
    args: readonly string[],
    { env, ...options }: Parameters<typeof runProgramHere>[1] = {},
  ): Promise<ProgramEnd> {
    return runProgramHere(args, { ...options, env: { BERTH_ADDRESS: this.address, ...env } });
  }

  /** Starts a client command against it. */
  begin(args: readonly string[], options: ProgramOptions = {}): ChildProcessWithoutNullStreams {
    return startProgram(args, { ...options, env: { BERTH_ADDRESS: this.address, ...options.env } });
  }

  /** Sends a signal and waits for the end. */
  async stop(signal: NodeJS.Signals = "SIGTERM"): Promise<ProgramEnd> {
    this.#child.kill(signal);
    return this.#end;
  }

  /** Sends a signal. */
  signal(signal: NodeJS.Signals): void {
    this.#child.kill(signal);
  }

  /** The program's process. */
  get pid(): number {
    if (this.#child.pid === undefined) throw new Error("it was not started");
    return this.#child.pid;
  }

  /** Its end, for any reason. */
  get end(): Promise<ProgramEnd> {
    return this.#end;
  }

  /** Starts it again, with the data of an ended run. */
  again(args: readonly string[] = [], env: Readonly<Record<string, string>> = {}): Promise<ServeProcess> {
    return ServeProcess.start(args, env, this.#settings);
  }

  /** Kills it if it still runs. For the cleanup of a failed test. */
  async dispose(): Promise<void> {
    this.#child.kill("SIGKILL");
    await this.#end;
  }
}
