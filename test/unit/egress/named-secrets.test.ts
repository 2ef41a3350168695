import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { afterAll, expect, test } from "vitest";
import { loadCredentials } from "../../../src/egress/credentials.ts";

const directory = mkdtempSync(path.join(tmpdir(), "berth-named-"));
afterAll(() => rmSync(directory, { recursive: true }));

function load(credential: object) {
  const file = path.join(directory, "credentials.json");
  writeFileSync(file, JSON.stringify({ "api.example.org": { header: "X-Key", ...credential } }));
  const values = new Map([["key", "of the service"]]);
  return loadCredentials(file, {
    read: async (name) => values.get(name) ?? Promise.reject(new Error("there is none")),
  });
}

test("a credential may name a secret of the service", async () => {
  const credentials = await load({ secret_name: "key", value: "Bearer {secret}" });
  const found = credentials.find("api.example.org", "acme");
  expect(found && (await credentials.valueOf(found))).toBe("Bearer of the service");
});

test.each([
  [{ secret_name: "other" }, "secret_name other is not among --secrets"],
  [{ secret_name: "key", secret: "file" }, "and not both"],
  [{}, "needs a secret or a secret_name"],
])("%j is refused", async (credential, message) => {
  await expect(load(credential)).rejects.toMatchObject({ message: expect.stringContaining(message) });
});

test("a file that cannot be read is refused with the system's reason", async () => {
  await expect(loadCredentials("/no/such/file")).rejects.toMatchObject({
    message: "--egress-credentials /no/such/file: it cannot be read (ENOENT).",
  });
});

test.each([
  ["a header that is missing", { secret_name: "key", header: undefined }, ".header: is missing."],
  ["a name that is a number", { secret_name: 3 }, ".secret_name: is not text; put it in quotes."],
  ["an unknown key", { secret_name: "key", name: "X" }, ': there is no key "name" here.'],
  ["owners that are no list", { secret_name: "key", owners: "acme" }, ".owners: is not a list."],
])("%s is refused in plain words", async (_what, credential, message) => {
  await expect(load(credential)).rejects.toMatchObject({
    message: expect.stringContaining(`credentials.json: api.example.org${message}`),
  });
});
