import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import fc from "fast-check";
import { describe, expect, onTestFinished, test } from "vitest";
import { readTokenFile } from "../../../src/tenants/live-tokens.ts";
import { contentOf } from "../../../src/tenants/secrets.ts";
import { hashOf, newToken, tokenIdIn } from "../../../src/tenants/token.ts";
import { parseTokenFile, TokenFileError } from "../../../src/tenants/token-file.ts";
import { scaled } from "../../support/scale.ts";

const SHA = "0".repeat(64);
const parse = (text: string) => parseTokenFile(text, "f");
const TOKENS = "tenants: {acme: }\ntokens:\n";

test("a valid file is read", () => {
  const { tenants, tokens } = parse(
    `# ours\n${TOKENS}  - id: abcd\n    tenant: acme\n    scope: read-only # x\n    sha256: "${SHA}"\n    expires: 2030-01-01T00:00:00+01:00\n    note: n\n`,
  );
  expect([...tenants.keys()]).toEqual(["acme"]);
  expect([...tokens]).toEqual([
    [
      "abcd",
      {
        id: "abcd",
        tenant: "acme",
        scope: "read-only",
        sha256: SHA,
        expires: Date.parse("2029-12-31T23:00:00Z"),
        note: "n",
      },
    ],
  ]);
});

const entry = (changes: object = {}) =>
  `${TOKENS}  - ${JSON.stringify({ id: "abcd", tenant: "acme", scope: "user", sha256: SHA, ...changes })}\n`;

test("quotas are read in the units of the options; missing ones are not set", () => {
  const { tenants } = parse(
    "tenants:\n  a:\n    quota: {sandboxes: 0, memory: 2GiB, cpus: 1.5, pids: 9, execs: 3, sessions: 4, creates_per_second: 0.5, transcripts: 1MiB, workspaces: 3MiB}\n  b: {quota: {}}\n  c: {}\ntokens: []\n",
  );
  expect(Object.fromEntries(tenants)).toEqual({
    a: {
      ...{ sandboxes: 0, memoryBytes: 2 ** 31, cpuMillis: 1500, pids: 9, execs: 3, sessions: 4 },
      ...{ createsPerSecond: 0.5, transcriptBytes: 2 ** 20, workspaceBytes: 3 * 2 ** 20 },
    },
    b: {},
    c: {},
  });
  // An unset key would hide the service's default.
  expect(Object.keys(tenants.get("b") ?? {})).toEqual([]);
});

const withQuota = (quota: string) => `tenants:\n  a:\n    quota:\n      ${quota}\ntokens: []\n`;

