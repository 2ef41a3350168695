import type { V1Affinity, V1Pod, V1PodSpec, V1VolumeMount } from "@kubernetes/client-node";
import type { EngineMount, VolumeMount } from "../port.ts";

/** Which pods may mount a claim at once: those on one node, those on any node, or a single pod. */
export type VolumeAccessMode = "ReadWriteOnce" | "ReadWriteMany" | "ReadWriteOncePod";

/** How claims are created. */
export interface ClaimOptions {
  readonly sizeBytes: number;
  /** Default: the cluster's default class. */
  readonly storageClass?: string | undefined;
  readonly accessMode: VolumeAccessMode;
  /** Whether the storage class can clone claims. */
  readonly clones: boolean;
  /**
   * The image of containers in which the service works on volumes. It must have `sh`, `tar`, `find`, `du` and similar
   * tools.
   */
  readonly image: string;
}

/** Where the preparer mounts volumes. */
const PREPARER_ROOT = "/volumes";

/** The label of every pod that mounts a claim. It is used to schedule pods with the same claim on the same node. */
export function claimLabel(claim: string): string {
  return `claim.berth.dev/${claim}`;
}

export function volumeMountsOf(mounts: readonly EngineMount[]): VolumeMount[] {
  return mounts.filter((mount) => mount.kind === "volume");
}

/**
 * Adds claims to a pod. If only pods on one node may mount a claim, the scheduler places all of its pods on one node.
 * @param options.others the pods that run. Default: none.
 * @param options.near the claims that other pods may have mounted. Default: all.
 */
export function addClaims(
  pod: V1Pod,
  mounts: readonly VolumeMount[],
  { accessMode, image }: Pick<ClaimOptions, "accessMode" | "image">,
  options: { readonly others?: Iterable<V1Pod>; readonly near?: readonly string[] } = {},
): void {
  const { metadata, spec } = pod;
  const [main] = spec?.containers ?? [];
  if (mounts.length === 0 || metadata === undefined || spec === undefined || main === undefined) return;
  const claims = [...new Set(mounts.map(({ volume }) => volume))];
  metadata.labels = {
    ...metadata.labels,
    ...Object.fromEntries(claims.map((claim) => [claimLabel(claim), ""])),
  };
  spec.volumes = [
    ...(spec.volumes ?? []),
    ...claims.map((claim, index) => ({
      name: nameOf(index),
      persistentVolumeClaim: { claimName: claim },
    })),
  ];
  const mountOf = ({ volume, directory, target, readOnly }: VolumeMount): V1VolumeMount => ({
    name: nameOf(claims.indexOf(volume)),
    mountPath: target,
    ...(directory !== "" && { subPath: directory }),
    readOnly,
  });
  main.volumeMounts = [...(main.volumeMounts ?? []), ...mounts.map(mountOf)];
  const unprepared = mounts.filter(({ readOnly, directory }) => readOnly && directory !== "");
  if (unprepared.length > 0) addPreparer(spec, claims, unprepared, image);
  const { near = claims, others = [] } = options;
  if (accessMode === "ReadWriteOnce") spec.affinity = withOthers(spec.affinity, near, others);
}

/**
 * Adds to an affinity that a pod has to be on the node of the pods with one of the claims. A term for pods covers also
 * those that have no node yet. But the scheduler counts only pods that match all terms, those of the operator too, and
 * ignores the terms if the new pod alone matches them. So with several terms the node itself is required as well, if it
 * is known.
 */
function withOthers(
  affinity: V1Affinity = {},
  claims: readonly string[],
  others: Iterable<V1Pod>,
): V1Affinity {
  const { podAffinity, nodeAffinity } = affinity;
  const operators = podAffinity?.requiredDuringSchedulingIgnoredDuringExecution ?? [];
  const terms = claims.map((claim) => ({
    labelSelector: { matchExpressions: [{ key: claimLabel(claim), operator: "Exists" }] },
    topologyKey: "kubernetes.io/hostname",
  }));
  const node = operators.length + claims.length > 1 ? nodeOf(claims, others) : undefined;
  const selector = nodeAffinity?.requiredDuringSchedulingIgnoredDuringExecution?.nodeSelectorTerms ?? [{}];
  const onNode = { key: "metadata.name", operator: "In", values: [node ?? ""] };
  return {
    ...affinity,
    ...(operators.length === 0 && {
      podAffinity: { ...podAffinity, requiredDuringSchedulingIgnoredDuringExecution: terms },
    }),
    ...(node !== undefined && {
      nodeAffinity: {
        ...nodeAffinity,
        requiredDuringSchedulingIgnoredDuringExecution: {
          // A node has to match one of these.
          nodeSelectorTerms: selector.map((term) => ({
            ...term,
            matchFields: [...(term.matchFields ?? []), onNode],
          })),
        },
      },
    }),
  };
}

/** The node of a pod that has one of the claims, unless it has ended or is being removed, which frees them. */
function nodeOf(claims: readonly string[], pods: Iterable<V1Pod>): string | undefined {
  for (const { metadata, spec, status } of pods) {
    const { labels = {}, deletionTimestamp } = metadata ?? {};
    if (deletionTimestamp !== undefined || /^(Succeeded|Failed)$/.test(status?.phase ?? "")) continue;
    if (spec?.nodeName !== undefined && claims.some((claim) => claimLabel(claim) in labels))
      return spec.nodeName;
  }
  return undefined;
}

/**
 * Creates the directories before the container starts. A read-only mount could not make them accessible to its users.
 * @param image the service's own, because no program of a sandbox may write there or see the rest of the volume.
 */
function addPreparer(
  spec: V1PodSpec,
  claims: readonly string[],
  mounts: readonly VolumeMount[],
  image: string,
): void {
  const [main] = spec.containers;
  if (main === undefined) return;
  const used = [...new Set(mounts.map(({ volume }) => claims.indexOf(volume)))];
  const script = `for d do [ -d "$d" ] || { mkdir "$d" && chmod 777 "$d"; } || exit; done`;
  spec.initContainers = [
    ...(spec.initContainers ?? []),
    {
      name: "berth-volumes",
      image,
      imagePullPolicy: main.imagePullPolicy,
      command: [
        ...["/bin/sh", "-c", script.replaceAll("$", "$$$$"), "sh"],
        ...mounts.map(({ volume, directory }) => `${PREPARER_ROOT}/${claims.indexOf(volume)}/${directory}`),
      ],
      securityContext: main.securityContext,
      resources: main.resources,
      // If it fails, the pod's status says why.
      terminationMessagePolicy: "FallbackToLogsOnError",
      volumeMounts: used.map((index) => ({
        name: nameOf(index),
        mountPath: `${PREPARER_ROOT}/${index}`,
      })),
    },
  ];
}

function nameOf(index: number): string {
  return `berth-claim-${index}`;
}
