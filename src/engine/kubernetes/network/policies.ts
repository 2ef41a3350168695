import { createHash } from "node:crypto";
import { isDeepStrictEqual } from "node:util";
import type { V1LabelSelector, V1NetworkPolicy, V1NetworkPolicySpec } from "@kubernetes/client-node";
import { addressCidr, type Cidr, cidr, covers } from "../../../base/cidr.ts";
import { invalidArgument } from "../../../base/errors.ts";
import { GLOBAL_IPV6, NOT_PUBLIC_IPV4, NOT_PUBLIC_IPV6 } from "../../../base/public-address.ts";
import { DEFAULT_DNS, INSTANCE_LABEL, instanceLabel, NETWORK_LABEL } from "../pod.ts";

/** The operator's settings for the network of sandboxes with EGRESS. */
export interface NetworkOptions {
  /** Private ranges to allow. Default none. */
  readonly egressCidrs?: readonly string[] | undefined;
  /** Ranges to deny, although they are public or within an allowed range. Default none. */
  readonly denyCidrs?: readonly string[] | undefined;
  /** Resolvers. They can be reached even if their range is closed. Default {@link DEFAULT_DNS}. */
  readonly egressDns?: readonly string[] | undefined;
}

/** Addresses of the machine itself or its link, including metadata services. No setting can allow these. */
const NEVER = [
  ...["0.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "224.0.0.0/4"],
  ...["::/96", "fe80::/10", "ff00::/8", "fd00:ec2::/32"],
  // Azure's metadata service, at an address that looks public.
  "168.63.129.16/32",
].map(cidr);

const PUBLIC = [
  { range: cidr("0.0.0.0/0"), without: NOT_PUBLIC_IPV4.map(cidr) },
  { range: cidr(GLOBAL_IPV6), without: NOT_PUBLIC_IPV6.map(cidr) },
];

/** A range that can be reached, except for some parts of it. */
interface OpenRange {
  readonly cidr: string;
  /** Each is within the range, and none is within another. */
  readonly except: readonly string[];
}

/**
 * What sandboxes with EGRESS can reach: the public internet and the ranges that the operator allows, except those that
 * the operator denies. If one range contains another, the smaller one takes precedence.
 * @param closed the cluster's own addresses, which are always closed.
 * @throws `INVALID_ARGUMENT` for ranges that contradict each other.
 */
export function openRanges(options: NetworkOptions, closed: readonly string[]): OpenRange[] {
  const allowed = (options.egressCidrs ?? []).map(cidr);
  const denied = (options.denyCidrs ?? []).map(cidr);
  const own = closed.map(cidr);
  for (const range of allowed) {
    const never = NEVER.find((one) => covers(one, range));
    if (never !== undefined)
      throw contradiction(range, `is a part of ${never.text}, which is closed to sandboxes for good`);
    if (denied.some(({ text }) => text === range.text))
      throw contradiction(range, "is also given with --deny-cidr");
    const taken = own.find((one) => covers(one, range));
    if (taken !== undefined) throw contradiction(range, `is an address of the cluster itself, ${taken.text}`);
  }
  const open = (range: Cidr, without: readonly Cidr[]): OpenRange[] => {
    if (without.some((one) => covers(one, range))) return [];
    return [{ cidr: range.text, except: largest(without.filter((one) => covers(range, one))) }];
  };
  return [
    ...PUBLIC.flatMap(({ range, without }) => open(range, [...without, ...NEVER, ...denied, ...own])),
    ...allowed.flatMap((range) =>
      open(range, [...NEVER, ...denied.filter((one) => !covers(one, range)), ...own]),
    ),
  ];
}

/** The ranges that no other range contains. */
function largest(ranges: readonly Cidr[]): string[] {
  return ranges
    .filter(
      (one, at) =>
        !ranges.some((other, place) => covers(other, one) && (other.text !== one.text || place < at)),
    )
    .map(({ text }) => text);
}

function contradiction({ text }: Cidr, problem: string): Error {
  return invalidArgument("egress-cidr", `--egress-cidr ${text} ${problem}`);
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
