import { type ChildProcess, spawn } from "node:child_process";
import { closeSync, openSync } from "node:fs";
import type { Readable, Writable } from "node:stream";
import { abortError, invalidArgument, throwIfAborted } from "../../core/errors.ts";
import type { EngineSandbox, EngineSandboxSpec } from "../../core/ports/engine.ts";
import { BWRAP_FDS, bwrapArguments } from "./arguments.ts";
import { Box } from "./box.ts";
import type { ControlGroup } from "./control-group.ts";
import { startFailed, translateError } from "./errors.ts";
import { HOST_ENV, hostCommand } from "./host-command.ts";
import { type Identity, SANDBOX_USER } from "./identity.ts";
import type { OpenMount } from "./mounts.ts";
import { DEFAULT_PATH, SETUP_MARKERS, setupCommand } from "./setup-script.ts";
import { stagedPath, withStagedMounts } from "./staged-mounts.ts";

/** How much of what bwrap and the main process print is kept. */
const MAX_REPORT_CHARS = 2048;

/** What a sandbox is started with, all of it at hand. */
export interface StartPlan {
  readonly spec: EngineSandboxSpec;
  readonly sandbox: EngineSandbox;
  readonly identity: Identity;
  readonly group: ControlGroup;
  readonly system: readonly string[];
  readonly etc: string;
  /** Open directories with where they appear. */
  readonly mounts: readonly OpenMount[];
  /** Where root binds them for bwrap. */
  readonly stage: string;
  /** From the start to the main process's word that it is ready. */
  readonly readyMs: number;
}

/** Starts a sandbox and returns when commands can be spawned in it. On failure nothing of it is left but its group. */
export async function startBox(plan: StartPlan, signal?: AbortSignal): Promise<Box> {
  throwIfAborted(signal);
  const start = new Start(plan);
  const timer = setTimeout(
    () => start.fail(startFailed(`it was not ready within ${plan.readyMs / 1000} s`, start.report)),
    plan.readyMs,
  );
  const onAbort = () => start.fail(signal && abortError(signal));
  signal?.addEventListener("abort", onAbort, { once: true });
  if (signal?.aborted) onAbort();
  try {
    return await start.box;
  } finally {
    clearTimeout(timer);
    signal?.removeEventListener("abort", onAbort);
  }
}

/** A sandbox on its way. */
class Start {
  readonly #plan: StartPlan;
  readonly #bwrap: ChildProcess;
  readonly #result = Promise.withResolvers<Box>();
  #info = "";
  #stdout = "";
  #stderr = "";
  #initPid: number | undefined;
  #userNamespace: number | undefined;
  #failure: unknown;

  constructor(plan: StartPlan) {
    this.#plan = plan;
    const { spec, identity, group, system, etc, mounts } = plan;
    const { resources } = spec;
    const stage = mounts.length > 0 && process.getuid?.() === 0 ? plan.stage : undefined;
    const sources = mounts.map((mount, index) => ({
      ...mount,
      ...(stage !== undefined && { source: stagedPath(stage, index) }),
    }));
    const args = bwrapArguments({ system, etc, resources, shown: group.shown, mounts: sources });
    const bwrap = ["bwrap", "--args", String(BWRAP_FDS.args), "--", ...setupCommand(spec.workingDir)];
    const command = hostCommand(identity, group.joinFiles, bwrap);
    const [program, programArgs] = stage === undefined ? command : withStagedMounts(stage, mounts, command);
    this.#bwrap = spawn(program, programArgs, {
      stdio: [
        ...Array.from({ length: BWRAP_FDS.mounts }, () => "pipe" as const),
        ...mounts.map(({ fd }) => fd),
      ],
      env: HOST_ENV,
      cwd: "/",
      detached: true,
    });
    this.#bwrap.once("error", (error) => this.#settle(translateError(error, "starting a sandbox")));
    this.#bwrap.once("close", () => this.#closed());
    this.#listen();
    (this.#stream(BWRAP_FDS.args) as Writable | null)?.end(`${args.join("\0")}\0`);
  }

  get box(): Promise<Box> {
    return this.#result.promise;
  }

  get report(): string {
    return `${this.#stderr}\n${this.#stdout.replace(/^berth-.*$/gm, "")}`.trim();
  }

  /** Ends what was started; the box fails once it is gone. */
  fail(error: unknown): void {
    this.#failure ??= error;
    this.#bwrap.kill("SIGKILL");
  }

  #stream(fd: number): Readable | Writable | null | undefined {
    return (this.#bwrap.stdio as readonly (Readable | Writable | null | undefined)[])[fd];
  }

  #listen(): void {
    const { stdin, stdout, stderr, stdio } = this.#bwrap;
    // It may be gone before anything is written to it.
    for (const stream of stdio) (stream as Readable | null)?.on("error", () => {});
    stdin?.on("error", () => {});
    stderr?.on("data", (chunk) => {
      this.#stderr = (this.#stderr + chunk).slice(-MAX_REPORT_CHARS);
    });
    stdout?.on("data", (chunk) => {
      this.#stdout = (this.#stdout + chunk).slice(-MAX_REPORT_CHARS);
      if (this.#stdout.split("\n").includes(SETUP_MARKERS.ready)) this.#ready();
    });
    (this.#stream(BWRAP_FDS.info) as Readable | null)?.on("data", (chunk) => {
      this.#info += chunk;
      if (this.#info.includes("}")) this.#open();
    });
  }

  /** Opens the outer user namespace, in which bwrap is held up until the gate is closed. */
  #open(): void {
    if (this.#userNamespace !== undefined) return;
    try {
      this.#initPid = Number(JSON.parse(this.#info)["child-pid"]);
      this.#userNamespace = openSync(`/proc/${this.#initPid}/ns/user`, "r");
      (this.#stream(BWRAP_FDS.gate) as Writable | null)?.end("\n");
    } catch (error) {
      this.fail(translateError(error, "starting a sandbox"));
    }
  }

  #ready(): void {
    const { spec, sandbox, group } = this.#plan;
    if (this.#failure !== undefined || this.#initPid === undefined || this.#userNamespace === undefined)
      return;
    const { stdout, stderr, stdio } = this.#bwrap;
    for (const stream of [stdout, stderr, ...stdio.slice(BWRAP_FDS.info)]) stream?.destroy();
    const { home } = SANDBOX_USER;
    const env = { PATH: DEFAULT_PATH, HOME: home, HOSTNAME: "sandbox", ...spec.env };
    const [initPid, userNamespace] = [this.#initPid, this.#userNamespace];
    this.#userNamespace = undefined;
    this.#result.resolve(
      new Box({ sandbox, bwrap: this.#bwrap, initPid, userNamespace, group, env, resources: spec.resources }),
    );
  }

  #closed(): void {
    if (this.#stdout.split("\n").includes(SETUP_MARKERS.badWorkingDir)) {
      this.#settle(invalidArgument("spec.working_dir", this.report));
    } else {
      this.#settle(
        startFailed("its main process ended at once. The system needs a working /bin/sh", this.report),
      );
    }
  }

  #settle(error: unknown): void {
    if (this.#userNamespace !== undefined) closeSync(this.#userNamespace);
    this.#userNamespace = undefined;
    this.#result.reject(this.#failure ?? error);
  }
}
