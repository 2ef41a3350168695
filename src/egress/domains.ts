import { isIP } from "node:net";
import { domainToASCII } from "node:url";

/** Ports for an entry without a port: those of HTTP and HTTPS. */
const WEB_PORTS: readonly number[] = [80, 443];

const MAX_NAME_CHARS = 253;
/** Characters allowed in a name before it is converted to the form that DNS uses. */
const NAME = /^[-\w.*\u0080-\u{10ffff}]+$/u;
const LABEL = /^(?!-)[a-z0-9_-]{1,63}(?<!-)$/;

/** An entry of `egress_domains`. */
export interface DomainRule {
  /** In lower case, without a wildcard. */
  readonly name: string;
  /** Whether it matches all names below `name`, but not `name` itself. */
  readonly below: boolean;
  readonly ports: readonly number[];
}

/**
 * Parses `example.org`, `*.example.org` or `example.org:8443`.
 * @returns text that says what is wrong, if it is none of these.
 */
export function parseDomainRule(text: string): DomainRule | string {
  const [, pattern = "", port] = /^([^:]*)(?::(\d{1,5}))?$/.exec(text) ?? [];
  if (port !== undefined && !(Number(port) >= 1 && Number(port) <= 65_535))
    return "its port is not between 1 and 65535";
  const below = pattern.startsWith("*.");
  // Limit the length first: the conversion takes time quadratic in it.
  const name =
    pattern.length <= MAX_NAME_CHARS && NAME.test(pattern)
      ? domainToASCII(below ? pattern.slice(2) : pattern)
      : "";
  if (isIP(name) !== 0 || text.includes("[")) return "it is an address; name a domain";
  if (pattern === "*") return "it allows everything: leave egress_domains empty for that";
  const labels = name.split(".");
  if (name.length > MAX_NAME_CHARS || labels.length < 2 || !labels.every((label) => LABEL.test(label)))
    return 'it is not a domain such as "example.org", "*.example.org" or "example.org:8443"';
  return { name, below, ports: port === undefined ? WEB_PORTS : [Number(port)] };
}

/** Whether a rule allows connections to a port of a host. The name must be in lower case. */
export function allows(rules: readonly DomainRule[], host: string, port: number): boolean {
  return rules.some(
    ({ name, below, ports }) => ports.includes(port) && (below ? host.endsWith(`.${name}`) : host === name),
  );
}
