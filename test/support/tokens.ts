import { mkdtempSync } from "node:fs";
import path from "node:path";
import * as grpc from "@grpc/grpc-js";
import { addToken, revokeTokens, type TokenWanted } from "../../src/tenants/edit-tokens.ts";
import { tokenIdIn } from "../../src/tenants/token.ts";
import { Client } from "./client.ts";
import { newDataDir } from "./settings.ts";

/** A tokens file for a test. The end of the test run removes it. */
export class TokensFile {
  readonly path = path.join(mkdtempSync(path.join(newDataDir(), "tokens-")), "tokens.yaml");

  /** Adds a token. Returns its text. */
  async add(tenant: string, more: Partial<TokenWanted> = {}): Promise<string> {
    const wanted = { tenant, scope: "user", expires: undefined, note: undefined, ...more } as const;
    return (await addToken(this.path, wanted)).text;
  }

  async revoke(token: string): Promise<void> {
    await revokeTokens(this.path, [tokenIdIn(token) ?? ""]);
  }
}

/** A client that calls with a token. */
export function clientWith(
  address: string,
  token: string,
  more: Readonly<Record<string, string>> = {},
  credentials?: grpc.ChannelCredentials,
): Client {
  const interceptor: grpc.Interceptor = (options, nextCall) =>
    new grpc.InterceptingCall(nextCall(options), {
      start: (metadata, listener, next) => {
        metadata.set("authorization", `Bearer ${token}`);
        for (const [name, value] of Object.entries(more)) metadata.set(name, value);
        next(metadata, listener);
      },
    });
  return new Client(address, { interceptors: [interceptor] }, credentials);
}
