import { request } from "node:https";
import { text } from "node:stream/consumers";
import * as grpc from "@grpc/grpc-js";
import { afterAll, beforeAll, expect, test } from "vitest";
import { tokenIdIn } from "../../../src/tenants/token.ts";
import { type Client, failureOf } from "../../support/client.ts";
import { eventually } from "../../support/eventually.ts";
import { ServeProcess } from "../../support/program.ts";
import type { RunningProxy, StartProxy } from "../../support/proxy.ts";
import { ownLoopback } from "../../support/settings.ts";
import { clientWith, TokensFile } from "../../support/tokens.ts";

const TENANTS = Array.from({ length: 20 }, (_, index) => `tenant-${index}`);
/** What a client reads if the replica does not answer. */
const LOST = "The replica of this tenant does not answer. Retry.";

/**
 * The tests of a proxy in front of two services.
 * @param unavailable the HTTP status with which it reports that a replica does not answer
 */
export function proxySuite(start: StartProxy, unavailable: number): void {
  const file = new TokensFile();
  /** Two tokens for each tenant. */
  const tokens = new Map<string, readonly [string, string]>();
  const sandboxes = new Map<string, string>();
  const clients: Client[] = [];
  let operator = "";
  let replicas: ServeProcess[] = [];
  let proxy: RunningProxy;
  const settings = { BERTH_ENGINE: "bubblewrap", BERTH_TOKENS: file.path };

  beforeAll(async () => {
    const ids = new Map<string, string>();
    for (const tenant of TENANTS) {
      const pair = [await file.add(tenant), await file.add(tenant)] as const;
      tokens.set(tenant, pair);
      for (const token of pair) ids.set(tokenIdIn(token) ?? "", tenant);
    }
    operator = await file.add("operators", { scope: "admin" });
    const replica = (): Promise<ServeProcess> =>
      ServeProcess.start([], { ...settings, BERTH_LISTEN: `${ownLoopback()}:0` });
    replicas = await Promise.all([replica(), replica()]);
    proxy = await start(
      replicas.map(({ address }) => address),
      ids,
    );
    for (const tenant of TENANTS) {
      const { sandbox_id: id } = await through(tenant).createSandbox();
      sandboxes.set(tenant, id);
    }
  });
  afterAll(async () => {
    for (const client of clients) client.close();
    await proxy?.[Symbol.asyncDispose]();
    for (const replica of replicas) await replica.dispose();
  });

  const tokenOf = (tenant: string, which: 0 | 1 = 0): string => tokens.get(tenant)?.[which] ?? "";
  const sandboxOf = (tenant: string): string => sandboxes.get(tenant) ?? "";

  function keep(client: Client): Client {
    clients.push(client);
    return client;
  }

  /** A client of a tenant, with its first or its second token. */
  function through(tenant: string, which: 0 | 1 = 0): Client {
    const credentials = grpc.credentials.createSsl(proxy.certificate);
    return keep(clientWith(proxy.address, tokenOf(tenant, which), {}, credentials));
  }

  /** How many of the tenant's sandboxes each replica has. */
  async function placesOf(tenant: string): Promise<number[]> {
    const counts: number[] = [];
    for (const { address } of replicas) {
      const client = keep(clientWith(address, tokenOf(tenant)));
      counts.push((await client.call("SandboxService/ListSandboxes")).sandboxes.length);
    }
    return counts;
  }

  test("a tenant is on one replica, with any of its tokens, and both replicas have tenants", async () => {
    let first = 0;
    for (const tenant of TENANTS) {
      const places = await placesOf(tenant);
      expect(places.toSorted()).toEqual([0, 1]);
      first += places[0] ?? 0;
      await expect(through(tenant, 1).output(sandboxOf(tenant), "echo here")).resolves.toBe("here\n");
    }
    expect(first).toBeGreaterThan(0);
    expect(first).toBeLessThan(TENANTS.length);
  });

  test("a tenant does not see another's sandboxes, on either replica", async () => {
    for (const [index, tenant] of TENANTS.entries()) {
      const other = TENANTS[(index + 1) % TENANTS.length] ?? "";
      const { sandboxes: seen } = await through(tenant).call("SandboxService/ListSandboxes");
      expect(seen.map(({ sandbox_id: id }) => id)).toEqual([sandboxOf(tenant)]);
      expect(await failureOf(through(tenant).getSandbox(sandboxOf(other)))).toMatchObject({
        code: "NOT_FOUND",
      });
    }
  });

  test("an admin reaches a tenant by the header berth-tenant; others may not", async () => {
    const credentials = grpc.credentials.createSsl(proxy.certificate);
    for (const tenant of TENANTS) {
      const header = { "berth-tenant": tenant };
      const admin = keep(clientWith(proxy.address, operator, header, credentials));
      const found = admin.getSandbox(sandboxOf(tenant));
      await expect(found).resolves.toMatchObject({ sandbox_id: sandboxOf(tenant) });
      const stranger = keep(clientWith(proxy.address, tokenOf("tenant-0"), header, credentials));
      if (tenant !== "tenant-0") {
        const failure = await failureOf(stranger.getSandbox(sandboxOf(tenant)));
        expect(failure).toMatchObject({ code: "PERMISSION_DENIED" });
      }
    }
  });

  test("streams pass whole in both directions, and without delay", async () => {
    const [client, id] = [through("tenant-0"), sandboxOf("tenant-0")];
    const bytes = 20_000_000;
    const chunk = Buffer.alloc(64 * 1024, "x");
    const target = { sandbox_id: id, path: "/tmp/large" };
    function* parts() {
      yield { header: target };
      for (let sent = 0; sent < bytes; sent += chunk.length) yield { chunk: chunk.subarray(0, bytes - sent) };
    }
    await client.upload("FileService/UploadFile", parts());
    let received = 0;
    for await (const item of client.stream("FileService/DownloadFile", target))
      received += item.chunk?.length ?? 0;
    expect(received).toBe(bytes);

    // The command waits for a file that is written after its first line has arrived.
    const execution = client.exec(id, "echo first; until [ -e /tmp/go ]; do sleep 0.05; done; echo second");
    await execution.until("first\n");
    await client.output(id, ": >/tmp/go");
    expect((await execution.result).stdout.toString()).toBe("first\nsecond\n");
  });

  test("Connect's JSON passes", async () => {
    const [status, body] = await post("/berth.v1.SandboxService/ListSandboxes", tokenOf("tenant-3"));
    expect(status).toBe(200);
    expect(JSON.parse(body).sandboxes[0].sandboxId).toBe(sandboxOf("tenant-3"));
  });

  test("a tenant is on one replica, however its token's header is written", async () => {
    for (const tenant of TENANTS.slice(0, 5)) {
      for (const scheme of ["Bearer", "bearer", "BEARER", "Bearer  "]) {
        const [, body] = await post("/berth.v1.SandboxService/ListSandboxes", tokenOf(tenant), scheme);
        expect([scheme, JSON.parse(body).sandboxes[0]?.sandboxId]).toEqual([scheme, sandboxOf(tenant)]);
      }
    }
  });

  test("a replica that is down: its tenants get UNAVAILABLE, others continue, and it comes back", async () => {
    const [lost] = replicas;
    if (lost === undefined) throw new Error("not started");
    const places = await Promise.all(TENANTS.map(placesOf));
    const on = (replica: number): string[] => TENANTS.filter((_, index) => places[index]?.[replica] === 1);
    await lost.stop("SIGKILL");

    for (const tenant of on(0)) {
      expect(await failureOf(through(tenant).getSandbox(sandboxOf(tenant)))).toMatchObject({
        code: "UNAVAILABLE",
        message: LOST,
      });
    }
    const [status, body] = await post("/berth.v1.SandboxService/ListSandboxes", tokenOf(on(0)[0] ?? ""));
    expect([status, body.trimEnd()]).toEqual([unavailable, LOST]);
    for (const tenant of on(1)) {
      expect(await through(tenant).output(sandboxOf(tenant), "echo here")).toBe("here\n");
    }

    replicas[0] = await lost.again([], { ...settings, BERTH_LISTEN: lost.address });
    // bubblewrap's sandboxes ended with their service. New ones are on the same replica.
    for (const tenant of on(0)) {
      const client = through(tenant);
      const created = await eventually(() => client.createSandbox().catch(() => undefined));
      const direct = keep(clientWith(lost.address, tokenOf(tenant)));
      expect((await direct.getSandbox(created.sandbox_id)).sandbox_id).toBe(created.sandbox_id);
    }
  });

  function post(
    path: string,
    token: string,
    scheme = "Bearer",
  ): Promise<readonly [status: number | undefined, body: string]> {
    return new Promise((resolve, reject) => {
      const headers = { authorization: `${scheme} ${token}`, "content-type": "application/json" };
      const options = { socketPath: proxy.socket, host: "localhost", ca: proxy.certificate, method: "POST" };
      request({ ...options, path, headers }, (response) => {
        text(response).then((body) => resolve([response.statusCode, body]), reject);
      })
        .on("error", reject)
        .end("{}");
    });
  }
}
