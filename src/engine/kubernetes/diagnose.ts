import { randomBytes } from "node:crypto";
import type {
  V1NetworkPolicy,
  V1NetworkPolicyList,
  V1Pod,
  V1SelfSubjectAccessReview,
  V1StorageClassList,
} from "@kubernetes/client-node";
import { forEachConcurrently } from "../../base/async.ts";
import type { Finding } from "../../base/diagnosis.ts";
import { BerthError } from "../../base/errors.ts";
import type { EngineSandboxSpec } from "../port.ts";
import { Api } from "./api.ts";
import { KubernetesEngine, type KubernetesEngineOptions } from "./engine.ts";
import { isRefusal, refusalOf } from "./errors.ts";
import { removeProbes } from "./network/probe.ts";
import { INSTANCE_LABEL, newPodName, privilegedPod, sandboxPod } from "./pod.ts";

const CALL_TIMEOUT_MS = 10_000;
/** Longer than a test of the network takes. */
const NETWORK_TIMEOUT_MS = 180_000;
/** The instance names of `berth doctor`. A service may have one that begins like them. */
const DOCTOR = /^doctor-[0-9a-f]{8}$/;
const LEFTOVER_MS = 10 * 60_000;
/**
 * How long a probe may take. A first pull can take minutes, which a doctor does not wait for. When the engine's own time
 * is over, its error says what the probe lacked, and the probe is gone; a signal would end the wait before that.
 */
const PROBE_TIMEOUTS = { startTimeoutMs: 90_000, pullTimeoutMs: 90_000 };

interface Right {
  readonly group: string;
  readonly resource: string;
  readonly verbs: readonly string[];
  /** What does not work without it; undefined: nothing works. */
  readonly without?: string;
}

/** The permissions that the engine needs. deploy/kubernetes/rbac.yaml grants them. */
const RIGHTS: readonly Right[] = [
  { group: "", resource: "pods", verbs: ["create", "get", "list", "watch", "delete"] },
  { group: "", resource: "pods/exec", verbs: ["get", "create"] },
  { group: "coordination.k8s.io", resource: "leases", verbs: ["create", "get", "update"] },
  {
    group: "",
    resource: "events",
    verbs: ["list", "watch"],
    without: "errors do not say why a pod does not start",
  },
  {
    group: "networking.k8s.io",
    resource: "networkpolicies",
    verbs: ["create", "list", "update", "delete"],
    without: "with --network-policy enforced, sandboxes are refused",
  },
  { group: "", resource: "pods", verbs: ["patch"], without: "the network of sandboxes cannot be tested" },
  { group: "", resource: "pods/resize", verbs: ["patch"], without: "limits of sandboxes cannot change" },
  {
    group: "",
    resource: "persistentvolumeclaims",
    verbs: ["create", "get", "list", "delete"],
    without: "there are no workspaces",
  },
];

/**
 * Checks whether a service with these options could use the cluster, up to running a pod of the default image for a
 * moment. Leaves nothing behind, and ends within timeouts.
 */
export async function diagnoseKubernetes(
  options: KubernetesEngineOptions,
  image: string,
): Promise<Finding[]> {
  let api: Api;
  try {
    api = await Api.open(options);
  } catch (error) {
    if (!(error instanceof BerthError)) throw error;
    return [
      {
        subject: "kubeconfig",
        status: "missing",
        found: error.message,
        fix: "Name one with --kubeconfig FILE",
      },
    ];
  }
  // A separate instance, so that it disturbs no service and no other doctor.
  const instance = `doctor-${randomBytes(4).toString("hex")}`;
  let engine: KubernetesEngine;
  try {
    engine = await KubernetesEngine.open({ ...PROBE_TIMEOUTS, ...options, instance, probeImage: image });
  } catch (error) {
    if (!(error instanceof BerthError)) throw error;
    return [{ subject: "network", status: "missing", found: error.message, fix: "berth serve --help" }];
  }
  try {
    const { version } = await engine.info();
    const found = `Kubernetes ${version} at ${api.server}, namespace ${api.namespace}`;
    const findings: Finding[] = [{ subject: "cluster", status: "ok", found }];
    findings.push(...(await diagnoseRights(api)));
    findings.push(await diagnosePodSecurity(api, { ...options, instance }, image));
    findings.push(...(await networkPolicy(engine, options, api)));
    if (options.runtimeClass !== undefined)
      findings.push(await diagnoseRuntimeClass(api, options.runtimeClass));
    if (options.volumes !== undefined)
      findings.push(await diagnoseStorageClass(api, options.volumes.storageClass));
    findings.push(await diagnosePod(engine, api, image));
    return findings;
  } catch (error) {
    if (!(error instanceof BerthError)) throw error;
    const rights = isRefusal(error, 403) ? await diagnoseRights(api).catch(() => []) : [];
    const fix = `Check it with: kubectl --namespace ${api.namespace} get pods`;
    return [{ subject: "cluster", status: "missing", found: error.message, fix }, ...rights];
  } finally {
    await engine.close();
    if (options.networkPolicy === "enforced") {
      await removeLeftovers(api, instance).catch(() => {});
      await engine.removePolicies().catch(() => {});
    }
  }
}

