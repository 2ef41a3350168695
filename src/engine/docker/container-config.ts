import type { ContainerCreateOptions, MountSettings } from "dockerode";
import {
  type EngineSandboxSpec,
  type HostMount,
  type IsolationLevel,
  type Resources,
  readIsolation,
} from "../port.ts";
import { PIPES_TARGET } from "./named-pipes.ts";
import { setupCommand } from "./setup.ts";

/** The capabilities that root inside needs to run package managers. */
const CAPABILITIES = ["CHOWN", "DAC_OVERRIDE", "FOWNER", "SETUID", "SETGID", "KILL"];

/** Limit of open files per process: plenty, yet cheap for programs that close every possible descriptor. */
const OPEN_FILES = 16_384;

/** What {@link containerConfig} needs in addition to the spec. */
export interface ContainerFacts {
  readonly name: string;
  readonly labels: SandboxLabels;
  /** The image that was checked, by its id: its name may mean another one by now. */
  readonly imageId: string;
  /** The environment of the image, as `NAME=value`. */
  readonly imageEnv: readonly string[];
  /** The spec's mounts, with checked sources. */
  readonly mounts: readonly HostMount[];
  /**
   * An empty directory that is a shared mount. Mounting it makes the container's root a slave of the overlay that the
   * host sees (docs/warm-pool.md).
   */
  readonly inert?: string | undefined;
  /** The directory of its named pipes; undefined if it has none. */
  readonly pipes?: string | undefined;
  /** Docker network to join, and its resolvers (empty: the daemon's defaults); undefined: none. */
  readonly network: { readonly name: string; readonly dns: readonly string[] } | undefined;
  /** The daemon's hard limit of open files, if known; a container cannot have more. */
  readonly openFilesLimit: number | undefined;
}

/** The configuration of a container, with its unique name. */
export type NamedContainer = ContainerCreateOptions & { readonly name: string };

/**
 * The configuration of a sandbox's container, with all hardening. Users control neither Docker's working directory (its
 * path could lead through a descriptor of the runtime: CVE-2024-21626) nor the entry point, health check or volumes.
 */
export function containerConfig(spec: EngineSandboxSpec, facts: ContainerFacts): NamedContainer {
  const { diskBytes } = spec.resources;
  const env = Object.entries(spec.env).map(([name, value]) => `${name}=${value}`);
  const openFiles = Math.min(OPEN_FILES, facts.openFilesLimit ?? OPEN_FILES);
  return {
    name: facts.name,
    Image: facts.imageId,
    Entrypoint: setupCommand({
      setsHome: setsHome(facts.imageEnv) || setsHome(env),
      workingDir: spec.workingDir,
      user: facts.labels.user,
      giveToUser: facts.mounts.filter((mount) => mount.giveToUser).map((mount) => mount.target),
    }),
    Cmd: [],
    User: "0",
    WorkingDir: "/",
    Env: env,
    Labels: formatLabels(facts.labels),
    Healthcheck: { Test: ["NONE"] },
    AttachStdin: false,
    AttachStdout: false,
    AttachStderr: false,
    OpenStdin: true,
    // Docker would connect a container even to the network `none`, which takes longer than its start. But gVisor has a
    // loopback only if Docker has brought it up; runc and crun bring it up themselves.
    NetworkDisabled: facts.network === undefined && facts.labels.isolation === "CONTAINER",
    HostConfig: {
      CapDrop: ["ALL"],
      CapAdd: CAPABILITIES,
      SecurityOpt: ["no-new-privileges:true"],
      Privileged: false,
      ...resourceLimits(spec.resources),
      Ulimits: [
        { Name: "nofile", Soft: openFiles, Hard: openFiles },
        { Name: "core", Soft: 0, Hard: 0 },
      ],
      Init: true,
      LogConfig: { Type: "none", Config: {} },
      RestartPolicy: { Name: "no" },
      AutoRemove: false,
      NetworkMode: facts.network?.name ?? "none",
      Dns: [...(facts.network?.dns ?? [])],
      Mounts: [
        ...facts.mounts.map(bindMount),
        ...(facts.inert === undefined ? [] : [inertMount(facts.inert)]),
        ...(facts.pipes === undefined ? [] : [bindMount(pipesMount(facts.pipes))]),
      ],
      ...(spec.runtime === "" ? {} : { Runtime: spec.runtime }),
      ...(diskBytes === undefined ? {} : { StorageOpt: { size: String(diskBytes) } }),
    },
  };
}

/** Whether an environment sets HOME. Docker treats an empty HOME as unset. */
function setsHome(env: readonly string[]): boolean {
  return env.some((entry) => entry.startsWith("HOME=") && entry.length > "HOME=".length);
}

/** The limits that can change while a container runs, as Docker's options. Swap counts as memory. */
export function resourceLimits({ memoryBytes, cpuMillis, pidsLimit }: Resources) {
  return {
    Memory: memoryBytes,
    MemorySwap: memoryBytes,
    NanoCpus: cpuMillis * 1_000_000,
    PidsLimit: pidsLimit,
  };
}

/** Where {@link ContainerFacts.inert} is mounted. */
const INERT_TARGET = "/run/berth";

function inertMount(source: string): MountSettings {
  return {
    Type: "bind",
    Source: source,
    Target: INERT_TARGET,
    ReadOnly: true,
    BindOptions: { Propagation: "rslave" },
  };
}

/** Read-only, which still allows writing to pipes in it. */
function pipesMount(hostPath: string): HostMount {
  return { kind: "host", hostPath, target: PIPES_TARGET, readOnly: true, giveToUser: false };
}

function bindMount(mount: HostMount): MountSettings {
  return {
    Type: "bind",
    Source: mount.hostPath,
    Target: mount.target,
    ReadOnly: mount.readOnly,
    BindOptions: { Propagation: "rprivate" },
  };
}

/** A container's labels: its owner, and what Berth must know about it without the store. Immutable. */
export interface SandboxLabels {
  readonly instance: string;
  readonly sandboxId: string;
  readonly generation: number;
  readonly owner: string;
  /** The default user of commands; empty: root. */
  readonly user: string;
  readonly isolation: IsolationLevel;
}

/** The label of every container of a Berth service; its value is the instance. */
export const INSTANCE_LABEL = "berth.instance";

function formatLabels(labels: SandboxLabels): Record<string, string> {
  return {
    [INSTANCE_LABEL]: labels.instance,
    "berth.sandbox_id": labels.sandboxId,
    "berth.generation": String(labels.generation),
    "berth.owner": labels.owner,
    "berth.user": labels.user,
    "berth.isolation": labels.isolation,
  };
}

/** Parses the output of {@link formatLabels}. Missing values get the most cautious default. */
export function parseLabels(labels: Readonly<Record<string, string>>): SandboxLabels {
  return {
    instance: labels[INSTANCE_LABEL] ?? "",
    sandboxId: labels["berth.sandbox_id"] ?? "",
    generation: Number(labels["berth.generation"] ?? 0),
    owner: labels["berth.owner"] ?? "",
    user: labels["berth.user"] ?? "",
    isolation: readIsolation(labels["berth.isolation"] ?? ""),
  };
}
