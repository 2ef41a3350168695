import { readFileSync } from "node:fs";
import { parseAllDocuments } from "yaml";
import { eventually } from "./eventually.ts";
import { kubectl, NAMESPACE } from "./kubernetes.ts";

interface Manifest {
  kind: string;
  metadata: { name: string; namespace?: string };
  subjects?: { namespace: string }[];
}

/**
 * Creates a namespace like that of deploy/kubernetes, with the same service account and rights. Remove it with {@link
 * removeNamespace}.
 * @param level its PodSecurity level.
 */
export async function makeNamespace(name: string, level = "baseline"): Promise<void> {
  const read = (file: string): Manifest[] =>
    parseAllDocuments(readFileSync(new URL(`../../deploy/kubernetes/${file}`, import.meta.url), "utf8")).map(
      (document) => document.toJS() as Manifest,
    );
  const rights = read("rbac.yaml").filter(({ kind }) => kind !== "ServiceAccount");
  for (const { metadata } of rights) metadata.namespace = name;
  const namespace = {
    apiVersion: "v1",
    kind: "Namespace",
    metadata: { name, labels: { "pod-security.kubernetes.io/enforce": level } },
  };
  const list = { apiVersion: "v1", kind: "List", items: [namespace, ...rights] };
  await kubectl(["create", "--filename=-"], { input: JSON.stringify(list) });
  await eventually(() =>
    kubectl(["get", "serviceaccount", "default", `--namespace=${name}`]).catch(() => undefined),
  );
  if (name === NAMESPACE) throw new Error("that one is everybody's");
}

export async function removeNamespace(name: string): Promise<void> {
  await kubectl(["delete", "namespace", name, "--ignore-not-found", "--wait=false"]);
}