/**
 * Removes what killed doctors left behind, once it is old enough, by the API server's clock, that no doctor can still
 * be using it.
 */
export async function removeLeftovers(api: Api, instance: string): Promise<void> {
  const group = "apis/networking.k8s.io/v1";
  const timeoutMs = CALL_TIMEOUT_MS;
  const { items } = await api.call<V1NetworkPolicyList>(
    "GET",
    `${api.path("networkpolicies", group)}?labelSelector=${INSTANCE_LABEL}`,
    "listing network policies",
    { timeoutMs },
  );
  const instanceOf = ({ metadata }: V1NetworkPolicy): string => metadata?.labels?.[INSTANCE_LABEL] ?? "";
  const bornAt = ({ metadata }: V1NetworkPolicy): number =>
    Number(new Date(metadata?.creationTimestamp ?? 0));
  const own = items.find((one) => instanceOf(one) === instance);
  if (own === undefined) return;
  for (const left of items) {
    if (!DOCTOR.test(instanceOf(left)) || bornAt(own) - bornAt(left) < LEFTOVER_MS) continue;
    await removeProbes(api, instanceOf(left), async (name) => {
      await api.call("DELETE", api.path(`pods/${name}`), "removing a pod", { timeoutMs });
    });
    const path = api.path(`networkpolicies/${left.metadata?.name}`, group);
    await api.call("DELETE", path, "removing a network policy", { timeoutMs });
  }
}

/** Checks that the namespace accepts pods of sandboxes and refuses more privileged ones. Uses dry runs. */
async function diagnosePodSecurity(
  api: Api,
  options: KubernetesEngineOptions,
  image: string,
): Promise<Finding> {
  const subject = "pod security";
  const facts = { ...options, user: "", isolation: "CONTAINER" as const };
  const label = (level: string): string =>
    `kubectl label namespace ${api.namespace} pod-security.kubernetes.io/enforce=${level} --overwrite`;
  const refusal = async (pod: V1Pod): Promise<BerthError | undefined> => {
    const call = { body: pod, timeoutMs: CALL_TIMEOUT_MS };
    return api.call("POST", `${api.path("pods")}?dryRun=All`, "asking for a pod", call).then(
      () => undefined,
      (error: unknown) => {
        if (error instanceof BerthError && refusalOf(error) !== undefined) return error;
        throw error;
      },
    );
  };
  const refused = await refusal(sandboxPod(newPodName(), sampleSpec(image), facts));
  if (refused !== undefined) {
    const fix = refused.reason === "NOT_ALLOWED" || refused.reason === "SANDBOX_LIMIT";
    return {
      ...{ subject, status: "missing", found: refused.message },
      fix: fix ? fixOf(refused, api.namespace) : `kubectl --namespace ${api.namespace} get pods`,
    };
  }
  if ((await refusal(privilegedPod(newPodName(), image, facts))) !== undefined)
    return {
      subject,
      status: "ok",
      found: "the namespace takes sandboxes (level baseline) and refuses privileged pods",
    };
  return {
    ...{ subject, status: "limited", fix: label("baseline") },
    found: "the namespace takes privileged pods, so whoever has the service's rights there owns its nodes",
  };
}

