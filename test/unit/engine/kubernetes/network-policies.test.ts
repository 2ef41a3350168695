import type { V1NetworkPolicy } from "@kubernetes/client-node";
import { describe, expect, test } from "vitest";
import { cidr, covers } from "../../../../src/base/cidr.ts";
import {
  isSame,
  type NetworkOptions,
  openRanges,
  opens,
  policiesOf,
} from "../../../../src/engine/kubernetes/network/policies.ts";

/** Whether an address is in an open range, and in none of its exceptions. */
function reached(address: string, options: NetworkOptions = {}, closed: readonly string[] = []): boolean {
  const one = cidr(address);
  return openRanges(options, closed).some(
    (range) => covers(cidr(range.cidr), one) && !range.except.some((part) => covers(cidr(part), one)),
  );
}

describe("what EGRESS reaches", () => {
  test.each(["93.184.215.14", "1.1.1.1", "2606:4700::1111"])("%s, which is public", (address) => {
    expect(reached(address)).toBe(true);
  });

  test.each([
    ...["10.0.0.1", "172.16.0.1", "192.168.1.1", "100.64.0.1", "127.0.0.1", "169.254.169.254", "224.0.0.1"],
    ...["168.63.129.16", "0.0.0.0", "255.255.255.255"],
    ...["::1", "fd00::1", "fc00::1", "fe80::1", "fd00:ec2::254", "ff02::1", "64:ff9b::a00:1", "2002:a00:1::"],
  ])("not %s, which is not", (address) => {
    expect(reached(address)).toBe(false);
  });

  test("allowed ranges, without denied parts and the cluster's own addresses", () => {
    const options = {
      egressCidrs: ["10.9.0.0/16", "fd09::/64"],
      denyCidrs: ["10.9.9.0/24", "93.184.215.0/24"],
    };
    const closed = ["10.9.1.1/32", "fd09::a/128"];
    expect(reached("10.9.0.1", options, closed)).toBe(true);
    expect(reached("fd09::1", options, closed)).toBe(true);
    for (const address of ["10.9.9.1", "93.184.215.14", "10.9.1.1", "fd09::a", "10.8.0.1"])
      expect(reached(address, options, closed), address).toBe(false);
  });

  test("of two ranges the smaller counts: only what is allowed", () => {
    const options = { egressCidrs: ["10.9.0.0/16"], denyCidrs: ["0.0.0.0/0", "::/0"] };
    expect(openRanges(options, [])).toEqual([{ cidr: "10.9.0.0/16", except: [] }]);
  });

  test("a wide range does not open metadata addresses or loopback", () => {
    const options = { egressCidrs: ["0.0.0.0/0", "::/0"] };
    expect(reached("10.0.0.1", options)).toBe(true);
    for (const address of [
      "169.254.169.254",
      "127.0.0.1",
      "168.63.129.16",
      "fe80::1",
      "fd00:ec2::254",
      "::1",
    ])
      expect(reached(address, options), address).toBe(false);
  });

  test.each<[string, NetworkOptions, string[], string]>([
    [
      "opened and denied",
      { egressCidrs: ["10.0.0.0/8"], denyCidrs: ["10.0.0.0/8"] },
      [],
      "also given with --deny-cidr",
    ],
    ["metadata", { egressCidrs: ["169.254.0.0/17"] }, [], "part of 169.254.0.0/16"],
    ["the cluster's own", { egressCidrs: ["10.1.0.0/24"] }, ["10.1.0.0/16"], "address of the cluster itself"],
  ])("%s is refused", (_what, options, closed, problem) => {
    expect(() => openRanges(options, closed)).toThrow(problem);
  });

  test("exceptions are within their range and not within another exception, as the API server requires", () => {
    const options = { egressCidrs: ["0.0.0.0/0", "10.0.0.0/8"], denyCidrs: ["10.1.0.0/16", "10.1.2.0/24"] };
    for (const { cidr: range, except } of openRanges(options, ["10.1.2.3/32", "5.5.5.5/32"])) {
      for (const part of except) {
        expect(part).not.toBe(range);
        expect(covers(cidr(range), cidr(part)), part).toBe(true);
        expect(except.filter((other) => covers(cidr(other), cidr(part)))).toEqual([part]);
      }
    }
  });
});

describe("the policies of an instance", () => {
  const [none, egress] = policiesOf("one", {}, []) as [V1NetworkPolicy, V1NetworkPolicy];
  const labels = { "berth.dev/instance": "one", "berth.dev/network": "none" };

  test("select only its pods, and let nothing in", () => {
    expect(none.spec?.podSelector?.matchLabels).toEqual(labels);
    for (const { spec } of [none, egress])
      expect(spec).toMatchObject({ policyTypes: ["Ingress", "Egress"], ingress: [] });
    expect(none.spec?.egress).toEqual([]);
    expect(none.metadata?.name).not.toBe(policiesOf("two", {}, [])[0]?.metadata?.name);
  });

  test("equal those that the API server returns, and differ if somebody changed them", () => {
    const { ingress: _ingress, egress: _egress, ...rest } = none.spec ?? { podSelector: {} };
    const found = { ...none, spec: rest };
    expect(isSame(found, none)).toBe(true);
    for (const change of [
      { egress: [{}] },
      { ingress: [{}] },
      { policyTypes: ["Ingress"] },
      { podSelector: { matchLabels: { ...labels, more: "x" } } },
      { podSelector: { matchLabels: labels, matchExpressions: [{ key: "a", operator: "Exists" }] } },
    ])
      expect(isSame({ ...found, spec: { ...rest, ...change } }, none), JSON.stringify(change)).toBe(false);
  });

  test.each<[string, object, boolean]>([
    ["all pods", {}, true],
    ["its label", { matchLabels: { "berth.dev/network": "none" } }, true],
    ["another instance", { matchLabels: { "berth.dev/instance": "two" } }, false],
    [
      "all but its label",
      { matchExpressions: [{ key: "berth.dev/network", operator: "NotIn", values: ["none"] }] },
      false,
    ],
    [
      "one of",
      { matchExpressions: [{ key: "berth.dev/network", operator: "In", values: ["none", "x"] }] },
      true,
    ],
    ["with a label", { matchExpressions: [{ key: "berth.dev/instance", operator: "Exists" }] }, true],
    [
      "without a label",
      { matchExpressions: [{ key: "berth.dev/instance", operator: "DoesNotExist" }] },
      false,
    ],
    ["an unknown operator", { matchExpressions: [{ key: "a", operator: "Like" }] }, true],
  ])("others' that select %s are seen for what they open", (_what, podSelector, isOpen) => {
    expect(opens({ spec: { podSelector, egress: [{}] } } as V1NetworkPolicy, labels)).toBe(isOpen);
    expect(opens({ spec: { podSelector, ingress: [{}] } } as V1NetworkPolicy, labels)).toBe(isOpen);
    expect(opens({ spec: { podSelector, policyTypes: ["Egress"] } } as V1NetworkPolicy, labels)).toBe(false);
  });
});
