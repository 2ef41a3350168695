import { readFile, writeFile } from "node:fs/promises";
import { afterAll, beforeAll, expect, test } from "vitest";
import { type Client, failureOf } from "../../support/client.ts";
import { eventually } from "../../support/eventually.ts";
import { LastingService } from "../../support/lasting-service.ts";
import { clientWith, TokensFile } from "../../support/tokens.ts";

const file = new TokensFile();
let tokens: string[] = [];
let service: LastingService;
beforeAll(async () => {
  tokens = [await file.add("ann"), await file.add("bob")];
  await setQuota("{sandboxes: 2, execs: 1}");
  service = await LastingService.start({
    BERTH_TOKENS: file.path,
    BERTH_ENGINE: "docker",
    BERTH_TENANT_MAX_SANDBOXES: "5",
    BERTH_TENANT_MAX_PIDS: "100000",
  });
}, 60_000);
afterAll(() => service?.[Symbol.asyncDispose](), 60_000);

async function setQuota(quota: string): Promise<void> {
  const text = await readFile(file.path, "utf8");
  await writeFile(file.path, text.replace(/ann: *\{.*$/m, `ann: {quota: ${quota}}`));
}

async function as<T>(index: 0 | 1, work: (client: Client) => Promise<T>): Promise<T> {
  const client = clientWith(service.address, tokens[index] ?? "");
  try {
    return await work(client);
  } finally {
    client.close();
  }
}

async function quotasOf(
  client: Client,
): Promise<Record<string, readonly [used: number, limit: number | undefined]>> {
  const { tenant_quotas: quotas } = await client.call("SandboxService/GetStats");
  return Object.fromEntries(quotas.map(({ quota, used, limit }) => [quota, [used, limit ?? undefined]]));
}

test("a tenant is held to its quotas, also after a restart and a change of the file, and another is not", {
  timeout: 120_000,
}, async () => {
  await as(0, async (ann) => {
    const failed = await failureOf(ann.createSandbox({ image: "berth-test-no-such-image:none" }));
    expect(failed.reason).toBe("IMAGE_UNAVAILABLE");
    expect((await quotasOf(ann)).sandboxes).toEqual([0, 2]);
    await ann.createSandbox();
    await ann.createSandbox();
    expect(await failureOf(ann.createSandbox())).toMatchObject({
      reason: "TENANT_QUOTA",
      metadata: { quota: "sandboxes", limit: "2", used: "2", asked: "1" },
    });
  });
  await service.kill();
  await service.begin();
  const id = await as(0, async (ann) => {
    expect(await quotasOf(ann)).toMatchObject({ sandboxes: [2, 2], pids: [expect.any(Number), 100_000] });
    expect((await failureOf(ann.createSandbox())).reason).toBe("TENANT_QUOTA");
    const { sandboxes } = await ann.call("SandboxService/ListSandboxes");
    const sandboxId = sandboxes[0]?.sandbox_id ?? "";
    const running = ann.exec(sandboxId, "sleep 300");
    await running.processId;
    expect(await failureOf(ann.output(sandboxId, "true"))).toMatchObject({
      reason: "TENANT_QUOTA",
      metadata: { quota: "execs", limit: "1", used: "1" },
    });
    running.call.cancel();
    await eventually(async () => (await quotasOf(ann)).execs?.[0] === 0);
    expect(await ann.output(sandboxId, "echo again")).toBe("again\n");
    return sandboxId;
  });
  await as(1, async (bob) => {
    for (let i = 0; i < 3; i++) await bob.createSandbox();
    expect(await quotasOf(bob)).toMatchObject({ sandboxes: [3, 5], execs: [0, undefined] });
  });
  await setQuota("{sandboxes: 3}");
  await as(0, async (ann) => {
    await eventually(async () => (await quotasOf(ann)).sandboxes?.[1] === 3);
    await ann.createSandbox();
    expect((await failureOf(ann.createSandbox())).reason).toBe("TENANT_QUOTA");
    await ann.call("SandboxService/DeleteSandbox", { sandbox_id: id });
    await ann.createSandbox();
  });
});
