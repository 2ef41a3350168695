import { type Cidr, cidr, covers } from "../../../base/cidr.ts";
import { invalidArgument } from "../../../base/errors.ts";
import { GLOBAL_IPV6, NOT_PUBLIC_IPV4, NOT_PUBLIC_IPV6 } from "../../../base/public-address.ts";

/** The operator's settings for the addresses that sandboxes with EGRESS can reach. */
export interface EgressRanges {
  /** Private ranges to allow. Default none. */
  readonly egressCidrs?: readonly string[] | undefined;
  /** Ranges to deny, although they are public or within an allowed range. Default none. */
  readonly denyCidrs?: readonly string[] | undefined;
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
export function openRanges(options: EgressRanges, closed: readonly string[]): OpenRange[] {
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
