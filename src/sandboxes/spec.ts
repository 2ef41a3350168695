import { BerthError, invalidArgument } from "../base/errors.ts";
import { PROXY_ENV } from "../egress/manager.ts";
import type { EngineInfo, EngineMount, NetworkMode } from "../engine/port.ts";
import type { Mount, SandboxSpec } from "./sandbox.ts";

const MIB = 1024 * 1024;

/** The minimum memory limit that Docker accepts. */
const MIN_MEMORY_BYTES = 6 * MIB;
/** Below this, starting a shell in a container fails. */
const MIN_PIDS = 16;
const MAX_PIDS = 32_768;
const MIN_CPU_MILLIS = 10;
const MIN_DISK_BYTES = 1 * MIB;

/** Defaults for sandboxes. */
export interface SandboxDefaults {
  readonly image: string;
  readonly workingDir: string;
  readonly memoryBytes: number;
  readonly cpuMillis: number;
  readonly pidsLimit: number;
  readonly network: NetworkMode;
  readonly idleTimeoutMs: number;
  readonly maxLifetimeMs: number | undefined;
  readonly commandTimeoutMs: number;
}

/** The defaults of the source system: see docs/glossary.md, "sandbox". */
export const SANDBOX_DEFAULTS: SandboxDefaults = {
  image: "python:3.12-slim",
  workingDir: "/workspace",
  memoryBytes: 512 * MIB,
  cpuMillis: 1000,
  pidsLimit: 512,
  network: "NONE",
  idleTimeoutMs: 3_600_000,
  maxLifetimeMs: undefined,
  commandTimeoutMs: 300_000,
};

/** A spec as requested: well-formed, with undefined for omitted fields. */
export interface RequestedSpec {
  readonly image?: string;
  readonly env?: Readonly<Record<string, string>>;
  readonly secretEnv?: Readonly<Record<string, string>>;
  readonly workingDir?: string;
  readonly user?: string;
  readonly memoryBytes?: number;
  readonly cpuMillis?: number;
  readonly pidsLimit?: number;
  readonly diskBytes?: number;
  readonly network?: NetworkMode;
  /** In the syntax of `parseDomainRule`. */
  readonly egressDomains?: readonly string[];
  readonly mounts?: readonly Mount[];
  readonly labels?: Readonly<Record<string, string>>;
  readonly idleTimeoutMs?: number;
  readonly maxLifetimeMs?: number;
  readonly commandTimeoutMs?: number;
  readonly runtime?: string;
}

/**
 * Fills in the defaults, and checks the spec against the engine's capabilities.
 * @throws `INVALID_ARGUMENT` for a value out of range, `UNSUPPORTED` for what the engine cannot do.
 */
export function resolveSpec(
  asked: RequestedSpec,
  defaults: SandboxDefaults,
  engine: EngineInfo,
): SandboxSpec {
  const max = { memory: engine.memoryBytes, cpu: engine.cpus * 1000 };
  // If a default exceeded the machine's resources, every create without a limit would fail.
  const memoryBytes = asked.memoryBytes ?? Math.min(defaults.memoryBytes, max.memory);
  const cpuMillis = asked.cpuMillis ?? Math.min(defaults.cpuMillis, max.cpu);
  const pidsLimit = asked.pidsLimit ?? defaults.pidsLimit;
  inRange("spec.resources.memory_bytes", memoryBytes, MIN_MEMORY_BYTES, max.memory);
  inRange("spec.resources.cpu_millis", cpuMillis, MIN_CPU_MILLIS, max.cpu);
  inRange("spec.resources.pids_limit", pidsLimit, MIN_PIDS, MAX_PIDS);
  if (asked.diskBytes !== undefined) {
    inRange("spec.resources.disk_bytes", asked.diskBytes, MIN_DISK_BYTES, Number.MAX_SAFE_INTEGER);
    if (!engine.capabilities.diskLimit) {
      throw unsupported(
        "spec.resources.disk_bytes",
        "The engine's storage cannot limit a sandbox's disk. Leave it unset.",
      );
    }
  }
  const { network, egressDomains } = resolveNetwork(asked, defaults, engine);
  return {
    image: asked.image ?? defaults.image,
    env: { PYTHONUNBUFFERED: "1", TERM: "dumb", ...(egressDomains.length > 0 && PROXY_ENV), ...asked.env },
    secretEnv: asked.secretEnv ?? {},
    workingDir: asked.workingDir ?? defaults.workingDir,
    user: asked.user ?? "",
    resources: { memoryBytes, cpuMillis, pidsLimit, diskBytes: asked.diskBytes },
    network,
    egressDomains,
    mounts: asked.mounts ?? [],
    labels: asked.labels ?? {},
    idleTimeoutMs: asked.idleTimeoutMs ?? defaults.idleTimeoutMs,
    maxLifetimeMs: asked.maxLifetimeMs ?? defaults.maxLifetimeMs,
    commandTimeoutMs: asked.commandTimeoutMs ?? defaults.commandTimeoutMs,
    runtime: asked.runtime ?? "",
  };
}

