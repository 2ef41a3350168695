import { once } from "node:events";
import { appendFileSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import net from "node:net";
import { tmpdir } from "node:os";
import path from "node:path";
import { afterAll, expect, test, vi } from "vitest";
import { addToken, revokeTokens } from "../../../src/tenants/edit-tokens.ts";

const directory = mkdtempSync(path.join(tmpdir(), "berth-edit-tokens-"));
afterAll(() => rmSync(directory, { recursive: true }));

const wanted = { tenant: "acme", scope: "user", expires: undefined, note: undefined } as const;

test("a user of the machine who holds every lock that was ever seen keeps nobody from revoking a token", async () => {
  const file = path.join(directory, "seen.yaml");
  const { id } = await addToken(file, wanted);
  const spy = vi.spyOn(net.Server.prototype, "listen");
  const { id: other } = await addToken(file, wanted);
  // Changes nothing.
  await revokeTokens(file, ["nosuch"]);
  const seen = new Set(spy.mock.calls.map(([name]) => name as unknown as string));
  spy.mockRestore();
  expect(seen).not.toEqual(new Set());
  const holders = Array.from(seen, (name) => net.createServer().listen(name));
  try {
    await Promise.all(holders.map((holder) => once(holder, "listening")));
    await expect(revokeTokens(file, [id])).resolves.toEqual(new Set([id]));
  } finally {
    for (const holder of holders) holder.close();
  }
  expect(readFileSync(file, "utf8")).toContain(other);
});

test("what is written between an edit's read and its lock is not lost", async () => {
  const file = path.join(directory, "written.yaml");
  const { id } = await addToken(file, wanted);
  const { listen } = net.Server.prototype;
  const spy = vi.spyOn(net.Server.prototype, "listen").mockImplementationOnce(function (
    this: net.Server,
    name,
  ) {
    appendFileSync(file, "# by hand\n");
    return listen.call(this, name);
  });
  const { id: other } = await addToken(file, wanted);
  spy.mockRestore();
  const text = readFileSync(file, "utf8");
  for (const part of [id, other, "# by hand"]) expect(text).toContain(part);
});
