import { createHash } from "node:crypto";
import { isDeepStrictEqual } from "node:util";
import type { V1LabelSelector, V1NetworkPolicy, V1NetworkPolicySpec } from "@kubernetes/client-node";
import { addressCidr } from "../../../base/cidr.ts";
import { DEFAULT_DNS, INSTANCE_LABEL, instanceLabel, NETWORK_LABEL } from "../pod.ts";
import { type EgressRanges, openRanges } from "./ranges.ts";

/** The operator's settings for the network of sandboxes. */
export interface NetworkOptions extends EgressRanges {
  /**
   * Resolvers of sandboxes with EGRESS. They can be reached even if their range is closed. Default {@link DEFAULT_DNS}.
   */
  readonly egressDns?: readonly string[] | undefined;
}

/**
 * The policies of an instance. They select only its pods. NONE allows no connections. EGRESS allows none to the
 * sandbox, and from it those to resolvers and {@link openRanges}. The API server returns policies exactly as given.
 * @param closed the cluster's own addresses.
 * @throws `INVALID_ARGUMENT` for options that contradict each other.
 */
export function policiesOf(
  instance: string,
  options: NetworkOptions,
  closed: readonly string[],
): V1NetworkPolicy[] {
  const { egressDns = DEFAULT_DNS } = options;
  const ranges = openRanges(options, closed);
  const ports = [
    { protocol: "UDP", port: 53 },
    { protocol: "TCP", port: 53 },
  ];
  const egress: V1NetworkPolicySpec["egress"] = [
    { to: egressDns.map((address) => ({ ipBlock: { cidr: addressCidr(address) } })), ports },
    ...(ranges.length === 0
      ? []
      : [
          {
            to: ranges.map(({ cidr, except }) => ({
              ipBlock: { cidr, ...(except.length > 0 && { except: [...except] }) },
            })),
          },
        ]),
  ];
  return [policy(instance, "none", []), policy(instance, "egress", egress)];
}

function policy(instance: string, network: string, egress: V1NetworkPolicySpec["egress"]): V1NetworkPolicy {
  const labels = { [INSTANCE_LABEL]: instanceLabel(instance) };
  const hash = createHash("sha256").update(instance).digest("hex").slice(0, 32);
  return {
    apiVersion: "networking.k8s.io/v1",
    kind: "NetworkPolicy",
    metadata: {
      name: `berth-${hash}-${network}`,
      labels: { ...labels, "app.kubernetes.io/managed-by": "berth" },
    },
    spec: {
      podSelector: { matchLabels: { ...labels, [NETWORK_LABEL]: network } },
      policyTypes: ["Ingress", "Egress"],
      ingress: [],
      egress: egress ?? [],
    },
  };
}

/** Whether a policy is as it should be. */
export function isSame(found: V1NetworkPolicy, wanted: V1NetworkPolicy): boolean {
  const essence = ({ spec }: V1NetworkPolicy) => ({
    labels: Object.entries(spec?.podSelector?.matchLabels ?? {}).sort(),
    expressions: spec?.podSelector?.matchExpressions ?? [],
    types: [...(spec?.policyTypes ?? [])].sort(),
    // The API omits empty lists.
    ingress: spec?.ingress ?? [],
    egress: spec?.egress ?? [],
  });
  return isDeepStrictEqual(essence(found), essence(wanted));
}

/** Whether another policy allows traffic to or from pods with these labels. What several policies allow adds up. */
export function opens({ spec }: V1NetworkPolicy, labels: Readonly<Record<string, string>>): boolean {
  if (spec === undefined || !selects(spec.podSelector ?? {}, labels)) return false;
  return (spec.ingress ?? []).length > 0 || (spec.egress ?? []).length > 0;
}

function selects(selector: V1LabelSelector, labels: Readonly<Record<string, string>>): boolean {
  const { matchLabels = {}, matchExpressions = [] } = selector;
  return (
    Object.entries(matchLabels).every(([key, value]) => labels[key] === value) &&
    matchExpressions.every(({ key, operator, values = [] }) => {
      const value = labels[key];
      switch (operator) {
        case "In":
          return value !== undefined && values.includes(value);
        case "NotIn":
          return value === undefined || !values.includes(value);
        case "Exists":
          return value !== undefined;
        case "DoesNotExist":
          return value === undefined;
        default:
          // An unknown operator may select everything.
          return true;
      }
    })
  );
}
