import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { allows, type DomainRule, parseDomainRule } from "../../../src/egress/domains.ts";
import { findTarget } from "../../../src/egress/target.ts";
import { codePoint } from "../../support/code-point.ts";
import { scaled } from "../../support/scale.ts";

function rules(...texts: string[]): DomainRule[] {
  return texts.map((text) => {
    const rule = parseDomainRule(text);
    if (typeof rule === "string") throw new Error(`${text}: ${rule}`);
    return rule;
  });
}

describe("a domain", () => {
  test.each<[string, string, number, boolean]>([
    ["example.org", "example.org", 443, true],
    ["example.org", "example.org", 80, true],
    ["example.org", "example.org", 22, false],
    ["example.org:22", "example.org", 22, true],
    ["example.org:22", "example.org", 443, false],
    ["example.org", "www.example.org", 443, false],
    ["example.org", "notexample.org", 443, false],
    ["example.org", "example.org.evil.com", 443, false],
    ["*.example.org", "example.org", 443, false],
    ["*.example.org", "www.example.org", 443, true],
    ["*.example.org", "a.b.example.org", 443, true],
    ["*.example.org", "evilexample.org", 443, false],
    ["EXAMPLE.org", "example.org", 443, true],
    ["bücher.example", "xn--bcher-kva.example", 443, true],
  ])("%s: %s:%d → %s", (rule, host, port, allowed) => {
    expect(allows(rules(rule), host, port)).toBe(allowed);
  });

  test("no text is parsed as a rule that allows an address or everything", () => {
    fc.assert(
      fc.property(fc.string({ unit: codePoint }), (text) => {
        const rule = parseDomainRule(text);
        if (typeof rule === "string") return;
        expect(rule.name).toMatch(/^[a-z0-9_-]+(\.[a-z0-9_-]+)+$/);
        for (const host of ["127.0.0.1", "localhost", "169.254.169.254", "[::1]", ""])
          expect(allows([rule], host, 80)).toBe(false);
      }),
      { numRuns: scaled(50_000, 2_000) },
    );
  });
});

test("a name is refused by its length before it is converted", () => {
  // Soft hyphens are removed from names.
  const padded = (count: number): string => `${"\u00ad".repeat(count)}example.org`;
  expect(parseDomainRule(padded(100))).toMatchObject({ name: "example.org" });
  expect(parseDomainRule(padded(300))).toContain("it is not a domain");
});

test("so is the name of a host that a sandbox requests", async () => {
  const signal = AbortSignal.timeout(10_000);
  const hostname = `${"%C2%AD".repeat(500)}example.org`;
  await expect(findTarget(rules("*.example.com"), hostname, 443, signal)).rejects.toThrow("too long");
});
