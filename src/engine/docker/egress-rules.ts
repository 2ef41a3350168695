/** Name of the bridge's interface on the host, by which the rules know its traffic. */
export const EGRESS_BRIDGE = "berth0";

const CHAIN = "BERTH-EGRESS";

/** Every IPv4 range that is not the public internet (RFC 6890): private, link-local with the metadata address, shared, reserved. */
const NOT_PUBLIC = [
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

/** As `iptables -S` prints it, so that rules compare as text. */
const REJECT = "-j REJECT --reject-with icmp-port-unreachable";

const CHAIN_RULES = NOT_PUBLIC.map((range) => `-A ${CHAIN} -d ${range} ${REJECT}`);

/** What must stand first in a chain of others': traffic routed on, and traffic to the machine itself. */
const FIRST_RULES = [
  { chain: "DOCKER-USER", rule: `-i ${EGRESS_BRIDGE} -j ${CHAIN}` },
  { chain: "INPUT", rule: `-i ${EGRESS_BRIDGE} ${REJECT}` },
];

/** Whether Docker sends what it forwards through the chain that is there for others' rules. */
export function hasUserChain(listing: string): boolean {
  return listing.split("\n").includes("-A FORWARD -j DOCKER-USER");
}

/**
 * Compares what `iptables -S` prints with what keeps sandboxes from all but the
 * public internet. Returns the input for `iptables-restore --noflush` that
 * mends it at one stroke; undefined where it is right.
 */
export function mendEgressRules(listing: string): string | undefined {
  const lines = listing.split("\n");
  const rulesOf = (chain: string) => lines.filter((line) => line.startsWith(`-A ${chain} `));
  const commands: string[] = [];
  if (rulesOf(CHAIN).join("\n") !== CHAIN_RULES.join("\n"))
    commands.push(`:${CHAIN} - [0:0]`, ...CHAIN_RULES);
  for (const { chain, rule } of FIRST_RULES) {
    const rules = rulesOf(chain);
    if (rules[0] === `-A ${chain} ${rule}`) continue;
    for (const line of rules) if (line === `-A ${chain} ${rule}`) commands.push(`-D ${chain} ${rule}`);
    commands.push(`-I ${chain} 1 ${rule}`);
  }
  return commands.length === 0 ? undefined : ["*filter", ...commands, "COMMIT", ""].join("\n");
}
