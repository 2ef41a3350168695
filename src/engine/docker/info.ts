import { readFile } from "node:fs/promises";
import { BerthError } from "../../base/errors.ts";
import type {
  EngineCapabilities,
  EngineInfo,
  EngineSandboxSpec,
  IsolationLevel,
  Resources,
} from "../port.ts";
import type { CallOptions, Daemon } from "./daemon.ts";
import { podmanFacts } from "./podman.ts";

/** The fields of `docker info` used here. */
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
  /** For instance `name=seccomp,profile=builtin`. */
  readonly SecurityOptions: readonly string[] | null;
}

/** Describes the daemon and what its machine can do. */
export async function readInfo(
  daemon: Daemon,
  options: {
    readonly runtimes: Readonly<Record<string, IsolationLevel>>;
    readonly egress: boolean;
    readonly egressDomains: boolean;
  },
  call?: CallOptions,
): Promise<EngineInfo> {
  const info: DaemonInfo = await daemon.call(
    "asking for its version",
    (docker, abortSignal): Promise<DaemonInfo> => {
      // The driver accepts options here, but its types lack them.
      const asker = docker as unknown as { info(options: object): Promise<DaemonInfo> };
      return asker.info({ abortSignal });
    },
    call,
  );
  const has = await controlsOf(daemon, info, call);
  return {
    version: info.ServerVersion,
    isolation: options.runtimes[info.DefaultRuntime] ?? "CONTAINER",
    images: true,
    capabilities: {
      pause: has.some,
      memoryLimit: info.MemoryLimit && has.memory,
      cpuLimit: info.CpuCfsQuota && has.cpu,
      pidsLimit: info.PidsLimit && has.pids,
      diskLimit: await hasDiskLimit(daemon, info),
      egress: options.egress,
      egressDomains: options.egressDomains,
      systemCallFilter: filtersSystemCalls(info),
    },
    cpus: info.NCPU,
    memoryBytes: info.MemTotal,
  };
}

/** Which controllers of control groups the containers have. */
interface Controls {
  readonly some: boolean;
  readonly memory: boolean;
  readonly cpu: boolean;
  readonly pids: boolean;
}

async function controlsOf(daemon: Daemon, info: DaemonInfo, call?: CallOptions): Promise<Controls> {
  if (!(await daemon.isPodman())) {
    const some = info.CgroupDriver !== "none";
    return { some, memory: some, cpu: some, pids: some };
  }
  const { controllers } = await daemon.call("asking for its control groups", podmanFacts, call);
  const [memory, cpu, pids] = ["memory", "cpu", "pids"].map((name) => controllers.includes(name));
  return { some: controllers.length > 0, memory: memory === true, cpu: cpu === true, pids: pids === true };
}

function filtersSystemCalls({ SecurityOptions }: DaemonInfo): boolean {
  const seccomp = SecurityOptions?.find((option) => option.split(",").includes("name=seccomp"));
  return seccomp !== undefined && !seccomp.includes("unconfined");
}

/**
 * Docker can limit a container's disk only on overlay2 over XFS with project quotas, which only the mount options show.
 */
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

type Asked = readonly (readonly [boolean, keyof EngineCapabilities, string])[];

/** Refuses a spec that needs what the engine cannot do. */
export function requireCapabilities(spec: EngineSandboxSpec, capabilities: EngineCapabilities): void {
  requireLimits(spec.resources, capabilities);
  refuseUnable(capabilities, [
    [
      spec.resources.diskBytes !== undefined,
      "diskLimit",
      "limit disk space: that needs the overlay2 driver on XFS mounted with pquota. Leave disk_bytes unset",
    ],
    [
      spec.network === "EGRESS",
      "egress",
      "provide a safe network: that needs a service that runs as root with iptables on the machine of its Docker daemon. Use NONE",
    ],
  ]);
}

/** Refuses limits that the engine cannot enforce: some daemons accept and ignore them. */
export function requireLimits(resources: Resources, capabilities: EngineCapabilities): void {
  const advice = ". `berth doctor` says what the operator can do";
  refuseUnable(capabilities, [
    [resources.memoryBytes > 0, "memoryLimit", `limit memory: its containers have no memory cgroup${advice}`],
    [resources.cpuMillis > 0, "cpuLimit", `limit CPU time: its containers have no CFS quotas${advice}`],
    [resources.pidsLimit > 0, "pidsLimit", `limit processes: its containers have no pids cgroup${advice}`],
  ]);
}

function refuseUnable(capabilities: EngineCapabilities, asked: Asked): void {
  for (const [wanted, capability, what] of asked) {
    if (wanted && !capabilities[capability]) {
      throw new BerthError("UNSUPPORTED", `This Docker engine cannot ${what}.`, { metadata: { capability } });
    }
  }
}

/** PID file of a daemon that runs as root. */
const PID_FILE = "/var/run/docker.pid";

/**
 * The hard limit of open files of the Docker daemon on this machine, which its containers cannot exceed. Uses the PID
 * file next to the socket, if there is one, as for a rootless daemon; otherwise the machine's own daemon. Undefined if
 * it cannot be read.
 */
export async function daemonOpenFilesLimit(socketPath: string | undefined): Promise<number | undefined> {
  const own = socketPath?.replace(/\.sock$/, ".pid");
  try {
    const pid = await readFile(own ?? PID_FILE, "utf8").catch(() => readFile(PID_FILE, "utf8"));
    const limits = await readFile(`/proc/${Number(pid)}/limits`, "utf8");
    const hard = /^Max open files\s+\S+\s+(\d+)/m.exec(limits)?.[1];
    return hard === undefined ? undefined : Number(hard);
  } catch {
    return undefined;
  }
}