test.each([
  ["", "f:1:1: the file holds nothing; it takes tenants and tokens, as berth token create writes them"],
  ["tenants: {}\n", "f:1:1: tokens: is missing"],
  ["tenants: 3\ntokens: []\n", "f:1:10: tenants: is not a map of tenants"],
  ["tenants: {}\ntokens: {}\n", "f:2:9: tokens: is not a list of tokens"],
  ["tenants: {}\ntokens: []\nmore: 1\n", 'f:3:1: there is no key "more" here'],
  ["tenants:\n  acme:\n    quotas: 1\ntokens: []\n", 'f:3:5: there is no key "quotas" here'],
  ["tenants: {a: &x {}, b: *x}\ntokens: []\n", "f:1:24: uses an alias (*name); write out what it stands for"],
  ["tenants: {acme: , acme: }\ntokens: []\n", /^f:1:19: is not YAML \(Map keys must be unique/],
  ["a: [\n", /^f:\d+:\d+: is not YAML/],
  [entry({ id: "A" }), "f:3:11: id: is not the id of a token: 4 to 32 of a-z and 0-9"],
  [entry({ scope: "root" }), "f:3:42: scope: is not a scope: write admin, user or read-only"],
  [entry({ sha256: "00" }), /^f:3:\d+: sha256: is not a SHA-256/],
  [entry({ expires: "tomorrow" }), /^f:3:\d+: expires: is not a time/],
  [entry({ tenant: "other" }), /^f:3:\d+: tenant: there is no tenant "other" under tenants/],
  [withQuota("sandboxes: -1"), "f:4:18: sandboxes: is not a whole number of 0 or more"],
  [withQuota("execs: many"), "f:4:14: execs: is not a whole number of 0 or more"],
  [withQuota("pids: 1.5"), "f:4:13: pids: is not a whole number of 1 or more"],
  [withQuota("memory: 5"), 'f:4:15: memory: "5" has no unit'],
  [withQuota("cpus: 0"), 'f:4:13: cpus: "0" is not a number of CPUs'],
  [withQuota("creates_per_second: 0"), "f:4:27: creates_per_second: is not a number above 0"],
  [withQuota("ram: 1GiB"), 'f:4:7: there is no key "ram" here'],
  [`${entry()}${entry().split("\n")[2]}\n`, "f:4:11: id: two tokens have the id abcd"],
])("%j is refused with its place", (text, message) => {
  expect(() => parse(text)).toThrow(TokenFileError);
  expect(() => parse(text)).toThrow(message);
});

test("what is of another type than it should be is refused in plain words", () => {
  const problemOf = (text: string): unknown => {
    try {
      return parse(text);
    } catch (error) {
      return (error as Error).message;
    }
  };
  expect(problemOf("tokens\n")).toBe("f:1:1: is not a map with tenants and tokens");
  expect(problemOf("tenants: {}\ntokens: [abcd]\n")).toBe("f:2:10: token 1: is not a map of names to values");
  expect(problemOf("tenants: {}\ntokens: [{id: 1234}]\n")).toBe("f:2:15: id: is not text; put it in quotes");
  expect(problemOf("tenants: {}\ntokens: [{id: abcd, tenant: 3}]\n")).toBe(
    "f:2:29: tenant: is not text; put it in quotes",
  );
  expect(problemOf("tenants: {a: {secrets: [b, 3]}}\ntokens: []\n")).toBe(
    "f:1:28: secret 2: is not text; put it in quotes",
  );
});

test("a byte order mark before tokens and secrets is ignored", async () => {
  const directory = await mkdtemp(path.join(tmpdir(), "berth-tokens-"));
  onTestFinished(() => rm(directory, { recursive: true }));
  const file = path.join(directory, "file.yaml");
  const put = (text: string) => writeFile(file, `\uFEFF${text}`, { mode: 0o600 });
  await put(entry());
  expect([...(await readTokenFile(file)).tokens.keys()]).toEqual(["abcd"]);
  await put("tenants: {a: {ram: 1}}\ntokens: []\n");
  await expect(readTokenFile(file)).rejects.toThrow(`${file}:1:15: there is no key "ram" here`);
  await put("secrets: {NAME: value}\n");
  expect((await contentOf(file))?.values.size).toBe(1);
});

test("with any contents, errors have a position", () => {
  const line = fc.stringMatching(/^[ a-z0-9:{}[\],"'#&*!|>%@-]{0,20}$/);
  fc.assert(
    fc.property(fc.array(line, { maxLength: 8 }), fc.boolean(), (lines, behind) => {
      try {
        parse((behind ? [TOKENS, ...lines] : lines).join("\n"));
      } catch (error) {
        expect(error).toBeInstanceOf(TokenFileError);
        expect((error as Error).message).toMatch(/^f:\d+:\d+: /);
      }
    }),
    { numRuns: scaled(5_000, 200) },
  );
  expect(() => parse("[".repeat(50_000))).toThrow(TokenFileError);
});

describe("a token", () => {
  test("is its id and 256 random bits", () => {
    const made = Array.from({ length: 200 }, newToken);
    for (const { id, text } of made) {
      expect(text).toMatch(/^berth_[a-z2-7]{10}_[0-9A-Za-z]{43}$/);
      expect(tokenIdIn(text)).toBe(id);
    }
    expect(new Set(made.map(({ text }) => text)).size).toBe(200);
    expect(hashOf("abc").toString("hex")).toBe(
      "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
    );
  });

  test.each([
    "",
    "berth_",
    "berth_abcd_",
    `berth_ABCD_${"0".repeat(43)}`,
    `berth_abcd_${"0".repeat(44)}`,
    `xberth_abcd_${"0".repeat(43)}`,
  ])("%j is none", (text) => expect(tokenIdIn(text)).toBeUndefined());
});
