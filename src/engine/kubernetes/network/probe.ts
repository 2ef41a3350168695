import { isIP } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import type { V1Pod, V1PodList } from "@kubernetes/client-node";
import { forEachConcurrently } from "../../../base/async.ts";
import { BerthError, throwIfAborted } from "../../../base/errors.ts";
import type { Api } from "../api.ts";
import {
  INSTANCE_LABEL,
  instanceLabel,
  NETWORK_LABEL,
  networkProbePod,
  type PodFacts,
  ROLE_LABEL,
} from "../pod.ts";
import type { Pods } from "../pods.ts";
import { runPlain } from "../process.ts";
import { RUN_DIR } from "../scripts.ts";
import { untilStarted } from "../start.ts";
import type { PodWarnings } from "../warnings.ts";
import { type Attempt, connectScript, listenScript, type Place, readAttempts } from "./programs.ts";

const PORT = 20_226;
const KUBELET_PORT = 10_250;
const METADATA: Place = { address: "169.254.169.254", port: 80 };
const START_MS = 60_000;
/** How long the pods may take to reach each other while no policy selects them. */
const CONTROL_MS = 15_000;
/** How long a network plugin may take to act on a label. */
const ENFORCE_MS = 30_000;
const EXEC_MS = 15_000;
const PAUSE_MS = 500;

/** What {@link probeNetwork} needs. */
interface ProbeParts {
  readonly api: Api;
  readonly pods: Pods;
  readonly warnings: PodWarnings;
  readonly facts: PodFacts;
  /** Any image with a shell. */
  readonly image: string;
  /** Returns a new pod name. */
  readonly newName: () => string;
  /** Removes a pod and waits until it is gone. Never rejects. */
  readonly remove: (name: string) => Promise<void>;
  readonly signal: AbortSignal;
}

/** The result for each network: undefined if its policy is enforced, else why it is not, or why that is unknown. */
export interface ProbeResult {
  readonly none: string | undefined;
  readonly egress: string | undefined;
  /** What could be reached without a policy, and not with one. */
  readonly tested: readonly string[];
}

interface Target extends Place {
  readonly what: string;
}

interface ProbePod {
  readonly name: string;
  readonly addresses: readonly string[];
  readonly node: string | undefined;
}

/**
 * Tests whether the cluster enforces the instance's policies, which must exist. Starts three pods that no policy
 * selects. They connect to each other, to the API server and to their nodes. Targets that they cannot reach prove
 * nothing, and are left out. Then two of the pods get the labels of sandboxes, and none of these connections must work
 * any more. Takes at most two minutes, and leaves nothing behind; {@link removeProbes} removes what a killed service
 * left behind.
 */
export async function probeNetwork(parts: ProbeParts): Promise<ProbeResult> {
  const names = [parts.newName(), parts.newName(), parts.newName()] as const;
  try {
    await parts.pods.follow(parts.signal);
    // Wait for all starts before removing any pod: a pod must not appear after its removal.
    const started = await Promise.allSettled(names.map((name) => start(parts, name)));
    const [peer, none, egress] = started.map((one) => {
      if (one.status === "rejected") throw one.reason;
      return one.value;
    }) as [ProbePod, ProbePod, ProbePod];
    const others = await targetsOf(parts, peer);
    const [toNone, toEgress] = [podTargets(none), podTargets(egress)];
    const reached = await untilReached(parts, { peer, none }, others, [...toNone, ...toEgress]);
    if (typeof reached === "string") return { none: reached, egress: reached, tested: [] };
    const { outward, inward } = reached;
    const check = async (
      pod: ProbePod,
      label: string,
      own: readonly Target[],
    ): Promise<string | undefined> => {
      await setLabel(parts, pod.name, label);
      const [out, into] = [outward, inward.filter((target) => own.includes(target))];
      return untilClosed(parts, { pod, peer, label }, out, into);
    };
    const [whyNone, whyEgress] = await Promise.all([
      check(none, "none", toNone),
      check(egress, "egress", toEgress),
    ]);
    return { none: whyNone, egress: whyEgress, tested: [...outward, ...inward].map(describe) };
  } catch (error) {
    throwIfAborted(parts.signal);
    if (!(error instanceof BerthError)) throw error;
    const why = `its test could not run: ${error.message}`;
    return { none: why, egress: why, tested: [] };
  } finally {
    await Promise.all(names.map((name) => parts.remove(name)));
  }
}

/** Removes probes that an earlier run of the instance's service left. */
export async function removeProbes(
  api: Api,
  instance: string,
  remove: (name: string) => Promise<void>,
): Promise<void> {
  const selector = `${INSTANCE_LABEL}=${instanceLabel(instance)},${ROLE_LABEL}=network-probe`;
  const query = new URLSearchParams({ labelSelector: selector, limit: "100" });
  const left = await api.call<V1PodList>("GET", `${api.path("pods")}?${query}`, "listing probes");
  await forEachConcurrently(left.items, ({ metadata }) => remove(metadata?.name ?? ""));
}

async function start(
  { api, pods, warnings, facts, image, signal }: ProbeParts,
  name: string,
): Promise<ProbePod> {
  const command = ["/bin/sh", "-c", listenScript(RUN_DIR, PORT)];
  const path = api.path("pods");
  const body = networkProbePod(name, image, command, facts);
  await api.call<V1Pod>("POST", path, "testing the network", { body });
  await untilStarted({ api, pods, warnings, timeoutMs: START_MS, signal }, name, image);
  for (const began = performance.now(); ; await sleep(PAUSE_MS, undefined, { signal })) {
    const { status } = await api.call<V1Pod>("GET", `${path}/${name}`, "testing the network", { signal });
    const addresses = (status?.podIPs ?? []).map(({ ip }) => ip ?? "").filter((ip) => isIP(ip));
    if (addresses.length > 0) return { name, addresses, node: status?.hostIP };
    if (performance.now() - began > START_MS)
      throw new BerthError("SANDBOX_START_FAILED", "A pod got no address.");
  }
}

