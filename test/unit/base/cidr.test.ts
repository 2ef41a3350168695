import { describe, expect, test } from "vitest";
import { addressBytes, addressCidr, cidr, covers, parseCidr } from "../../../src/base/cidr.ts";

describe("a range of addresses", () => {
  test.each([
    ["10.0.0.0/8", "10.0.0.0/8"],
    ["1.2.3.4", "1.2.3.4/32"],
    ["0.0.0.0/0", "0.0.0.0/0"],
    ["FD00:0:0::/8", "fd00::/8"],
    ["::/0", "::/0"],
    ["2001:db8::1", "2001:db8::1/128"],
    ["1:0:0:2:0:0:0:3", "1:0:0:2::3/128"],
    ["64:ff9b::10.0.0.0/104", "64:ff9b::a00:0/104"],
  ])("%s is %s", (text, canonical) => {
    expect(parseCidr(text)).toMatchObject({ text: canonical });
  });

  test.each([
    ["", "not a range of addresses"],
    ["10.0.0/8", "not a range of addresses"],
    ["10.0.0.0/8/8", "not a range of addresses"],
    ["fe80::1%eth0/64", "not a range of addresses"],
    ["10.0.0.0/33", "no prefix of 0 to 32 bits"],
    ["10.0.0.0/-1", "no prefix"],
    ["10.0.0.0/", "no prefix"],
    ["::/129", "no prefix of 0 to 128 bits"],
    ["10.0.0.1/8", "write 10.0.0.0/8 or 10.0.0.1/32"],
    ["::ffff:10.0.0.0/104", "write it as an IPv4 one"],
  ])("%j is none: %s", (text, problem) => {
    expect(parseCidr(text)).toContain(problem);
  });

  test("contains its parts, and nothing of the other family", () => {
    expect(covers(cidr("10.0.0.0/8"), cidr("10.255.0.0/16"))).toBe(true);
    expect(covers(cidr("10.255.0.0/16"), cidr("10.0.0.0/8"))).toBe(false);
    expect(covers(cidr("10.0.0.0/8"), cidr("11.0.0.0/16"))).toBe(false);
    expect(covers(cidr("::/0"), cidr("10.0.0.0/8"))).toBe(false);
    expect(covers(cidr("fc00::/7"), cidr("fdff::/16"))).toBe(true);
  });

  test("an address has its bytes in order", () => {
    expect([...addressBytes("10.1.2.3")]).toEqual([10, 1, 2, 3]);
    expect(addressBytes("fd00::1:2").toString("hex")).toBe("fd000000000000000000000000010002");
    expect(addressCidr("FD00::1")).toBe("fd00::1/128");
  });
});
