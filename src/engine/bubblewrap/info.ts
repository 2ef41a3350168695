import { availableParallelism, release, totalmem } from "node:os";
import { BerthError } from "../../base/errors.ts";
import type { EngineInfo, EngineSandboxSpec } from "../port.ts";
import type { GroupLimits } from "./control-group.ts";
import type { BwrapProgram } from "./probe.ts";

/** Describes this engine and its capabilities on this machine. */
export function describeEngine(
  program: BwrapProgram,
  limits: GroupLimits,
  systemCallFilter: boolean,
): EngineInfo {
  return {
    version: program.version,
    isolation: "NAMESPACE",
    images: false,
    capabilities: {
      pause: limits.pause,
      memoryLimit: limits.memory,
      cpuLimit: limits.cpu,
      pidsLimit: limits.pids || countsProcessesByNamespace(),
      diskLimit: true,
      egress: false,
      egressDomains: true,
      systemCallFilter,
    },
    cpus: availableParallelism(),
    memoryBytes: totalmem(),
  };
}

/** Whether RLIMIT_NPROC counts processes per user namespace, as it does since Linux 5.14. */
function countsProcessesByNamespace(): boolean {
  const [major = 0, minor = 0] = release().split(".").map(Number);
  return major > 5 || (major === 5 && minor >= 14);
}

/**
 * Refuses a spec that needs what the engine cannot do. Limits of memory and CPU are not refused even if the engine
 * cannot enforce them, because every spec has them.
 */
export function requireCapabilities(spec: EngineSandboxSpec, program: BwrapProgram): void {
  if (spec.network === "EGRESS") {
    throw unsupported(
      "egress",
      "gives sandboxes no network of their own. Name the domains in egress_domains, or use NONE or the Docker engine",
    );
  }
  if (spec.runtime !== "") {
    throw unsupported("runtime", "has no OCI runtimes. Leave runtime unset, or use the Docker engine");
  }
  if (spec.mounts.length > 0 && !program.bindsDescriptors) {
    throw unsupported(
      "mounts",
      `needs bubblewrap 0.10 (Debian 12: 0.8.0-2+deb12u1) for mounts, and this is ${program.version}`,
    );
  }
}

function unsupported(capability: string, what: string): BerthError {
  return new BerthError("UNSUPPORTED", `The bubblewrap engine ${what}.`, { metadata: { capability } });
}

/** How to run a service with control groups that it may write to. */
export const DELEGATE =
  "As root, or with control groups of its own, the service can limit them:\nsystemd-run --user --scope -p Delegate=yes berth serve --engine bubblewrap";

/** Names the limits that this machine cannot enforce; empty if it can enforce all. */
export function missingLimits({ capabilities }: EngineInfo): string[] {
  const { memoryLimit, cpuLimit, pidsLimit } = capabilities;
  return [
    ...(memoryLimit ? [] : ["memory (each process has the limit, not the sandbox)"]),
    ...(cpuLimit ? [] : ["cpu"]),
    ...(pidsLimit ? [] : ["processes (needs Linux 5.14 or control groups)"]),
  ];
}
