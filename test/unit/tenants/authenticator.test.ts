import { expect, test } from "vitest";
import { TokenAuthenticator } from "../../../src/tenants/authenticator.ts";
import { hashOf, newToken } from "../../../src/tenants/token.ts";
import type { TokenRecord } from "../../../src/tenants/token-file.ts";

const token = newToken();
const record: TokenRecord = {
  id: token.id,
  tenant: "acme",
  scope: "user",
  sha256: hashOf(token.text).toString("hex"),
};

function authenticator(changes: Partial<TokenRecord> = {}, wallMs = 0, tenants = ["acme", "other"]) {
  const tokens = new Map([[token.id, { ...record, ...changes }]]);
  return new TokenAuthenticator(
    {
      table: {
        tenants: new Map(tenants.map((tenant) => [tenant, {}])),
        grants: new Map(),
        tokens,
      },
    },
    { wallMs: () => wallMs },
  );
}

const ask = (given: TokenAuthenticator, headers: Record<string, string>) =>
  given.authenticate({
    headers: { authorization: `Bearer ${token.text}`, ...headers },
    method: "m",
    peer: "p",
  });

test("a principal has its tenant, its token and its scope", () => {
  const principal = ask(authenticator(), {});
  const { sha256: tokenHash } = record;
  expect(principal).toEqual({
    ...{ owner: "acme", tenant: "acme", scope: "user" },
    ...{ tokenId: token.id, tokenHash },
  });
  expect(ask(authenticator(), { authorization: `bearer  ${token.text} ` })).toEqual(principal);
  expect(ask(authenticator({ scope: "admin" }), { "berth-tenant": "other" })).toMatchObject({
    owner: "other",
    tenant: "acme",
  });
});

test.each([
  [{}, { authorization: "" }, "UNAUTHENTICATED"],
  [{ sha256: "0".repeat(64) }, {}, "UNAUTHENTICATED"],
  [{ expires: 1 }, {}, "UNAUTHENTICATED"],
  [{}, { "berth-tenant": "other" }, "TOKEN_SCOPE"],
  [{}, { "berth-tenant": "nobody" }, "TOKEN_SCOPE"],
  [{ scope: "admin" }, { "berth-tenant": "nobody" }, "INVALID_ARGUMENT"],
  [{ scope: "admin" }, { "berth-tenant": "acme, other" }, "INVALID_ARGUMENT"],
] as const)("the token %j with %j is refused: %s", (changes, headers, reason) => {
  expect(() => ask(authenticator(changes, 1), headers)).toThrow(expect.objectContaining({ reason }));
});

test.each([
  ["has expired", { expires: 1 }, {}],
  ["belongs to another tenant", {}, { "berth-tenant": "other" }],
  ["is an admin's, and the tenant does not exist", { scope: "admin" }, { "berth-tenant": "nobody" }],
] as const)("who makes a call that is refused is known: its token %s", (_, changes, headers) => {
  const principal = expect.objectContaining({ owner: "acme", tenant: "acme", tokenId: token.id });
  expect(() => ask(authenticator(changes, 1), headers)).toThrow(expect.objectContaining({ principal }));
});

test("a call continues while its token is unchanged", () => {
  const principal = ask(authenticator(), {});
  expect(authenticator().recheck(principal)).toBeUndefined();
  const sha256 = "0".repeat(64);
  for (const changes of [{ expires: 5 }, { tenant: "other" }, { scope: "read-only" }, { sha256 }] as const) {
    expect(authenticator(changes, 5).recheck(principal)?.reason).toBe("UNAUTHENTICATED");
  }
  expect(authenticator().recheck({ ...principal, tokenId: "gone" })?.reason).toBe("UNAUTHENTICATED");
});

test("an admin's call in another tenant ends once the tokens file no longer has that tenant", () => {
  const admin = { scope: "admin" } as const;
  const principal = ask(authenticator(admin), { "berth-tenant": "other" });
  expect(authenticator(admin).recheck(principal)).toBeUndefined();
  const problem = authenticator(admin, 0, ["acme"]).recheck(principal);
  expect(problem).toMatchObject({
    reason: "INVALID_ARGUMENT",
    message: 'berth-tenant: there is no tenant "other" any more. Name one of the tokens file.',
  });
});
