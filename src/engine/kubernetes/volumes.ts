import type { V1Pod, V1PodSpec, V1VolumeMount } from "@kubernetes/client-node";
import type { EngineMount, VolumeMount } from "../port.ts";

/** How many pods may have a claim at once: those of one node, of any, or one pod alone. */
export type VolumeAccessMode = "ReadWriteOnce" | "ReadWriteMany" | "ReadWriteOncePod";

/** What claims are made with. */
export interface ClaimOptions {
  readonly sizeBytes: number;
  /** Default: the cluster's default class. */
  readonly storageClass?: string | undefined;
  readonly accessMode: VolumeAccessMode;
  /** Whether the class makes claims as clones of others. */
  readonly clones: boolean;
  /** Of the pods in which the service works on volumes: it has `sh`, `tar`, `find`, `du` and their like. */
  readonly image: string;
}

/** Where {@link preparer} sees a volume. */
const PREPARER_ROOT = "/volumes";

/** The label of every pod with a claim, by which those of one claim come to one node. */
export function claimLabel(claim: string): string {
  return `claim.berth.dev/${claim}`;
}

export function volumeMountsOf(mounts: readonly EngineMount[]): VolumeMount[] {
  return mounts.filter((mount) => mount.kind === "volume");
}

/**
 * Adds claims to a pod. Of a claim that pods of one node alone may have, the scheduler brings all to one node.
 * @param accessMode of the claims.
 * @param near the claims that pods have already; by default any may be.
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

/** Makes directories, before the container starts, which only reads them and so cannot open them to its users. */
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