function resolveNetwork(
  { network: mode, egressDomains = [] }: RequestedSpec,
  defaults: SandboxDefaults,
  { capabilities }: EngineInfo,
): Pick<SandboxSpec, "network" | "egressDomains"> {
  if (egressDomains.length > 0) {
    if (mode === "NONE")
      throw invalidArgument("spec.egress_domains", "the network mode is NONE. Leave it unset.");
    if (!capabilities.egressDomains) {
      throw unsupported(
        "spec.egress_domains",
        "This server cannot give a sandbox some domains only. Leave it empty; `berth doctor` shows the operator what is missing.",
      );
    }
    return { network: "EGRESS", egressDomains };
  }
  const network = mode ?? defaults.network;
  if (network === "EGRESS" && !capabilities.egress) {
    const instead = capabilities.egressDomains
      ? "Name the domains in spec.egress_domains, or use NONE"
      : "Use NONE";
    throw unsupported(
      "spec.network.mode",
      `This server offers no network because it cannot block private addresses. ${instead}; \`berth doctor\` shows the operator what is missing.`,
    );
  }
  return { network, egressDomains };
}

/** The network to request from the engine: none if the proxy is the only way out. */
export function engineNetwork({ network, egressDomains }: SandboxSpec): NetworkMode {
  return egressDomains.length > 0 ? "NONE" : network;
}

/**
 * Adapts Berth's own spec to the engine: removes the image if the engine has no images, and keeps limits within the
 * machine's resources.
 */
export function fitSpec(wanted: RequestedSpec, engine: EngineInfo): RequestedSpec {
  const { image, memoryBytes, cpuMillis, ...rest } = wanted;
  return {
    ...rest,
    ...(engine.images && image !== undefined && { image }),
    ...(memoryBytes !== undefined && { memoryBytes: Math.min(memoryBytes, engine.memoryBytes) }),
    ...(cpuMillis !== undefined && { cpuMillis: Math.min(cpuMillis, engine.cpus * 1000) }),
  };
}

function inRange(field: string, value: number, min: number, max: number): void {
  if (value < min || value > max) throw invalidArgument(field, `${value} is not between ${min} and ${max}.`);
}

function unsupported(field: string, message: string): BerthError {
  return new BerthError("UNSUPPORTED", `${field}: ${message}`, { metadata: { field } });
}

/** Resolves the mounts of a spec to directories of the host. */
export interface MountSources {
  /**
   * Checks whether the owner may have one more sandbox with these mounts. May take long, so call it before anything is
   * reserved. @throws `TENANT_QUOTA`
   */
  admit(owner: string, spec: SandboxSpec, signal: AbortSignal): Promise<void>;
  /**
   * Checks whether a sandbox may be created with these mounts. Called in the same turn of the event loop in which the
   * sandbox is registered, so that a caller that closes a workspace for exclusive use finds every sandbox that uses it.
   * @throws `WORKSPACE_NOT_FOUND`, `WORKSPACE_IN_USE`, `UNSUPPORTED`.
   */
  check(owner: string, spec: SandboxSpec): void;
  /** @returns the directories. @throws as {@link check}, `WORKSPACE_BROKEN`. */
  resolve(owner: string, spec: SandboxSpec): Promise<EngineMount[]>;
}
