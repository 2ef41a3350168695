import { createHash, randomBytes } from "node:crypto";
import type {
  V1Container,
  V1ContainerStatus,
  V1Pod,
  V1PodSpec,
  V1ResourceRequirements,
} from "@kubernetes/client-node";
import {
  type EngineSandbox,
  type EngineSandboxEnd,
  type EngineSandboxSpec,
  type IsolationLevel,
  type Resources,
  readIsolation,
} from "../port.ts";
import { disruptionOf } from "./disruption.ts";
import { LIMITS, PROBE_COMMAND, RUN_DIR } from "./scripts.ts";
import { addClaims, type ClaimOptions, volumeMountsOf } from "./volumes.ts";

/** Name of a sandbox's container in its pod. A template may add others. */
export const CONTAINER = "main";

/** The label of every object of a Berth service; its value stands for the instance. */
export const INSTANCE_LABEL = "berth.dev/instance";
/** Whether a pod is a `sandbox`, a `probe` of an image, or a `network-probe`. */
export const ROLE_LABEL = "berth.dev/role";
/** A sandbox's network, for network policies: `none` or `egress`. */
export const NETWORK_LABEL = "berth.dev/network";

/**
 * What Berth must know about a sandbox without the store. In annotations, because labels are limited to few characters.
 */
const ANNOTATION = {
  sandboxId: "berth.dev/sandbox-id",
  generation: "berth.dev/generation",
  owner: "berth.dev/owner",
  user: "berth.dev/user",
  isolation: "berth.dev/isolation",
} as const;

/** The capabilities that root inside needs to run package managers. PodSecurity's level `baseline` allows them. */
const CAPABILITIES = ["CHOWN", "DAC_OVERRIDE", "FOWNER", "SETUID", "SETGID", "KILL"];

/**
 * Resolvers of sandboxes with EGRESS. Public ones, as on Docker, because a cluster's own resolver has a private
 * address.
 */
export const DEFAULT_DNS: readonly string[] = ["1.1.1.1", "8.8.8.8"];

/** The share of a sandbox's limits that the scheduler reserves: most sandboxes are idle most of the time. */
const RESERVED_CPU = 0.1;
const RESERVED_MEMORY = 0.25;

/** The operator's settings for pods. */
export interface PodOptions {
  /** Labels of the nodes that may run sandboxes. Default: any node. */
  readonly nodeSelector?: Readonly<Record<string, string>> | undefined;
  /** Taints of nodes that sandboxes tolerate. Default none. */
  readonly tolerations?: V1PodSpec["tolerations"];
  /** Default: the cluster's default runtime. */
  readonly runtimeClass?: string | undefined;
  /** Names of secrets in the namespace. Default none. */
  readonly imagePullSecrets?: readonly string[] | undefined;
  /** A pod whose fields apply where Berth sets none. */
  readonly template?: V1Pod | undefined;
  /** Whether the cluster enforces NetworkPolicy; {@link NetworkPolicyWord}. */
  readonly networkPolicy?: "enforced" | "open" | undefined;
  /** Resolvers of sandboxes with EGRESS. Default {@link DEFAULT_DNS}. */
  readonly egressDns?: readonly string[] | undefined;
}

/** What {@link sandboxPod} needs in addition to the spec. */
export interface PodFacts extends PodOptions {
  readonly instance: string;
  /** The default user of commands; empty: root. */
  readonly user: string;
  readonly isolation: IsolationLevel;
  /** Default: no volumes. */
  readonly volumes?: ClaimOptions | undefined;
}

/** What separates code in a pod from the rest of the cluster. */
export type IsolationSpec = Pick<EngineSandboxSpec, "network" | "runtime">;

