import { timingSafeEqual } from "node:crypto";
import type { Clock } from "../base/clock.ts";
import { BerthError } from "../base/errors.ts";
import {
  type Authenticator,
  type Credentials,
  type Principal,
  RefusedCaller,
  TENANT_HEADER,
} from "../server/call.ts";
import { hashOf, tokenIdIn } from "./token.ts";
import type { TokenRecord, TokenTable } from "./token-file.ts";

/** Longest `authorization` header to accept. That of a token has half this length. */
const MAX_HEADER = 128;
/** The hash to compare with for an unknown token, so that the check takes as long as for a known one. */
const NO_HASH = Buffer.alloc(32);

/** Authenticates callers by the tokens of the current {@link TokenTable}. */
export class TokenAuthenticator implements Authenticator {
  readonly #source: { readonly table: TokenTable };
  readonly #clock: Pick<Clock, "wallMs">;

  constructor(source: { readonly table: TokenTable }, clock: Pick<Clock, "wallMs">) {
    this.#source = source;
    this.#clock = clock;
  }

  authenticate({ headers }: Credentials): Principal {
    const record = this.#find(headers.authorization);
    const { id, tenant, scope, sha256 } = record;
    const principal = { owner: tenant, tenant, tokenId: id, tokenHash: sha256, scope };
    if (this.#isExpired(record)) throw new RefusedCaller(principal, expired());
    return { ...principal, owner: this.#ownerOf(headers, principal) };
  }

  recheck({ owner, tokenId = "", tokenHash, tenant, scope }: Principal): BerthError | undefined {
    const { tokens, tenants } = this.#source.table;
    const record = tokens.get(tokenId);
    // If the token's text, tenant or scope has changed, the caller is no longer the one that was authenticated.
    if (record?.sha256 !== tokenHash || record?.tenant !== tenant || record.scope !== scope)
      return unknownToken();
    if (this.#isExpired(record)) return expired();
    return tenants.has(owner) ? undefined : unknownTenant(owner, " any more");
  }

  #find(header: string | undefined): TokenRecord {
    if (header === undefined) {
      throw refused("The call has no token. Send one with it: authorization: Bearer TOKEN.");
    }
    const text = header.length <= MAX_HEADER ? (/^bearer +(\S+) *$/i.exec(header)?.[1] ?? "") : "";
    const id = tokenIdIn(text);
    if (id === undefined) {
      throw refused("The authorization header holds no token of Berth. Write it as: Bearer berth_ID_SECRET.");
    }
    const record = this.#source.table.tokens.get(id);
    const kept = record ? Buffer.from(record.sha256, "hex") : NO_HASH;
    // Compare even if the id is unknown, so that the time does not reveal which ids exist.
    const isRight = timingSafeEqual(hashOf(text), kept);
    if (!isRight || record === undefined) throw unknownToken();
    return record;
  }

  #ownerOf(headers: Credentials["headers"], principal: Principal): string {
    const { tenant, scope } = principal;
    const named = headers[TENANT_HEADER];
    if (named === undefined || named === tenant) return tenant;
    if (scope !== "admin") throw new RefusedCaller(principal, otherTenant(scope));
    if (typeof named === "string" && this.#source.table.tenants.has(named)) return named;
    throw new RefusedCaller(principal, unknownTenant(named));
  }

  #isExpired({ expires }: TokenRecord): boolean {
    return expires !== undefined && expires <= this.#clock.wallMs();
  }
}

/** What others than admins get who name another tenant than their own. */
function otherTenant(scope: Principal["scope"]): BerthError {
  return new BerthError(
    "TOKEN_SCOPE",
    `${TENANT_HEADER}: the token belongs to another tenant, and only one of scope admin may act in others. Leave the header out.`,
    { metadata: { scope, required_scope: "admin" } },
  );
}

/** What an admin gets who names a tenant that the tokens file does not have. */
function unknownTenant(named: string | readonly string[], since = ""): BerthError {
  return new BerthError(
    "INVALID_ARGUMENT",
    `${TENANT_HEADER}: there is no tenant ${JSON.stringify(named).slice(0, 80)}${since}. Name one of the tokens file.`,
    { metadata: { field: TENANT_HEADER } },
  );
}

function unknownToken(): BerthError {
  return refused("The token is not known: it may have been revoked. Ask the operator for another.");
}

function expired(): BerthError {
  return refused("The token has expired. Ask the operator for another.");
}

function refused(message: string): BerthError {
  return new BerthError("UNAUTHENTICATED", message);
}
