import { readFile } from "node:fs/promises";
import { BerthError } from "../../base/errors.ts";
import type { EngineCapabilities, EngineInfo, EngineSandboxSpec, IsolationLevel } from "../port.ts";
import type { CallOptions, Daemon } from "./daemon.ts";

/** The fields used of what `docker info` tells. */
interface DaemonInfo {
  readonly ServerVersion: string;
  readonly NCPU: number;
  readonly MemTotal: number;
  readonly MemoryLimit: boolean;
  readonly CpuCfsQuota: boolean;
  readonly PidsLimit: boolean;
  readonly CgroupDriver: string;
  readonly Driver: string;
  readonly DriverStatus: readonly (readonly [string, string])[] | null;
  readonly DockerRootDir: string;
  readonly DefaultRuntime: string;
}

/** What this engine needs to know that the daemon does not tell. */
export interface InfoOptions {
  readonly runtimes: Readonly<Record<string, IsolationLevel>>;
  readonly egress: boolean;
}

/** Asks the daemon who it is and what its machine can do. */
export async function readInfo(
  daemon: Daemon,
  options: InfoOptions,
  call?: CallOptions,
): Promise<EngineInfo> {
  const info: DaemonInfo = await daemon.call(
    "asking who it is",
    (docker, abortSignal): Promise<DaemonInfo> => {
      // The driver takes options here; its types do not know.
      const asker = docker as unknown as { info(options: object): Promise<DaemonInfo> };
      return asker.info({ abortSignal });
    },
    call,
  );
  return {
    version: info.ServerVersion,
    isolation: options.runtimes[info.DefaultRuntime] ?? "CONTAINER",
    capabilities: {
      pause: info.CgroupDriver !== "none",
      memoryLimit: info.MemoryLimit,
      cpuLimit: info.CpuCfsQuota,
      pidsLimit: info.PidsLimit,
      diskLimit: await hasDiskLimit(daemon, info),
      egress: options.egress,
    },
    cpus: info.NCPU,
    memoryBytes: info.MemTotal,
  };
}

/** Docker bounds a container's disk on overlay2 over XFS with project quotas, which only the mount's options tell. */
async function hasDiskLimit(daemon: Daemon, info: DaemonInfo): Promise<boolean> {
  const onXfs = info.DriverStatus?.some(([key, value]) => key === "Backing Filesystem" && value === "xfs");
  if (info.Driver !== "overlay2" || !onXfs || daemon.socketPath === undefined) return false;
  const mounts = await readFile("/proc/self/mounts", "utf8").catch(() => "");
  let longest = "";
  let options = "";
  for (const line of mounts.split("\n")) {
    const [, target = "", , mountOptions = ""] = line.split(" ");
    const holdsRoot =
      info.DockerRootDir === target || info.DockerRootDir.startsWith(target === "/" ? "/" : `${target}/`);
    if (holdsRoot && target.length >= longest.length) [longest, options] = [target, mountOptions];
  }
  return /\b(pquota|prjquota)\b/.test(options);
}

/** Refuses a spec that asks for what the engine cannot do. */
export function requireCapabilities(spec: EngineSandboxSpec, capabilities: EngineCapabilities): void {
  const asked: readonly [boolean, keyof EngineCapabilities, string][] = [
    [spec.resources.memoryBytes > 0, "memoryLimit", "bound memory: its kernel lacks the memory cgroup"],
    [spec.resources.cpuMillis > 0, "cpuLimit", "bound CPU time: its kernel lacks CFS quotas"],
    [spec.resources.pidsLimit > 0, "pidsLimit", "bound processes: its kernel lacks the pids cgroup"],
    [
      spec.resources.diskBytes !== undefined,
      "diskLimit",
      "bound disk space: that takes the overlay2 driver on XFS mounted with pquota. Leave disk_bytes unset",
    ],
    [
      spec.network === "EGRESS",
      "egress",
      "give a network that is safe: that takes a service that runs as root with iptables on the machine of its Docker daemon. Use NONE",
    ],
  ];
  for (const [wanted, capability, what] of asked) {
    if (wanted && !capabilities[capability]) {
      throw new BerthError("UNSUPPORTED", `This Docker engine cannot ${what}.`, { metadata: { capability } });
    }
  }
}

const PID_FILE = "/var/run/docker.pid";

/**
 * Hard limit of open files of the Docker daemon on this machine, which its
 * containers cannot go beyond. Undefined where it cannot be read.
 */
export async function daemonOpenFilesLimit(): Promise<number | undefined> {
  try {
    const pid = Number(await readFile(PID_FILE, "utf8"));
    const limits = await readFile(`/proc/${pid}/limits`, "utf8");
    const hard = /^Max open files\s+\S+\s+(\d+)/m.exec(limits)?.[1];
    return hard === undefined ? undefined : Number(hard);
  } catch {
    return undefined;
  }
}