function podTargets({ addresses }: ProbePod): Target[] {
  return addresses.map((address) => ({ what: "another pod", address, port: PORT }));
}

/** What a sandbox must not reach, in addition to other sandboxes. */
async function targetsOf(parts: ProbeParts, peer: ProbePod): Promise<Target[]> {
  const { api, signal } = parts;
  const print = 'printf "%s %s" "$KUBERNETES_SERVICE_HOST" "$KUBERNETES_SERVICE_PORT"';
  const { stdout } = await runPlain(api, peer.name, ["/bin/sh", "-c", print], within(signal));
  const [host = "", port] = stdout.split(" ");
  const { hostname, port: ownPort } = new URL(api.server);
  const servers = [
    { address: host, port: Number(port) },
    { address: hostname.replace(/^\[|\]$/g, ""), port: Number(ownPort || 443) },
  ];
  return [
    ...podTargets(peer),
    ...servers
      .filter(
        ({ address }, at) => isIP(address) && servers.findIndex((one) => one.address === address) === at,
      )
      .map((server) => ({ what: "the API server", ...server })),
    ...(peer.node === undefined ? [] : [{ what: "a node", address: peer.node, port: KUBELET_PORT }]),
    { what: "a metadata service", ...METADATA },
  ];
}

/**
 * Waits until pods that no policy selects reach what they should. Returns which of all targets they reach, or what is
 * missing.
 */
async function untilReached(
  parts: ProbeParts,
  { peer, none }: { readonly peer: ProbePod; readonly none: ProbePod },
  outward: readonly Target[],
  inward: readonly Target[],
): Promise<{ outward: Target[]; inward: Target[] } | string> {
  for (const began = performance.now(); ; await sleep(PAUSE_MS, undefined, { signal: parts.signal })) {
    const [out, into] = await Promise.all([attempt(parts, none, outward), attempt(parts, peer, inward)]);
    const reached = (targets: readonly Target[], attempts: readonly Attempt[]) =>
      targets.filter((_target, at) => attempts[at] === "connected");
    const found = { outward: reached(outward, out), inward: reached(inward, into) };
    const missing = [
      ...["another pod", "the API server"].filter(
        (what) => !found.outward.some((target) => target.what === what),
      ),
      ...(found.inward.length < inward.length ? ["every other pod"] : []),
    ];
    if (missing.length === 0) return found;
    if (performance.now() - began > CONTROL_MS) {
      return `its test proves nothing: a pod that no policy of Berth's selects did not reach ${missing.join(" and ")} either. Exempt pods with the label ${ROLE_LABEL}=network-probe from policies of your own.`;
    }
  }
}

/** Waits until a policy takes effect for a pod. Returns what it still reaches, or what still reaches it. */
async function untilClosed(
  parts: ProbeParts,
  { pod, peer, label }: { readonly pod: ProbePod; readonly peer: ProbePod; readonly label: string },
  outward: readonly Target[],
  inward: readonly Target[],
): Promise<string | undefined> {
  for (const began = performance.now(); ; await sleep(PAUSE_MS, undefined, { signal: parts.signal })) {
    const [out, into] = await Promise.all([attempt(parts, pod, outward), attempt(parts, peer, inward)]);
    const isClosed = [...out, ...into].every((one) => one === "blocked");
    if (isClosed && (await stillWorks(parts, { pod, peer }, outward))) return undefined;
    if (performance.now() - began <= ENFORCE_MS) continue;
    const open = [
      ...outward
        .filter((_target, at) => out[at] === "connected")
        .map((target) => `it reached ${describe(target)}`),
      ...inward.filter((_target, at) => into[at] === "connected").map(() => "another pod reached it"),
    ];
    if (open.length === 0) return "its test proves nothing: its pods do not answer any more.";
    return `the cluster does not enforce its network policy. A pod with the label ${NETWORK_LABEL}=${label} was tested: ${open.join(", ")}.`;
  }
}

/** Whether the targets that a pod cannot reach still work at all. */
async function stillWorks(
  parts: ProbeParts,
  { pod, peer }: { readonly pod: ProbePod; readonly peer: ProbePod },
  outward: readonly Target[],
): Promise<boolean> {
  const own = pod.addresses.map((address) => ({ what: "itself", address, port: PORT }));
  const found = await Promise.all([attempt(parts, peer, outward), attempt(parts, pod, own)]);
  return found.flat().every((one) => one === "connected");
}

async function attempt(parts: ProbeParts, pod: ProbePod, targets: readonly Target[]): Promise<Attempt[]> {
  if (targets.length === 0) return [];
  const command = ["/bin/sh", "-c", connectScript(RUN_DIR, targets)];
  const printed = await runPlain(parts.api, pod.name, command, within(parts.signal)).then(
    ({ stdout }) => stdout,
    () => "",
  );
  throwIfAborted(parts.signal);
  return readAttempts(printed, targets);
}

async function setLabel({ api, signal }: ProbeParts, name: string, label: string): Promise<void> {
  await api.call("PATCH", api.path(`pods/${name}`), "testing the network", {
    body: { metadata: { labels: { [NETWORK_LABEL]: label } } },
    contentType: "application/merge-patch+json",
    signal,
  });
}

function within(signal: AbortSignal): AbortSignal {
  return AbortSignal.any([signal, AbortSignal.timeout(EXEC_MS)]);
}

function describe({ what, address, port }: Target): string {
  return `${what} (${isIP(address) === 6 ? `[${address}]` : address}:${port})`;
}
