import { isIP } from "node:net";

/** A range of IP addresses. */
export interface Cidr {
  /** In CIDR notation: `10.0.0.0/8`, `fc00::/7`. */
  readonly text: string;
  readonly family: 4 | 6;
  /** The number of leading bits that all its addresses share. */
  readonly prefix: number;
  readonly first: bigint;
}

/** Parses a range or a single address. Returns a text that says what is wrong if it is invalid. */
export function parseCidr(text: string): Cidr | string {
  const [address = "", bits, ...rest] = text.split("/");
  const family = isIP(address);
  if (family === 0 || rest.length > 0 || address.includes("%"))
    return `${JSON.stringify(text)} is not a range of addresses; write 10.0.0.0/8 or fd00::/8`;
  const width = family === 4 ? 32 : 128;
  const prefix = Number(bits ?? width);
  if ((bits !== undefined && !/^\d{1,3}$/.test(bits)) || prefix > width)
    return `${JSON.stringify(text)} has no prefix of 0 to ${width} bits`;
  const value = addressBits(address, family as 4 | 6);
  if (family === 6 && value >> 32n === 0xffffn)
    return `${JSON.stringify(text)} is an IPv4 address within IPv6; write it as an IPv4 one`;
  const hostBits = BigInt(width - prefix);
  const first = (value >> hostBits) << hostBits;
  const canonical = `${formatAddress(first, family as 4 | 6)}/${prefix}`;
  if (first !== value)
    return `${JSON.stringify(text)} has bits beyond its prefix; write ${canonical} or ${address}/${width}`;
  return { text: canonical, family: family as 4 | 6, prefix, first };
}

/** Parses a range that is known to be valid. @throws Error */
export function cidr(text: string): Cidr {
  const found = parseCidr(text);
  if (typeof found === "string") throw new Error(found);
  return found;
}

/** Whether a range contains another, or equals it. */
export function covers(outer: Cidr, inner: Cidr): boolean {
  if (outer.family !== inner.family || outer.prefix > inner.prefix) return false;
  const hostBits = BigInt((outer.family === 4 ? 32 : 128) - outer.prefix);
  return outer.first >> hostBits === inner.first >> hostBits;
}

/** The range of a single address. */
export function addressCidr(address: string): string {
  return cidr(`${address}/${isIP(address) === 6 ? 128 : 32}`).text;
}

/** An address's bytes in network order. */
export function addressBytes(address: string): Buffer {
  const family = isIP(address);
  if (family === 0) throw new Error(`${JSON.stringify(address)} is not an address`);
  const bits = addressBits(address, family as 4 | 6);
  return Buffer.from(bits.toString(16).padStart(family === 4 ? 8 : 32, "0"), "hex");
}

function addressBits(address: string, family: 4 | 6): bigint {
  if (family === 4) return address.split(".").reduce((bits, part) => (bits << 8n) | BigInt(part), 0n);
  // The last 32 bits may be written as an IPv4 address.
  const [, head = address, last] = /^(.*:)(\d+\.\d+\.\d+\.\d+)$/.exec(address) ?? [];
  const tail = last === undefined ? 0n : addressBits(last, 4);
  const text =
    last === undefined ? head : `${head}${(tail >> 16n).toString(16)}:${(tail & 0xffffn).toString(16)}`;
  const [left = "", right] = text.split("::");
  const groups = (part: string): string[] => (part === "" ? [] : part.split(":"));
  const [before, after] = [groups(left), groups(right ?? "")];
  const missing = right === undefined ? 0 : 8 - before.length - after.length;
  return [...before, ...Array<string>(missing).fill("0"), ...after].reduce(
    (bits, group) => (bits << 16n) | BigInt(`0x${group}`),
    0n,
  );
}

function formatAddress(bits: bigint, family: 4 | 6): string {
  if (family === 4) return [24n, 16n, 8n, 0n].map((shift) => (bits >> shift) & 0xffn).join(".");
  const groups = Array.from({ length: 8 }, (_, at) =>
    ((bits >> BigInt(112 - at * 16)) & 0xffffn).toString(16),
  );
  // A URL normalizes the address to its shortest form.
  return new URL(`http://[${groups.join(":")}]`).hostname.slice(1, -1);
}
