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
