import type { V1Pod, V1PodSpec, V1VolumeMount } from "@kubernetes/client-node";
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
   * The image of pods in which the service works on volumes. It must have `sh`, `tar`, `find`, `du` and similar tools.
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
 * @param accessMode the access mode of the claims.
 * @param near the claims that other pods may have mounted. Default: all.
 */
export function addClaims(
  pod: V1Pod,
  mounts: readonly VolumeMount[],
  accessMode: VolumeAccessMode,
  near?: readonly string[],
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
  if (unprepared.length > 0) addPreparer(spec, claims, unprepared);
  if (accessMode === "ReadWriteOnce") {
    const terms = (near ?? claims).map((claim) => ({
      labelSelector: { matchExpressions: [{ key: claimLabel(claim), operator: "Exists" }] },
      topologyKey: "kubernetes.io/hostname",
    }));
    const { affinity } = spec;
    const required = affinity?.podAffinity?.requiredDuringSchedulingIgnoredDuringExecution ?? [];
    spec.affinity = {
      ...affinity,
      podAffinity: {
        ...affinity?.podAffinity,
        requiredDuringSchedulingIgnoredDuringExecution: [...required, ...terms],
      },
    };
  }
}

/**
 * Creates the directories before the container starts. A read-only mount could not make them accessible to its users.
 */
function addPreparer(spec: V1PodSpec, claims: readonly string[], mounts: readonly VolumeMount[]): void {
  const [main] = spec.containers;
  if (main === undefined) return;
  const used = [...new Set(mounts.map(({ volume }) => claims.indexOf(volume)))];
  const script = `for d do [ -d "$d" ] || { mkdir "$d" && chmod 777 "$d"; } || exit; done`;
  spec.initContainers = [
    ...(spec.initContainers ?? []),
    {
      name: "berth-volumes",
      image: main.image,
      imagePullPolicy: main.imagePullPolicy,
      command: [
        ...["/bin/sh", "-c", script.replaceAll("$", "$$$$"), "sh"],
        ...mounts.map(({ volume, directory }) => `${PREPARER_ROOT}/${claims.indexOf(volume)}/${directory}`),
      ],
      securityContext: main.securityContext,
      resources: main.resources,
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