function sampleSpec(image: string): EngineSandboxSpec {
  return {
    ...{
      sandboxId: "doctor",
      generation: 1,
      owner: "",
      image,
      env: {},
      workingDir: "/",
      user: "",
      runtime: "",
    },
    resources: { memoryBytes: 64 << 20, cpuMillis: 100, pidsLimit: 64, diskBytes: undefined },
    ...{ network: "NONE", mounts: [] },
  };
}

async function diagnoseRights(api: Api): Promise<Finding[]> {
  const missing = new Map<Right, string[]>();
  const asked = RIGHTS.flatMap((right) => right.verbs.map((verb) => ({ right, verb })));
  await forEachConcurrently(asked, async ({ right, verb }) => {
    const [resource, subresource] = right.resource.split("/");
    const attributes = { namespace: api.namespace, verb, group: right.group, resource, subresource };
    const review = await api.call<V1SelfSubjectAccessReview>(
      "POST",
      "apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
      "asking for its rights",
      {
        body: {
          apiVersion: "authorization.k8s.io/v1",
          kind: "SelfSubjectAccessReview",
          spec: { resourceAttributes: attributes },
        },
        timeoutMs: CALL_TIMEOUT_MS,
      },
    );
    if (!review.status?.allowed) missing.set(right, [...(missing.get(right) ?? []), verb]);
  });
  if (missing.size === 0)
    return [{ subject: "rights", status: "ok", found: `all in the namespace ${api.namespace}` }];
  return [...missing].map(([right, verbs]) => ({
    subject: `right: ${right.resource}`,
    status: right.without === undefined ? ("missing" as const) : ("limited" as const),
    found: `may not ${verbs.join(", ")}${right.without === undefined ? "" : `: ${right.without}`}`,
    fix: manifest(api.namespace, right, verbs),
  }));
}

/** A command that adds permissions to the Role of deploy/kubernetes/rbac.yaml. */
function manifest(namespace: string, { group, resource }: Right, verbs: readonly string[]): string {
  const rule = JSON.stringify({ apiGroups: [group], resources: [resource], verbs });
  return `kubectl --namespace ${namespace} patch role berth --type=json --patch '[{"op":"add","path":"/rules/-","value":${rule}}]'   # or all of them: deploy/kubernetes/rbac.yaml`;
}

async function networkPolicy(
  engine: KubernetesEngine,
  { networkPolicy: word }: KubernetesEngineOptions,
  api: Api,
): Promise<Finding[]> {
  const subject = "network";
  const fix =
    "berth serve --network-policy enforced   # with a network plugin that enforces NetworkPolicy, such as Cilium or Calico";
  switch (word) {
    case "enforced": {
      const problems = await engine.networkProblems(AbortSignal.timeout(NETWORK_TIMEOUT_MS));
      const repair = `kubectl --namespace ${api.namespace} get networkpolicies,pods\nberth serve --network-policy open   # where no network plugin enforces NetworkPolicy: sandboxes reach what pods reach`;
      const finding = (
        network: string,
        problem: string | undefined,
        status: "missing" | "limited",
      ): Finding =>
        problem === undefined
          ? {
              subject: `network ${network}`,
              status: "ok",
              found: "a test from inside a pod reached nothing that is closed",
            }
          : { subject: `network ${network}`, status, found: `refused: ${problem}`, fix: repair };
      return [finding("NONE", problems?.none, "missing"), finding("EGRESS", problems?.egress, "limited")];
    }
    case "open":
      return [{ subject, status: "limited", found: "open: sandboxes reach what pods reach", fix }];
    default:
      return [
        {
          subject,
          status: "missing",
          found:
            "it is not said whether NetworkPolicy is enforced, so sandboxes with the network NONE are refused",
          fix: `${fix}\nberth serve --network-policy open   # sandboxes reach what pods reach`,
        },
      ];
  }
}

