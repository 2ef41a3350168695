import { describe, expect, test } from "vitest";
import { kubectl, NAMESPACE } from "../../support/kubernetes.ts";

/** What the engine needs from the cluster: resource, with its group if it has one, and the verbs. */
const NEEDED: readonly (readonly [resource: string, ...verbs: string[]])[] = [
  ["pods", "create", "get", "list", "watch", "patch", "delete"],
  ["pods/resize", "patch"],
  ["pods/exec", "get", "create"],
  ["events", "list", "watch"],
  ["persistentvolumeclaims", "create", "get", "list", "delete"],
  ["networkpolicies.networking.k8s.io", "create", "list", "update", "delete"],
  ["leases.coordination.k8s.io", "create", "get", "update"],
];

/** What would reach beyond sandboxes, by resource, verb and namespace. Empty namespace: the whole cluster. */
const DENIED: readonly (readonly [resource: string, verb: string, namespace: string])[] = [
  ["secrets", "get", NAMESPACE],
  ["secrets", "list", NAMESPACE],
  ["configmaps", "get", NAMESPACE],
  ["pods/log", "get", NAMESPACE],
  ["pods/ephemeralcontainers", "patch", NAMESPACE],
  ["pods/portforward", "create", NAMESPACE],
  ["pods", "deletecollection", NAMESPACE],
  ["serviceaccounts/token", "create", NAMESPACE],
  ["roles.rbac.authorization.k8s.io", "create", NAMESPACE],
  ["rolebindings.rbac.authorization.k8s.io", "create", NAMESPACE],
  ["leases.coordination.k8s.io", "delete", NAMESPACE],
  ["pods", "create", "default"],
  ["pods", "list", "kube-system"],
  ["pods/exec", "create", "kube-system"],
  ["pods", "list", ""],
  ["nodes", "list", ""],
  ["nodes/proxy", "get", ""],
  ["namespaces", "create", ""],
  ["persistentvolumes", "list", ""],
  ["runtimeclasses.node.k8s.io", "create", ""],
];

/** Whether Berth's service account may do this, according to the API server. */
async function permitted(resource: string, verb: string, namespace: string): Promise<boolean> {
  const [name = "", subresource] = resource.split("/");
  const [plural, ...group] = name.split(".");
  const attributes = { resource: plural, group: group.join("."), subresource, verb, namespace };
  const review = {
    apiVersion: "authorization.k8s.io/v1",
    kind: "SelfSubjectAccessReview",
    spec: { resourceAttributes: attributes },
  };
  const answer = await kubectl(["create", "--filename=-", "--output=json", "--validate=false"], {
    as: "berth",
    input: JSON.stringify(review),
  });
  return JSON.parse(answer).status.allowed;
}

interface Rule {
  readonly apiGroups: readonly string[];
  readonly resources: readonly string[];
  readonly verbs: readonly string[];
}

describe("the rights of deploy/kubernetes/rbac.yaml", () => {
  const needed = NEEDED.flatMap(([resource, ...verbs]) => verbs.map((verb) => [verb, resource] as const));

  test.each(needed)("permit %s %s", async (verb, resource) => {
    expect(await permitted(resource, verb, NAMESPACE)).toBe(true);
  });

  test.each(DENIED)("deny %s: %s in '%s'", async (resource, verb, namespace) => {
    expect(await permitted(resource, verb, namespace)).toBe(false);
  });

  test("permit nothing else beyond what every account has", async () => {
    const review = {
      apiVersion: "authorization.k8s.io/v1",
      kind: "SelfSubjectRulesReview",
      spec: { namespace: NAMESPACE },
    };
    const answer = await kubectl(["create", "--filename=-", "--output=json", "--validate=false"], {
      as: "berth",
      input: JSON.stringify(review),
    });
    const { resourceRules, incomplete } = JSON.parse(answer).status;
    expect(incomplete).toBe(false);
    const rights = (resourceRules as Rule[])
      .flatMap(({ apiGroups, resources, verbs }) =>
        apiGroups.flatMap((group) =>
          resources.flatMap((name) =>
            verbs.map((verb) => `${verb} ${group === "" ? name : `${name}.${group}`}`),
          ),
        ),
      )
      .filter((right) => !/^create selfsubject\w+\.(authorization|authentication)\.k8s\.io$/.test(right));
    expect(rights.sort()).toEqual(needed.map(([verb, resource]) => `${verb} ${resource}`).sort());
  });
});