/** The value for an instance in labels, which allow fewer characters than an instance may have. */
export function instanceLabel(instance: string): string {
  if (/^[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$/.test(instance)) return instance;
  return createHash("sha256").update(instance).digest("hex").slice(0, 32);
}

/** A name that no pod has had before. */
export function newPodName(): string {
  return `berth-${BigInt(`0x${randomBytes(10).toString("hex")}`)
    .toString(36)
    .padStart(16, "0")}`;
}

/** A pod that PodSecurity's level `baseline` must refuse, because it asks for more. */
export function privilegedPod(name: string, image: string, facts: PodFacts): V1Pod {
  const pod = berthPod(name, "probe", facts, {
    name: CONTAINER,
    image,
    securityContext: { privileged: true },
  });
  return { ...pod, spec: { ...pod.spec, containers: pod.spec?.containers ?? [], hostNetwork: true } };
}

/**
 * A sandbox's pod with its hardening, merged over the operator's template.
 * @param others the instance's pods, which may have mounted the same claims.
 */
export function sandboxPod(
  name: string,
  spec: EngineSandboxSpec,
  facts: PodFacts,
  others: Iterable<V1Pod> = [],
): V1Pod {
  const pod = berthPod(name, "sandbox", facts, {
    name: CONTAINER,
    image: spec.image,
    command: ["/bin/sh", "-c", literal(MAIN)],
    env: Object.entries(spec.env).map(([key, value]) => ({ name: key, value: literal(value) })),
    // The main process waits for input that never comes.
    stdin: true,
    securityContext: { ...HARDENED, runAsUser: 0, runAsGroup: 0 },
    resources: podResources(spec.resources),
    volumeMounts: [{ name: "berth", mountPath: RUN_DIR }],
  });
  const { metadata, spec: podSpec } = pod as Required<V1Pod>;
  metadata.annotations = {
    ...metadata.annotations,
    [ANNOTATION.sandboxId]: spec.sandboxId,
    [ANNOTATION.generation]: String(spec.generation),
    [ANNOTATION.owner]: spec.owner,
    [ANNOTATION.user]: facts.user,
    [ANNOTATION.isolation]: facts.isolation,
  };
  podSpec.volumes = [...(podSpec.volumes ?? []), SCRIPTS];
  if (facts.volumes !== undefined) addClaims(pod, volumeMountsOf(spec.mounts), facts.volumes, { others });
  return isolate(pod, spec, facts);
}

/** Gives a pod a sandbox's network and runtime. */
function isolate(pod: V1Pod, { network, runtime }: IsolationSpec, facts: PodFacts): V1Pod {
  const { metadata, spec } = pod as Required<V1Pod>;
  metadata.labels = { ...metadata.labels, [NETWORK_LABEL]: network.toLowerCase() };
  if (runtime !== "") spec.runtimeClassName = runtime;
  if (facts.networkPolicy === "enforced") {
    // Without a network, look-ups then fail at once. The cluster's own resolver would reveal its names to the sandbox.
    const nameservers = network === "NONE" ? ["127.0.0.1"] : (facts.egressDns ?? DEFAULT_DNS);
    Object.assign(spec, { dnsPolicy: "None", dnsConfig: { nameservers: [...nameservers] } });
  }
  return pod;
}

/** The labels of the pods that run a caller's image with the network NONE. */
export function labelsOfNone({ template, instance }: PodFacts): Record<string, string>[] {
  return ["sandbox", "probe"].map((role) => ({
    ...template?.metadata?.labels,
    ...ownLabels(instance, role),
    [NETWORK_LABEL]: "none",
  }));
}

/** A pod for a test of the network. None of Berth's network policies selects it. */
export function networkProbePod(
  name: string,
  image: string,
  command: readonly string[],
  facts: PodFacts,
): V1Pod {
  const pod = berthPod(name, "network-probe", facts, {
    name: CONTAINER,
    image,
    command: command.map(literal),
    securityContext: { ...HARDENED, runAsUser: 0, runAsGroup: 0 },
    resources: { requests: { cpu: "10m", memory: "16Mi" }, limits: { cpu: "500m", memory: "64Mi" } },
    volumeMounts: [{ name: "berth", mountPath: RUN_DIR }],
  });
  const { metadata, spec } = pod as Required<V1Pod>;
  delete metadata.labels?.[NETWORK_LABEL];
  // For the case that the service ends meanwhile and never comes back.
  spec.activeDeadlineSeconds = 300;
  spec.volumes = [
    ...(spec.volumes ?? []),
    { name: "berth", emptyDir: { medium: "Memory", sizeLimit: "1Mi" } },
  ];
  return pod;
}

/** A pod for the service's own work in any role: as root, without a network. */
export function workPod(name: string, role: string, image: string, facts: PodFacts): V1Pod {
  const pod = berthPod(name, role, facts, {
    name: CONTAINER,
    image,
    command: ["/bin/sh", "-c", literal(MAIN)],
    stdin: true,
    securityContext: { ...HARDENED, runAsUser: 0, runAsGroup: 0 },
    resources: { requests: { cpu: "50m", memory: "64Mi" }, limits: { cpu: "1", memory: "512Mi" } },
    volumeMounts: [{ name: "berth", mountPath: RUN_DIR }],
  });
  const { spec } = pod as Required<V1Pod>;
  spec.volumes = [...(spec.volumes ?? []), SCRIPTS];
  // Nothing else ends the pod if the service never comes back.
  spec.activeDeadlineSeconds = WORK_SECONDS;
  return isolate(pod, { network: "NONE", runtime: "" }, facts);
}

/** Holds the scripts and the program that start processes. In memory, because a node's disk may be full. */
const SCRIPTS = { name: "berth", emptyDir: { medium: "Memory", sizeLimit: "1Mi" } };
const WORK_SECONDS = 12 * 3600;

/**
 * A pod that runs once as the image's user, and reports that user in its termination message. The programs that it runs
 * are the image's own, so it is isolated like a sandbox.
 * @param timeoutMs how long the service waits for it.
 */
export function probePod(
  name: string,
  image: string,
  sandbox: IsolationSpec,
  timeoutMs: number,
  facts: PodFacts,
): V1Pod {
  const pod = berthPod(name, "probe", facts, {
    name: CONTAINER,
    image,
    command: PROBE_COMMAND.map(literal),
    securityContext: HARDENED,
    resources: { requests: { cpu: "10m", memory: "16Mi" }, limits: { cpu: "500m", memory: "64Mi" } },
  });
  // Nothing else ends the image's programs if the service never comes back.
  (pod as Required<V1Pod>).spec.activeDeadlineSeconds = Math.ceil(timeoutMs / 1000);
  return isolate(pod, sandbox, facts);
}

/**
 * The main process: a read that SIGTERM ends at once, and that needs no other process. If someone attaches to the pod
 * and detaches, its stdin ends; then it stops itself.
 */
const MAIN = `${LIMITS} while read -r x; do :; done; while :; do kill -STOP $$; done`;

const HARDENED: V1Container["securityContext"] = {
  allowPrivilegeEscalation: false,
  privileged: false,
  capabilities: { drop: ["ALL"], add: CAPABILITIES },
  seccompProfile: { type: "RuntimeDefault" },
};

function ownLabels(instance: string, role: string): Record<string, string> {
  return {
    "app.kubernetes.io/managed-by": "berth",
    [INSTANCE_LABEL]: instanceLabel(instance),
    [ROLE_LABEL]: role,
  };
}

function berthPod(name: string, role: string, facts: PodFacts, container: V1Container): V1Pod {
  const { template, nodeSelector, tolerations, runtimeClass, imagePullSecrets } = facts;
  const { metadata, spec } = template ?? {};
  const [own, others] = divide(spec?.containers);
  return {
    apiVersion: "v1",
    kind: "Pod",
    metadata: {
      ...(metadata?.annotations && { annotations: metadata.annotations }),
      name,
      labels: { ...metadata?.labels, ...ownLabels(facts.instance, role) },
    },
    spec: {
      ...spec,
      ...((nodeSelector || spec?.nodeSelector) && {
        nodeSelector: { ...spec?.nodeSelector, ...nodeSelector },
      }),
      ...((tolerations || spec?.tolerations) && {
        tolerations: [...(spec?.tolerations ?? []), ...(tolerations ?? [])],
      }),
      ...(runtimeClass !== undefined && { runtimeClassName: runtimeClass }),
      ...(imagePullSecrets?.length && {
        imagePullSecrets: imagePullSecrets.map((secret) => ({ name: secret })),
      }),
      restartPolicy: "Never",
      // Useless or dangerous for code in a sandbox.
      automountServiceAccountToken: false,
      enableServiceLinks: false,
      hostNetwork: false,
      hostPID: false,
      hostIPC: false,
      // The pod's first process then reaps orphans, and signals can end the main process.
      shareProcessNamespace: true,
      terminationGracePeriodSeconds: 1,
      containers: [
        {
          imagePullPolicy: "IfNotPresent",
          ...own,
          ...container,
          env: [...(own?.env ?? []), ...(container.env ?? [])],
          volumeMounts: [...(own?.volumeMounts ?? []), ...(container.volumeMounts ?? [])],
        },
        ...others,
      ],
    },
  };
}

/** The template's fields for Berth's container, and its other containers. */
function divide(containers: readonly V1Container[] = []): [V1Container | undefined, V1Container[]] {
  return [
    containers.find(({ name }) => name === CONTAINER),
    containers.filter(({ name }) => name !== CONTAINER),
  ];
}

/** Escapes text, because Kubernetes replaces `$(NAME)` with a variable and `$$` with `$`. */
function literal(text: string): string {
  return text.replaceAll("$", "$$$$");
}

/** A container's limits, and the part that the scheduler reserves. The kubelet limits the number of processes. */
export function podResources({
  memoryBytes,
  cpuMillis,
  diskBytes,
}: Resources): Required<Pick<V1ResourceRequirements, "requests" | "limits">> {
  const disk: Record<string, string> =
    diskBytes === undefined ? {} : { "ephemeral-storage": String(diskBytes) };
  return {
    requests: {
      cpu: `${Math.ceil(cpuMillis * RESERVED_CPU)}m`,
      memory: String(Math.ceil(memoryBytes * RESERVED_MEMORY)),
    },
    limits: { cpu: `${cpuMillis}m`, memory: String(memoryBytes), ...disk },
  };
}

/** The ref of a pod: its name, and its uid, which no other pod with that name has. */
export function refOf(pod: V1Pod): string {
  return `${pod.metadata?.name}.${pod.metadata?.uid}`;
}

/** The name and the uid in a ref. */
export function parseRef(ref: string): { readonly name: string; readonly uid: string } {
  const dot = ref.indexOf(".");
  return dot < 0 ? { name: ref, uid: "" } : { name: ref.slice(0, dot), uid: ref.slice(dot + 1) };
}

/** The status of Berth's container. */
export function containerStatus(pod: V1Pod): V1ContainerStatus | undefined {
  return pod.status?.containerStatuses?.find(({ name }) => name === CONTAINER);
}

/** The status of the container for which a pod waits: Berth's own, or one that has to end before it. */
export function waitingStatus(pod: V1Pod): V1ContainerStatus | undefined {
  const { initContainerStatuses = [] } = pod.status ?? {};
  return (
    // The others wait for it, with this reason.
    initContainerStatuses.find(({ state }) => state?.waiting && state.waiting.reason !== "PodInitializing") ??
    containerStatus(pod)
  );
}

/**
 * How a sandbox's main process, or its pod, ended; undefined while it runs or has not started yet. A pod that
 * Kubernetes is ending counts as ended, because nothing can keep it.
 */
export function endOf(pod: V1Pod): EngineSandboxEnd | undefined {
  const terminated = containerStatus(pod)?.state?.terminated;
  const { phase, reason, message } = pod.status ?? {};
  const disruption = disruptionOf(pod);
  if (disruption !== undefined)
    return { exitCode: terminated?.exitCode ?? 137, outOfMemory: false, ...disruption };
  if (terminated === undefined && phase !== "Failed" && phase !== "Succeeded") return undefined;
  const deleted = pod.metadata?.deletionTimestamp === undefined ? undefined : "its pod was deleted";
  const why = reason ?? (terminated?.reason === "Error" ? deleted : terminated?.reason);
  const words = [why, message ?? terminated?.message].filter((text) => text).join(": ");
  return {
    exitCode: terminated?.exitCode ?? 137,
    outOfMemory: terminated?.reason === "OOMKilled",
    ...(why !== undefined &&
      why !== "OOMKilled" &&
      why !== "Completed" && { cause: words.slice(0, 500).trim() }),
  };
}

/** A sandbox as described by its pod. Missing values get the most cautious default. */
export function describePod(pod: V1Pod): EngineSandbox {
  const { annotations = {} } = pod.metadata ?? {};
  const end = endOf(pod);
  return {
    ref: refOf(pod),
    sandboxId: annotations[ANNOTATION.sandboxId] ?? "",
    generation: Number(annotations[ANNOTATION.generation] ?? 0),
    owner: annotations[ANNOTATION.owner] ?? "",
    state: end === undefined ? "running" : "ended",
    isolation: readIsolation(annotations[ANNOTATION.isolation] ?? ""),
    user: annotations[ANNOTATION.user] ?? "",
    ...(end && { end }),
  };
}
