import { spawn } from "node:child_process";
import type { Duplex } from "node:stream";
import { text } from "node:stream/consumers";
import { abortError, invalidArgument, throwIfAborted } from "../../base/errors.ts";
import { refusedMount } from "../mounts.ts";
import type { EngineSandbox, EngineSandboxSpec } from "../port.ts";
import { BWRAP_FDS, bwrapArguments } from "./arguments.ts";
import type { ControlGroup } from "./control-group.ts";
import { startFailed, translateError } from "./errors.ts";
import { Keeper, keeperScript, SETUP_MARKERS, setupCommand } from "./keeper.ts";
import type { Launcher, Reports, Started } from "./launcher.ts";
import { type OpenMount, stagedPath, withStagedMounts } from "./mounts.ts";
import { BubblewrapSandbox } from "./sandbox.ts";
import { DEFAULT_PATH, HOST_ENV, hostCommand, type Identity, SANDBOX_USER } from "./sandbox-user.ts";
import { REPORTS_FD } from "./shell-pipes.ts";

/** Everything that is needed to start a sandbox. */
export interface StartPlan {
  readonly spec: EngineSandboxSpec;
  readonly description: EngineSandbox;
  readonly identity: Identity;
  readonly launcher: Launcher;
  readonly reports: Reports;
  /** Control groups of the host's processes that serve sandboxes. */
  readonly attendants: readonly string[];
  readonly group: ControlGroup;
  readonly system: readonly string[];
  readonly etc: readonly string[];
  /** Undefined if there is no filter of system calls. */
  readonly filterFile: string | undefined;
  readonly mounts: readonly OpenMount[];
  /** Where root binds the mounts for bwrap. */
  readonly stage: string;
  /** Timeout from the start until the main process reports that it is ready. */
  readonly readyMs: number;
}

/** Starts a sandbox and returns when commands can be spawned in it. On failure only its control group remains. */
export async function startSandbox(plan: StartPlan, signal?: AbortSignal): Promise<BubblewrapSandbox> {
  throwIfAborted(signal);
  const failure = Promise.withResolvers<never>();
  failure.promise.catch(() => {});
  const timer = setTimeout(
    () => failure.reject(startFailed(`it was not ready within ${plan.readyMs / 1000} s`, "")),
    plan.readyMs,
  );
  const onAbort = () => signal && failure.reject(abortError(signal));
  signal?.addEventListener("abort", onAbort, { once: true });
  try {
    const starting =
      plan.mounts.length > 0 ? startWithMounts(plan) : plan.launcher.start((tag) => [script(plan, tag)]);
    return await becomeReady(plan, starting, failure.promise);
  } catch (error) {
    throw translateError(error, "starting a sandbox");
  } finally {
    clearTimeout(timer);
    signal?.removeEventListener("abort", onAbort);
  }
}

/** Waits until the main process is ready. On failure, also if `failed` rejects, waits until the sandbox is gone. */
async function becomeReady(
  plan: StartPlan,
  starting: Promise<Started>,
  failed: Promise<never>,
): Promise<BubblewrapSandbox> {
  const ready = Promise.withResolvers<void>();
  const keeping = starting.then((started) => {
    const made = new Keeper(started, (lines) => lines.includes(SETUP_MARKERS.ready) && ready.resolve());
    void made.ended.then(() => plan.launcher.collect());
    return made;
  });
  let keeper: Keeper;
  try {
    keeper = await Promise.race([keeping, failed]);
  } catch (error) {
    void keeping.then(
      (late) => late.kill(),
      () => {},
    );
    throw error;
  }
  try {
    const ended = keeper.ended.then(() => Promise.reject(endedAtOnce(keeper, plan)));
    await Promise.race([ready.promise, ended, failed]);
    const initPid = await Promise.race([keeper.initPid, failed]);
    if (initPid === undefined) throw endedAtOnce(keeper, plan);
    keeper.stopReading();
    const { spec, description, group } = plan;
    const env = { PATH: DEFAULT_PATH, HOME: SANDBOX_USER.home, HOSTNAME: "sandbox", ...spec.env };
    return new BubblewrapSandbox({ description, keeper, initPid, group, env, resources: spec.resources });
  } catch (error) {
    keeper.kill();
    await keeper.ended;
    throw error;
  }
}

function endedAtOnce({ printed, markers }: Keeper, { spec }: StartPlan): Error {
  if (markers.includes(SETUP_MARKERS.badWorkingDir)) return invalidArgument("spec.working_dir", printed);
  const refused = /^bwrap: Can't .*$/m.exec(printed)?.[0] ?? "";
  const mount = refusedMount(spec.mounts, refused, (target) => `${target}: `);
  if (mount !== undefined) return mount;
  return startFailed("its main process ended at once. The system needs a working /bin/sh", printed);
}

function script(plan: StartPlan, tag: number): string {
  const { spec, group, system, etc, filterFile, mounts, stage } = plan;
  const staged = process.getuid?.() === 0;
  const sources = mounts.map((mount, index) => ({
    ...mount,
    ...(staged && { source: stagedPath(stage, index) }),
  }));
  return keeperScript({
    ...{ tag, joinFiles: group.joinFiles, filterFile },
    bwrapArguments: bwrapArguments({
      ...{ system, etc, resources: spec.resources, shown: group.shown, mounts: sources },
    }),
    command: setupCommand(spec.workingDir),
  });
}

/**
 * Starts a keeper from the service itself. Root binds the mounts for it; any other user passes them as open
 * descriptors, which bwrap closes.
 */
function startWithMounts(plan: StartPlan): Promise<Started> {
  const { mounts, stage, identity, attendants, reports } = plan;
  const expected = reports.expect();
  const command = hostCommand(identity, attendants, ["/bin/sh", "-c", script(plan, expected.tag)]);
  const isRoot = process.getuid?.() === 0;
  const [program, args] = isRoot ? withStagedMounts(stage, mounts, command) : command;
  const ownFds = Array.from({ length: BWRAP_FDS.mounts }, () => "ignore" as "ignore" | "pipe");
  ownFds[2] = "pipe";
  ownFds[REPORTS_FD] = "pipe";
  const keeper = spawn(program, args, {
    stdio: isRoot ? ownFds : [...ownFds, ...mounts.map(({ fd }) => fd)],
    env: HOST_ENV,
    cwd: "/",
    detached: true,
  });
  keeper.once("error", expected.fail);
  // It has no streams then.
  if (keeper.pid === undefined) return expected.started;
  reports.listen(keeper.stdio[REPORTS_FD] as Duplex);
  const printed = keeper.stderr === null ? "" : text(keeper.stderr).catch(() => "");
  keeper.once("exit", async () => expected.fail(startFailed("its mounts could not be made", await printed)));
  return expected.started;
}
