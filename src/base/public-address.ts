import { BlockList, isIP } from "node:net";

/**
 * All IPv4 ranges that are not part of the public internet (RFC 6890): private, link-local (including the metadata
 * address), shared, reserved.
 */
export const NOT_PUBLIC_IPV4 = [
  "0.0.0.0/8",
  "10.0.0.0/8",
  "100.64.0.0/10",
  "127.0.0.0/8",
  "169.254.0.0/16",
  "172.16.0.0/12",
  "192.0.0.0/24",
  "192.0.2.0/24",
  "192.88.99.0/24",
  "192.168.0.0/16",
  "198.18.0.0/15",
  "198.51.100.0/24",
  "203.0.113.0/24",
  "224.0.0.0/4",
  "240.0.0.0/4",
];

/** All publicly routed IPv6 addresses. Outside are ::1, fc00::/7, fe80::/10, multicast and mapped IPv4 addresses. */
export const GLOBAL_IPV6 = "2000::/3";

/**
 * Special ranges within it: protocol assignments with Teredo, documentation, and 6to4, which can contain any IPv4
 * address.
 */
export const NOT_PUBLIC_IPV6 = ["2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20"];

const REFUSED = listOf([...NOT_PUBLIC_IPV4, ...NOT_PUBLIC_IPV6]);
const GLOBAL = listOf([GLOBAL_IPV6]);

/**
 * Whether an IP address belongs to the public internet, and not to a host itself, a private network or a cloud's
 * metadata service. False for anything that is not an address.
 */
export function isPublicAddress(address: string): boolean {
  switch (isIP(address)) {
    case 4:
      return !REFUSED.check(address, "ipv4");
    case 6:
      return GLOBAL.check(address, "ipv6") && !REFUSED.check(address, "ipv6");
    default:
      return false;
  }
}

function listOf(ranges: readonly string[]): BlockList {
  const list = new BlockList();
  for (const range of ranges) {
    const [network = "", bits] = range.split("/");
    list.addSubnet(network, Number(bits), isIP(network) === 6 ? "ipv6" : "ipv4");
  }
  return list;
}
