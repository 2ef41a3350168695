import { describe, expect, test } from "vitest";
import { hasUserChain, repairEgressRules } from "../../../../src/engine/docker/egress.ts";

/** Applies the input of `iptables-restore --noflush` to the lines of `iptables -S`. */
function restore(listing: string, input: string): string {
  let lines = listing.split("\n").filter(Boolean);
  for (const command of input.split("\n")) {
    const [, verb, chain = "", rule = ""] = /^(:|-[ADI] )(\S+) ?(?:1 )?(.*)$/.exec(command) ?? [];
    const line = `-A ${chain} ${rule}`;
    switch (verb?.trim()) {
      case ":":
        lines = [...lines.filter((other) => !other.startsWith(`-A ${chain} `)), `-N ${chain}`];
        break;
      case "-A":
        lines.push(line);
        break;
      case "-D":
        lines.splice(lines.indexOf(line), 1);
        break;
      case "-I": {
        const first = lines.findIndex((other) => other.startsWith(`-A ${chain} `));
        lines.splice(first === -1 ? lines.length : first, 0, line);
        break;
      }
    }
  }
  return lines.join("\n");
}

const BARE = [
  "-P INPUT ACCEPT",
  "-N DOCKER-USER",
  "-A FORWARD -j DOCKER-USER",
  "-A DOCKER-USER -j RETURN",
].join("\n");

function repaired(listing: string): string {
  const input = repairEgressRules(listing);
  expect(input).toMatch(/^\*filter\n[\s\S]*\nCOMMIT\n$/);
  const result = restore(listing, input ?? "");
  expect(repairEgressRules(result)).toBeUndefined();
  return result;
}

describe("the rules are repaired", () => {
  test("if there are none", () => {
    const rules = repaired(BARE).split("\n");
    expect(rules).toContain(
      "-A BERTH-EGRESS -d 169.254.0.0/16 -j REJECT --reject-with icmp-port-unreachable",
    );
    expect(rules).toContain("-A INPUT -i berth0 -j REJECT --reject-with icmp-port-unreachable");
  });

  test("if one is missing, or comes too late", () => {
    const right = repaired(BARE);
    for (const line of right.split("\n")) {
      if (/BERTH|berth/.test(line) && line.startsWith("-A"))
        repaired(right.replace(`${line}\n`, "").replace(line, ""));
    }
    repaired(right.replace("-A INPUT -i berth0", "-A INPUT -p tcp --dport 22 -j ACCEPT\n-A INPUT -i berth0"));
    repaired(
      right.replace(
        "-A BERTH-EGRESS -d 10",
        "-A BERTH-EGRESS -d 10.1.2.3/32 -j ACCEPT\n-A BERTH-EGRESS -d 10",
      ),
    );
  });

  test("without repeating those of others", () => {
    const late = `${repaired(BARE).replace("-A DOCKER-USER -i berth0 -j BERTH-EGRESS\n", "")}\n-A DOCKER-USER -i berth0 -j BERTH-EGRESS`;
    expect(repaired(late).match(/-A DOCKER-USER -i berth0/g)).toHaveLength(1);
  });
});

test("a firewall that bypasses Docker's chain for users is reported", () => {
  expect(hasUserChain(BARE)).toBe(true);
  expect(hasUserChain("-P FORWARD ACCEPT")).toBe(false);
});
