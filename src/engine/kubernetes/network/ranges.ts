import { type Cidr, cidr, covers } from "../../../base/cidr.ts";
import { invalidArgument } from "../../../base/errors.ts";
import { GLOBAL_IPV6, NOT_PUBLIC_IPV4, NOT_PUBLIC_IPV6 } from "../../../base/public-address.ts";

/** What an operator says of the addresses that sandboxes with EGRESS reach. */
export interface EgressRanges {
  /** Reached although they are private. Default none. */
  readonly egressCidrs?: readonly string[] | undefined;
  /** Not reached although they are public, or within a range above. Default none. */
  readonly denyCidrs?: readonly string[] | undefined;
}

/** Of a machine itself or its link, metadata services among them: no operator can open these. */
const NEVER = [
  ...["0.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "224.0.0.0/4"],
  ...["::/96", "fe80::/10", "ff00::/8", "fd00:ec2::/32"],
  // Azure's, at an address that looks public.
  "168.63.129.16/32",
].map(cidr);

const PUBLIC = [
  { range: cidr("0.0.0.0/0"), without: NOT_PUBLIC_IPV4.map(cidr) },
  { range: cidr(GLOBAL_IPV6), without: NOT_PUBLIC_IPV6.map(cidr) },
];

/** A range that is reached, without some parts of it. */
export interface OpenRange {
  readonly cidr: string;
  /** Each is a part of the range, and none of another. */
  readonly except: readonly string[];
}

/**
 * What sandboxes with EGRESS reach: the public internet and the ranges that an operator opens, without those that the
 * operator denies. Of two ranges of which one is a part of the other, the smaller one counts.
 * @param closed addresses of the cluster's own, closed whatever else is open.
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

/** Those that are part of no other. */
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
