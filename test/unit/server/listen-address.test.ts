import fc from "fast-check";
import { expect, test } from "vitest";
import { BerthError } from "../../../src/base/errors.ts";
import {
  formatListenAddress,
  isLocalAddress,
  parseListenAddress,
} from "../../../src/server/listen-address.ts";

test.each([
  ["127.0.0.1:7070", { kind: "tcp", host: "127.0.0.1", port: 7070 }],
  ["[::1]:7070", { kind: "tcp", host: "::1", port: 7070 }],
  ["localhost:0", { kind: "tcp", host: "localhost", port: 0 }],
  ["box.example.com:65535", { kind: "tcp", host: "box.example.com", port: 65535 }],
  [":0", { kind: "tcp", host: "", port: 0 }],
  ["unix:/run/berth.sock", { kind: "unix", path: "/run/berth.sock" }],
  ["unix:berth.sock", { kind: "unix", path: "berth.sock" }],
  ["unix:///run/berth.sock", { kind: "unix", path: "/run/berth.sock" }],
])("reads %s", (text, address) => {
  expect(parseListenAddress(text)).toEqual(address);
});

test.each([
  ["", /is not an address/],
  ["7070", /is not an address; write it as "127.0.0.1:7070"/],
  ["127.0.0.1", /is not an address/],
  ["::1:7070", /is not an address; .*"\[::1\]:7070"/],
  ["[::1]", /is not an address/],
  ["[127.0.0.1]:1", /is not an IPv6 address/],
  ["[]:1", /is not an IPv6 address/],
  ["127.0.0.1:", /is not a port/],
  ["127.0.0.1:http", /is not a port/],
  ["127.0.0.1:65536", /is not a port/],
  ["127.0.0.1:-1", /is not a port/],
  ["127.0.0.300:80", /is not a host name or IP address/],
  ["http://127.0.0.1:80", /is not an address/],
  ["a b:80", /is not a host name or IP address/],
  ["unix:", /names no socket file/],
  ["unix://run/berth.sock", /names no socket file/],
  [`unix:/${"x".repeat(107)}`, /108 bytes.*at most 107/],
])("refuses %j", (text, why) => {
  expect(refusal(() => parseListenAddress(text))).toMatch(why);
});

test("reads what it writes", () => {
  const port = fc.integer({ min: 0, max: 65_535 });
  const host = fc.oneof(fc.ipV4(), fc.ipV6(), fc.domain(), fc.constant(""));
  const tcp = fc.record({ kind: fc.constant("tcp" as const), host, port });
  const path = fc.stringMatching(/^[^/\0\ud800-\udfff][^\0\ud800-\udfff]{0,20}$/);
  const unix = fc.record({ kind: fc.constant("unix" as const), path });
  fc.assert(
    fc.property(fc.oneof(tcp, unix), (address) => {
      expect(parseListenAddress(formatListenAddress(address))).toEqual(address);
    }),
  );
});

test("throws nothing but refusals", () => {
  fc.assert(
    fc.property(
      fc.oneof(
        fc.string(),
        fc.string().map((text) => `unix:${text}`),
      ),
      (text) => {
        refusal(() => parseListenAddress(text));
      },
    ),
  );
});

test.each([
  ["127.0.0.1:1", true],
  ["127.8.9.10:1", true],
  ["[::1]:1", true],
  ["LOCALHOST:1", true],
  ["unix:/x", true],
  [":1", false],
  ["0.0.0.0:1", false],
  ["[::]:1", false],
  ["10.0.0.1:1", false],
  ["localhost.example.com:1", false],
])("whether only this machine reaches %s: %s", (text, local) => {
  expect(isLocalAddress(parseListenAddress(text))).toBe(local);
});

/** The message that refuses an address; undefined if it is accepted. */
function refusal(read: () => unknown): string | undefined {
  try {
    read();
  } catch (error) {
    expect(error).toBeInstanceOf(BerthError);
    expect(error).toMatchObject({ reason: "INVALID_ARGUMENT" });
    return (error as BerthError).message;
  }
  return undefined;
}