async function diagnoseRuntimeClass(api: Api, name: string): Promise<Finding> {
  const subject = "runtime class";
  try {
    await api.call("GET", `apis/node.k8s.io/v1/runtimeclasses/${name}`, "looking for a runtime class", {
      timeoutMs: CALL_TIMEOUT_MS,
    });
    return { subject, status: "ok", found: name };
  } catch (error) {
    if (isRefusal(error, 403))
      return { subject, status: "ok", found: `${name}; the service may not look for it` };
    if (!isRefusal(error, 404)) throw error;
    const fix = `kubectl apply --filename=- <<'END'\napiVersion: node.k8s.io/v1\nkind: RuntimeClass\nmetadata: {name: ${name}}\nhandler: ${name}\nEND`;
    return { subject, status: "missing", found: `the cluster has no runtime class ${name}`, fix };
  }
}

const IS_DEFAULT = "storageclass.kubernetes.io/is-default-class";

/** Checks the storage class for workspaces: that of the options, or the cluster's default. */
async function diagnoseStorageClass(api: Api, wanted: string | undefined): Promise<Finding> {
  const subject = "storage class";
  const without = "so there are no workspaces";
  let classes: V1StorageClassList["items"];
  try {
    const path = "apis/storage.k8s.io/v1/storageclasses";
    const list = await api.call<V1StorageClassList>("GET", path, "looking for storage classes", {
      timeoutMs: CALL_TIMEOUT_MS,
    });
    classes = list.items;
  } catch (error) {
    if (!isRefusal(error, 403)) throw error;
    const found = `${wanted ?? "the cluster's default"}; the service may not look whether there is one: kubectl get storageclass`;
    return { subject, status: "ok", found };
  }
  const names = classes.map(({ metadata }) => metadata?.name ?? "");
  const isDefault = classes.filter(({ metadata }) => metadata?.annotations?.[IS_DEFAULT] === "true");
  const standard = isDefault.map(({ metadata }) => metadata?.name).join(", ");
  if (wanted !== undefined && names.includes(wanted))
    return { subject, status: "ok", found: `${wanted}; the cluster's default: ${standard || "none"}` };
  if (wanted === undefined && standard !== "")
    return { subject, status: "ok", found: `${standard}, the cluster's default` };
  const [first] = names;
  if (first === undefined) {
    const fix =
      "Install a provisioner with a storage class: https://kubernetes.io/docs/concepts/storage/storage-classes/";
    return { subject, status: "limited", found: `the cluster has none, ${without}`, fix };
  }
  const found = wanted === undefined ? "none is the cluster's default" : `the cluster has no class ${wanted}`;
  return {
    subject,
    status: "limited",
    found: `${found}, ${without}. It has ${names.join(", ")}`,
    fix: `berth serve --storage-class ${first}   # or: kubectl patch storageclass ${first} --patch '{"metadata":{"annotations":{"${IS_DEFAULT}":"true"}}}'`,
  };
}

async function diagnosePod(engine: KubernetesEngine, api: Api, image: string): Promise<Finding> {
  const subject = "probe pod";
  const began = performance.now();
  try {
    await engine.ensureImage(image, {});
    const seconds = ((performance.now() - began) / 1000).toFixed(1);
    return { subject, status: "ok", found: `a pod of ${image} ran after ${seconds} s` };
  } catch (error) {
    if (!(error instanceof BerthError)) throw error;
    return { subject, status: "missing", found: error.message, fix: fixOf(error, api.namespace) };
  }
}

function fixOf(error: BerthError, namespace: string): string {
  switch (error.reason) {
    case "NOT_ALLOWED":
      if (/denied (the )?request:/.test(error.message))
        return "kubectl get validatingadmissionpolicybindings,validatingwebhookconfigurations";
      if (/failed quota/.test(error.message))
        return `kubectl --namespace ${namespace} describe resourcequota`;
      if (error.message.includes("LimitRange")) return `kubectl --namespace ${namespace} describe limitrange`;
      return `kubectl label namespace ${namespace} pod-security.kubernetes.io/enforce=baseline --overwrite`;
    case "SANDBOX_LIMIT":
      return `kubectl --namespace ${namespace} describe resourcequota`;
    case "IMAGE_UNAVAILABLE":
      return "berth serve --default-image IMAGE   # one that the cluster's nodes can pull";
    default:
      return `kubectl --namespace ${namespace} get events --sort-by=.lastTimestamp`;
  }
}
