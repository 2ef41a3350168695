import { execFile } from "node:child_process";
import { readFileSync } from "node:fs";
import path from "node:path";
import { promisify } from "node:util";
import { BwrapProblem, INSTALL } from "./errors.ts";
import { ENTRY_FAILED } from "./filter.ts";
import { HOST_ENV, hostCommand, type Identity } from "./sandbox-user.ts";

/** The `bwrap` of this machine. */
export interface BwrapProgram {
  readonly version: string;
  /** Whether it can mount directories from open descriptors, which cannot be swapped meanwhile. */
  readonly bindsDescriptors: boolean;
}

/** The first version that can forbid new user namespaces. */
const MIN_VERSION = [0, 8];

/** Finds the version and abilities of `bwrap`. @throws BwrapProblem if it is missing or too old. */
export async function findBwrap(): Promise<BwrapProgram> {
  const version = /(\d+(\.\d+)*)/.exec(await ask("--version"))?.[1];
  if (version === undefined)
    throw new BwrapProblem("the program bwrap is not bubblewrap: it prints no version", INSTALL);
  const [major = 0, minor = 0] = version.split(".").map(Number);
  const [minMajor = 0, minMinor = 0] = MIN_VERSION;
  if (major < minMajor || (major === minMajor && minor < minMinor)) {
    throw new BwrapProblem(
      `bubblewrap ${version} is too old: ${MIN_VERSION.join(".")} or newer is needed`,
      "Install a newer one: Debian 12, Ubuntu 24.04 and Fedora 38 have it, https://github.com/containers/bubblewrap its source.",
    );
  }
  return { version, bindsDescriptors: (await ask("--help")).includes("--ro-bind-fd ") };
}

async function ask(flag: string): Promise<string> {
  try {
    return (await promisify(execFile)("bwrap", [flag], { env: HOST_ENV, cwd: "/", timeout: 10_000 })).stdout;
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === "ENOENT")
      throw new BwrapProblem("bubblewrap is not installed: no bwrap in /usr/bin", INSTALL, error);
    throw new BwrapProblem(`bwrap ${flag} fails: ${(error as Error).message}`, INSTALL, error);
  }
}

/** Host programs that the engine uses, and the packages that contain them. */
const HOST_PROGRAMS = { setpriv: "util-linux", nsenter: "util-linux", xargs: "findutils" };

/** A program that sandboxes need for a new session if there is no filter. */
const SETSID = "setsid";

/** Creates a sandbox with all namespaces, which ends at once. @throws BwrapProblem if that fails. */
export async function probeSandbox(identity: Identity, system: readonly string[]): Promise<void> {
  for (const [name, packageName] of Object.entries(HOST_PROGRAMS)) await requireProgram(name, packageName);
  const needs = `command -v ${SETSID} && command -v env`;
  const [program, args] = hostCommand(
    identity,
    [],
    [
      ...["bwrap", "--unshare-all", "--unshare-user", "--disable-userns", "--uid", "1000", "--gid", "1000"],
      ...["--die-with-parent", "--tmpfs", "/", ...system, "--proc", "/proc", "--dev", "/dev", "--"],
      ...["/bin/sh", "-c", `${needs} || { echo no-tools >&2; exit 1; }`],
    ],
  );
  try {
    await promisify(execFile)(program, args, { env: HOST_ENV, cwd: "/", timeout: 20_000 });
  } catch (error) {
    throw problem(String((error as { stderr?: string }).stderr || (error as Error).message).trim(), error);
  }
}

/** Runs the executable that enters sandboxes, without a sandbox to enter. @throws BwrapProblem if it cannot be run. */
export async function probeEntry(identity: Identity, entryFile: string): Promise<void> {
  const [program, args] = hostCommand(identity, [], [entryFile, "/bin/true"]);
  try {
    await promisify(execFile)(program, args, { env: HOST_ENV, cwd: "/", timeout: 20_000 });
  } catch (error) {
    const { code, stderr } = error as { code?: number | string; stderr?: string };
    if (code === ENTRY_FAILED) return;
    throw new BwrapProblem(
      `files in ${path.dirname(entryFile)} cannot be run, so sandboxes would have no filter of system calls: ${String(stderr || code).trim()}`,
      "Set TMPDIR for the service to a directory on a file system that is not mounted noexec, for instance TMPDIR=/var/tmp",
      error,
    );
  }
}

async function requireProgram(name: string, packageName: string): Promise<void> {
  try {
    await promisify(execFile)(name, ["--version"], { env: HOST_ENV, cwd: "/", timeout: 10_000 });
  } catch (error) {
    throw new BwrapProblem(
      `the program ${name} is missing`,
      `sudo apt-get update && sudo apt-get install -y ${packageName}`,
      error,
    );
  }
}

function problem(output: string, cause: unknown): BwrapProblem {
  if (output.includes("no-tools")) {
    return new BwrapProblem(
      `the system of the sandboxes has no ${SETSID} or no env`,
      "Install coreutils and util-linux (or busybox) in the directory given with --rootfs",
      cause,
    );
  }
  if (/execvp \/bin\/sh/.test(output)) {
    return new BwrapProblem(
      `the system of the sandboxes has no /bin/sh that runs: ${output}`,
      "Pass a directory with a whole system to --rootfs, or leave it out for the machine's own",
      cause,
    );
  }
  if (/can't find source path/i.test(output)) {
    return new BwrapProblem(
      `the sandboxes' user cannot reach the system of the sandboxes: ${output}`,
      "Let everybody enter the directory given with --rootfs and those above it: chmod a+x DIR",
      cause,
    );
  }
  for (const [file, value] of [
    ["/proc/sys/kernel/unprivileged_userns_clone", "1"],
    ["/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "0"],
  ] as const) {
    const found = read(file);
    if (found !== undefined && found !== value && !/setpriv/.test(output)) {
      const name = file.slice("/proc/sys/".length).replaceAll("/", ".");
      return new BwrapProblem(
        `user namespaces are forbidden (${name}): ${output}`,
        sysctl(name, value),
        cause,
      );
    }
  }
  if (read("/proc/sys/user/max_user_namespaces") === "0" || /user namespace|new namespace/i.test(output)) {
    return new BwrapProblem(
      `user namespaces are forbidden: ${output}`,
      `${sysctl("user.max_user_namespaces", "10000")}\nIn a container: run it with user namespaces allowed (Docker: --security-opt seccomp=unconfined), or outside.`,
      cause,
    );
  }
  if (/bwrap.*no such file|can't exec|not found/i.test(output)) {
    return new BwrapProblem(`bwrap cannot be run by the sandboxes' user: ${output}`, INSTALL, cause);
  }
  return new BwrapProblem(
    `a sandbox cannot be made: ${output}`,
    "In a container, mounting another /proc is often forbidden: run the service outside, or use the Docker engine there.",
    cause,
  );
}

function sysctl(name: string, value: string): string {
  return `echo ${name}=${value} | sudo tee /etc/sysctl.d/50-berth.conf && sudo sysctl --system`;
}

function read(file: string): string | undefined {
  try {
    return readFileSync(file, "utf8").trim();
  } catch {
    return undefined;
  }
}
