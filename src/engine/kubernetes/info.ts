import type { V1Node, VersionInfo } from "@kubernetes/client-node";
import { BerthError } from "../../base/errors.ts";
import type { EngineInfo, EngineSandboxSpec, IsolationLevel } from "../port.ts";
import type { Api } from "./api.ts";
import { isRefusal } from "./errors.ts";
import type { NetworkGuard } from "./network/guard.ts";

/**
 * What the operator declares about NetworkPolicy. `enforced`: the cluster's network enforces it. `open`: it does not,
 * and sandboxes with the network NONE may reach whatever pods reach. Undefined: NONE is refused.
 */
export type NetworkPolicyWord = "enforced" | "open" | undefined;

/** What a node has for pods. */
interface NodeSize {
  readonly cpus: number;
  readonly memoryBytes: number;
}

/** How long what is known of the nodes is reused. */
const NODES_MS = 60_000;
/** For a service without the permission to see nodes: no limit here. The scheduler enforces the real one. */
const UNKNOWN: NodeSize = { cpus: 4096, memoryBytes: 2 ** 50 };

/** Describes the cluster and its capabilities. Also verifies that the service may list pods. */
export async function readInfo(
  api: Api,
  options: {
    readonly isolation: IsolationLevel;
    readonly networkPolicy: NetworkPolicyWord;
    /** Undefined unless the network policy is `enforced`. */
    readonly guard: Pick<NetworkGuard, "problemOf" | "warning"> | undefined;
    /** {@link largestNodeOf} the cluster. */
    readonly largestNode: (signal?: AbortSignal) => Promise<NodeSize>;
  },
  signal?: AbortSignal,
): Promise<EngineInfo> {
  const [version, room] = await Promise.all([
    api.call<VersionInfo>("GET", "version", "asking for its version", { signal }),
    options.largestNode(signal),
    api.call("GET", `${api.path("pods")}?limit=1`, "listing pods", { signal }),
  ]);
  return {
    version: version.gitVersion.replace(/^v/, ""),
    isolation: options.isolation,
    images: true,
    capabilities: {
      pause: false,
      memoryLimit: true,
      cpuLimit: true,
      // The kubelet has one limit that is the same for all pods.
      pidsLimit: false,
      // Exceeding ephemeral-storage ends the whole pod, up to a minute later.
      diskLimit: false,
      egress: options.guard !== undefined && options.guard.problemOf("EGRESS") === undefined,
      egressDomains: false,
      systemCallFilter: true,
    },
    openNetwork: options.networkPolicy === "open" || options.guard?.problemOf("NONE") !== undefined,
    ...(options.guard?.warning !== undefined && { warning: options.guard.warning }),
    ...room,
  };
}

/**
 * Returns a function that asks for the largest node, and reuses the answer for a minute: a health check comes every few
 * seconds, and nodes are large objects.
 */
export function largestNodeOf(api: Api): (signal?: AbortSignal) => Promise<NodeSize> {
  let known: { readonly size: NodeSize; readonly at: number } | undefined;
  return async (signal) => {
    const at = performance.now();
    if (known === undefined || at - known.at > NODES_MS) known = { size: await largestNode(api, signal), at };
    return known.size;
  };
}

async function largestNode(api: Api, signal?: AbortSignal): Promise<NodeSize> {
  try {
    const sizeOf = ({ status }: V1Node): NodeSize => ({
      cpus: parseQuantity(status?.allocatable?.cpu ?? "0"),
      memoryBytes: parseQuantity(status?.allocatable?.memory ?? "0"),
    });
    const { items } = await api.list("api/v1/nodes", "listing nodes", sizeOf, { signal });
    if (items.length === 0) return UNKNOWN;
    return {
      cpus: Math.max(1, Math.floor(Math.max(...items.map(({ cpus }) => cpus)))),
      memoryBytes: Math.max(...items.map(({ memoryBytes }) => memoryBytes)),
    };
  } catch (error) {
    if (isRefusal(error, 403)) return UNKNOWN;
    throw error;
  }
}

const UNITS: Readonly<Record<string, number>> = {
  "": 1,
  m: 1e-3,
  k: 1e3,
  M: 1e6,
  G: 1e9,
  T: 1e12,
  P: 1e15,
  Ki: 2 ** 10,
  Mi: 2 ** 20,
  Gi: 2 ** 30,
  Ti: 2 ** 40,
  Pi: 2 ** 50,
};

/**
 * Parses a quantity of the API; 0 if it is not valid
 * (https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/).
 */
export function parseQuantity(text: string): number {
  const [, digits = "0", unit = ""] = /^([0-9.]+)([a-zA-Z]*)$/.exec(text) ?? [];
  return Number(digits) * (UNITS[unit] ?? 0);
}

/** Refuses a spec that needs what the engine cannot do. A limit of processes is accepted: every spec has one. */
export function requireCapabilities(spec: EngineSandboxSpec, networkPolicy: NetworkPolicyWord): void {
  const refuse = (capability: string, what: string): never => {
    throw new BerthError("UNSUPPORTED", `The engine kubernetes cannot ${what}`, { metadata: { capability } });
  };
  if (spec.resources.diskBytes !== undefined) {
    refuse(
      "disk_limit",
      "limit disk space: Kubernetes would end the whole sandbox instead. Leave disk_bytes unset.",
    );
  }
  if (spec.mounts.some(({ kind }) => kind === "host"))
    refuse("mounts", "mount directories of the service's machine: nodes do not have them. Use a workspace.");
  if (spec.network === "EGRESS" && networkPolicy !== "enforced") {
    refuse(
      "egress",
      "provide a safe network unless the operator says by --network-policy enforced that the cluster enforces NetworkPolicy. Use NONE.",
    );
  }
  if (spec.network === "NONE" && networkPolicy === undefined) {
    refuse(
      "network_none",
      "cut a sandbox off from the network unless the operator says by --network-policy whether the cluster enforces NetworkPolicy: enforced, or open, where sandboxes reach what pods reach.",
    );
  }
}
