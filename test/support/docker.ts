import { PassThrough } from "node:stream";
import { buffer } from "node:stream/consumers";
import Dockerode from "dockerode";
import { isExiting } from "../../src/engine/outside/host-process.ts";
import { eventually } from "./eventually.ts";
import { commandLine, kubectlOutput, NAMESPACE, podOf, processesOfContainer } from "./kubernetes.ts";
import { ScriptShell } from "./script-shell.ts";

/** The daemon, without Berth in between. */
export const docker = new Dockerode();

const INSTANCE_LABEL = "berth.instance";
/** How long the daemon may take to remove what a test left behind. */
const REMOVAL_MS = 60_000;

/** All containers of an instance, in any state. */
export function containersOf(instance: string): Promise<Dockerode.ContainerInfo[]> {
  return docker.listContainers({ all: true, filters: { label: [`${INSTANCE_LABEL}=${instance}`] } });
}

/** The container behind a sandbox, found by its labels. */
export async function containerOf(instance: string, sandboxId: string): Promise<Dockerode.Container> {
  const labels = [`${INSTANCE_LABEL}=${instance}`, `berth.sandbox_id=${sandboxId}`];
  const found = await docker.listContainers({ all: true, filters: { label: labels } });
  const [first, ...others] = found;
  if (first === undefined || others.length > 0) {
    throw new Error(`${found.length} containers of sandbox ${sandboxId}`);
  }
  return docker.getContainer(first.Id);
}

/** Removes every container whose instance starts with the prefix. Returns how many there were. */
export async function removeContainers(instancePrefix: string): Promise<number> {
  const all = await docker.listContainers({ all: true, filters: { label: [INSTANCE_LABEL] } });
  const ours = all.filter(({ Labels }) => Labels[INSTANCE_LABEL]?.startsWith(instancePrefix));
  await Promise.all(ours.map(({ Id }) => removeContainer(docker.getContainer(Id))));
  return ours.length;
}

/** Removes a container. Returns when it is gone, also if somebody else is removing it or has done so. */
export async function removeContainer(container: Dockerode.Container): Promise<void> {
  const abortSignal = AbortSignal.timeout(REMOVAL_MS);
  try {
    await container.remove({ force: true, v: true, abortSignal });
  } catch (error) {
    if (hasStatus(error, 404)) return;
    // A call that a test gave up on may still be removing it.
    if (!hasStatus(error, 409)) throw error;
    await container.wait({ condition: "removed", abortSignal }).catch((waiting: unknown) => {
      if (!hasStatus(waiting, 404)) throw waiting;
    });
  }
}

function hasStatus(error: unknown, status: number): boolean {
  return (error as { statusCode?: number }).statusCode === status;
}

/** Has Docker itself pause a container. A busy kernel may not freeze it within the time that runc gives it. */
export async function pauseContainer(container: Dockerode.Container): Promise<void> {
  const isFrozen = (): Promise<boolean> =>
    container.pause().then(
      () => true,
      (error: unknown) => {
        if (!/unable to freeze/.test(String(error))) throw error;
        return false;
      },
    );
  await eventually(isFrozen);
}

/** The output of a command in a container, and how it ended. */
export interface RawResult {
  readonly stdout: Buffer;
  readonly stderr: Buffer;
  readonly exitCode: number;
}

/** Runs a command with a plain `docker exec`. */
export async function rawExec(
  container: Dockerode.Container,
  argv: readonly string[],
  options: { readonly workingDir?: string; readonly user?: string } = {},
): Promise<RawResult> {
  const exec = await container.exec({
    Cmd: [...argv],
    AttachStdout: true,
    AttachStderr: true,
    WorkingDir: options.workingDir,
    User: options.user,
  });
  const stream = await exec.start({ hijack: true, stdin: false });
  const stdout = new PassThrough();
  const stderr = new PassThrough();
  docker.modem.demuxStream(stream, stdout, stderr);
  stream.once("end", () => {
    stdout.end();
    stderr.end();
  });
  const [out, err] = await Promise.all([buffer(stdout), buffer(stderr)]);
  const { ExitCode: exitCode } = await exec.inspect();
  return { stdout: out, stderr: err, exitCode: exitCode ?? -1 };
}

/** A shell in a container, without Berth in between. It ends with its container. */
export async function rawShell(container: Dockerode.Container): Promise<ScriptShell> {
  const streams = { AttachStdin: true, AttachStdout: true, AttachStderr: true };
  const exec = await container.exec({ Cmd: ["/bin/sh"], ...streams });
  const stream = await exec.start({ hijack: true, stdin: true });
  const shell = new ScriptShell((data) => stream.write(data));
  const [stdout, stderr] = [new PassThrough(), new PassThrough()];
  docker.modem.demuxStream(stream, stdout, stderr);
  stdout.on("data", (chunk: Buffer) => shell.take("stdout", chunk));
  stderr.on("data", (chunk: Buffer) => shell.take("stderr", chunk));
  for (const event of ["end", "close", "error"]) stream.once(event, () => shell.end());
  return shell;
}

/** Runs a command in a sandbox, in a directory, without Berth in between. */
export async function rawRun(
  instance: string,
  sandboxId: string,
  argv: readonly string[],
  workingDir: string,
): Promise<RawResult> {
  if (process.env.BERTH_TEST_ENGINE !== "kubernetes")
    return rawExec(await containerOf(instance, sandboxId), argv, { workingDir });
  const { name } = await podOf(sandboxId);
  const entered = ["sh", "-c", 'cd "$0" && exec "$@"', workingDir, ...argv];
  const { stdout, stderr } = await kubectlOutput([
    "exec",
    name,
    `--namespace=${NAMESPACE}`,
    "--",
    ...entered,
  ]);
  return { stdout: Buffer.from(stdout), stderr: Buffer.from(stderr), exitCode: 0 };
}

/** Command lines of a sandbox's processes, as seen by the host. */
export async function processesOf(instance: string, sandboxId: string): Promise<string[]> {
  if (process.env.BERTH_TEST_ENGINE !== "kubernetes")
    return processesIn(await containerOf(instance, sandboxId));
  return processesOfContainer((await podOf(sandboxId)).container).map(commandLine);
}

/** The host's pids of a sandbox's processes. */
export async function pidsOf(instance: string, sandboxId: string): Promise<number[]> {
  if (process.env.BERTH_TEST_ENGINE === "kubernetes")
    return processesOfContainer((await podOf(sandboxId)).container).map(Number);
  return (await rowsOf(await containerOf(instance, sandboxId))).map(([pid]) => Number(pid));
}

/** Command lines of a container's processes, as seen by the host. */
export async function processesIn(container: Dockerode.Container): Promise<string[]> {
  return (await rowsOf(container)).map(([, ...args]) => args.join(" "));
}

/**
 * The pid and the command line of each process of a container, as seen by the host. Without those that have ended or
 * been killed: a killed one runs no more code, but on a busy machine it may exist for a while.
 */
async function rowsOf(container: Dockerode.Container): Promise<string[][]> {
  const { Processes: rows } = await container.top({ ps_args: "-eo pid,args" });
  return (rows as string[][]).filter(([pid]) => !isExiting(Number(pid)));
}
