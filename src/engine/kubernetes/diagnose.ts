import type { V1SelfSubjectAccessReview, V1StorageClassList } from "@kubernetes/client-node";
import { forEachConcurrently } from "../../base/async.ts";
import type { Finding } from "../../base/diagnosis.ts";
import { BerthError } from "../../base/errors.ts";
import { Api } from "./api.ts";
import { KubernetesEngine, type KubernetesEngineOptions } from "./engine.ts";
import { isRefusal } from "./errors.ts";

const CALL_TIMEOUT_MS = 10_000;

/** A right that the service needs. */
interface Right {
  readonly group: string;
  readonly resource: string;
  readonly verbs: readonly string[];
  /** What does not work without it; undefined: nothing does. */
  readonly without?: string;
}

/** What the engine calls; deploy/kubernetes/rbac.yaml grants it. */
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
  { group: "", resource: "pods/resize", verbs: ["patch"], without: "limits of sandboxes cannot change" },
  {
    group: "",
    resource: "persistentvolumeclaims",
    verbs: ["create", "get", "list", "watch", "delete"],
    without: "there are no workspaces",
  },
];

/**
 * Checks a cluster as a service with these options would find it, up to a pod of the default image that runs for a
 * moment. Leaves nothing behind, and ends in time.
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
  const engine = await KubernetesEngine.open(options);
  try {
    const { version } = await engine.info(AbortSignal.timeout(CALL_TIMEOUT_MS));
    const found = `Kubernetes ${version} at ${api.server}, namespace ${api.namespace}`;
    const findings: Finding[] = [{ subject: "cluster", status: "ok", found }];
    findings.push(...(await diagnoseRights(api)));
    findings.push(networkPolicy(options));
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
  }
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

/** Adds rights to the Role of deploy/kubernetes/rbac.yaml. */
function manifest(namespace: string, { group, resource }: Right, verbs: readonly string[]): string {
  const rule = JSON.stringify({ apiGroups: [group], resources: [resource], verbs });
  return `kubectl --namespace ${namespace} patch role berth --type=json --patch '[{"op":"add","path":"/rules/-","value":${rule}}]'   # or all of them: deploy/kubernetes/rbac.yaml`;
}

function networkPolicy({ networkPolicy: word }: KubernetesEngineOptions): Finding {
  const subject = "network";
  const fix =
    "berth serve --network-policy enforced   # with a network plugin that enforces NetworkPolicy, such as Cilium or Calico";
  switch (word) {
    case "enforced":
      return { subject, status: "ok", found: "the operator says that NetworkPolicy is enforced" };
    case "open":
      return { subject, status: "limited", found: "open: sandboxes reach what pods reach", fix };
    default:
      return {
        subject,
        status: "missing",
        found:
          "it is not said whether NetworkPolicy is enforced, so sandboxes with the network NONE are refused",
        fix: `${fix}\nberth serve --network-policy open   # sandboxes reach what pods reach`,
      };
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

/** Whether workspaces have a storage class: the one of the options, or the cluster's default. */
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

/** How long a probe may take: a first pull takes minutes, which a doctor does not wait for. */
const PROBE_TIMEOUT_MS = 90_000;

async function diagnosePod(engine: KubernetesEngine, api: Api, image: string): Promise<Finding> {
  const subject = "probe pod";
  const began = performance.now();
  try {
    await engine.ensureImage(image, { signal: AbortSignal.timeout(PROBE_TIMEOUT_MS) });
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
