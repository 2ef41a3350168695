import { readFile, writeFile } from "node:fs/promises";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { type Client, failureOf } from "../../support/client.ts";
import { eventually } from "../../support/eventually.ts";
import { LastingService } from "../../support/lasting-service.ts";
import { makeTar } from "../../support/tar-builder.ts";
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
});
afterAll(() => service?.[Symbol.asyncDispose]());

afterEach(async () => {
  for (const index of [0, 1] as const) {
    await as(index, async (client) => {
      const { sandboxes } = await client.call("SandboxService/ListSandboxes");
      await Promise.all(sandboxes.map(({ sandbox_id: id }) => client.deleteSandbox(id)));
    });
  }
});

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

test("a tenant is held to its quotas, also after a restart and a change of the file, and another is not", async () => {
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

test("a tenant's sessions are held to its quota, in all its sandboxes together", async () => {
  await setQuota("{sessions: 2}");
  await as(0, async (ann) => {
    await eventually(async () => (await quotasOf(ann)).sessions?.[1] === 2);
    const boxes = await Promise.all([ann.createSandbox(), ann.createSandbox()]);
    const create = async (worker: string, at: 0 | 1) => {
      const resources = [{ resource_type: "files", sandbox_id: boxes[at]?.sandbox_id }];
      const { results } = await ann.call("SessionService/CreateSessions", { worker_id: worker, resources });
      return results[0]?.failure?.detail ?? null;
    };
    expect([await create("one", 0), await create("two", 1)]).toEqual([null, null]);
    expect(await create("three", 0)).toMatchObject({
      reason: "ERROR_REASON_TENANT_QUOTA",
      metadata: { quota: "sessions", limit: "2", used: "2", asked: "1" },
    });
    expect((await quotasOf(ann)).sessions).toEqual([2, 2]);
    // The sessions of a sandbox that ends no longer count.
    await ann.deleteSandbox(boxes[0]?.sandbox_id ?? "");
    expect((await quotasOf(ann)).sessions).toEqual([1, 2]);
    boxes.reverse();
    expect(await create("three", 0)).toBeNull();
  });
});

const MIB = 1 << 20;

test("past its disk quota a tenant gets no sandbox over a workspace and no import, until files are removed", async () => {
  await setQuota("{workspaces: 2MiB}");
  const fill = async (client: Client, id: string): Promise<string> => {
    await client.call("WorkspaceService/CreateWorkspace", { workspace_id: id });
    const { sandbox } = await client.call("WorkspaceService/EnsureWorkspaceSandbox", { workspace_id: id });
    await client.output(sandbox?.sandbox_id ?? "", "head -c 1500000 /dev/urandom > file");
    await client.call("WorkspaceService/GetWorkspace", { workspace_id: id, measure_size: true });
    return sandbox?.sandbox_id ?? "";
  };
  await as(0, async (ann) => {
    await eventually(async () => (await quotasOf(ann)).workspace_bytes?.[1] === 2 * MIB);
    const one = await fill(ann, "one");
    await fill(ann, "two");
    const [used] = (await quotasOf(ann)).workspace_bytes ?? [];
    expect(used).toBeGreaterThanOrEqual(3_000_000);
    await ann.call("WorkspaceService/CreateWorkspace", { workspace_id: "three" });
    const ensure = () => ann.call("WorkspaceService/EnsureWorkspaceSandbox", { workspace_id: "three" });
    const imports = () =>
      ann.upload("WorkspaceService/ImportWorkspace", [
        { header: { workspace_id: "three" } },
        { chunk: makeTar([{ name: "small", content: "x" }]) },
      ]);
    const forks = () =>
      ann.call("WorkspaceService/ForkWorkspace", { source_workspace_id: "two", workspace_id: "four" });
    const spec = { mounts: [{ workspace_id: "three", target: "/w" }] };
    const isRefused = {
      reason: "TENANT_QUOTA",
      metadata: { quota: "workspace_bytes", limit: String(2 * MIB) },
    };
    const creates = () => ann.createSandbox(spec);
    for (const refused of [ensure, creates, imports, forks])
      expect(await failureOf(refused())).toMatchObject({ code: "RESOURCE_EXHAUSTED", ...isRefused });
    const resources = [{ resource_type: "bash", workspace_id: "three" }];
    const session = { worker_id: "w", resources };
    const { results } = await ann.call("SessionService/CreateSessions", session);
    expect(results).toMatchObject([{ failure: { detail: { reason: "ERROR_REASON_TENANT_QUOTA" } } }]);
    // Without a workspace it gets what it asks for.
    await ann.createSandbox();
    // Running sandboxes continue, so that somebody can free space.
    await ann.output(one, "rm file");
    await imports();
    expect((await ensure()).sandbox?.state).toBe("SANDBOX_STATE_RUNNING");
    await creates();
    // One more fits: the size of a fork is reserved before it is copied.
    await ann.call("WorkspaceService/CleanupWorkspace", { workspace_id: "two", force: true });
    await ann.output(one, "head -c 800000 /dev/urandom > file");
    await ann.call("WorkspaceService/GetWorkspace", { workspace_id: "one", measure_size: true });
    const ends = await Promise.allSettled(
      ["five", "six"].map((id) =>
        ann.call("WorkspaceService/ForkWorkspace", { source_workspace_id: "one", workspace_id: id }),
      ),
    );
    expect(ends.filter(({ status }) => status === "fulfilled").length).toBeLessThan(2);
    expect((await quotasOf(ann)).workspace_bytes?.[0]).toBeLessThanOrEqual(2 * MIB);
  });
  await as(1, async (bob) => {
    for (const id of ["one", "two", "three"]) await fill(bob, id);
  });
});

test("past its quota of stored output a tenant's oldest is dropped, and another's stays", async () => {
  await setQuota("{transcripts: 1MiB}");
  const write = async (client: Client): Promise<number | undefined> => {
    const { sandbox_id: id } = await client.createSandbox();
    for (let i = 0; i < 4; i++) await client.exec(id, "head -c 524288 /dev/zero").result;
    return (await quotasOf(client)).transcript_bytes?.[0];
  };
  await as(0, async (ann) => {
    await eventually(async () => (await quotasOf(ann)).transcript_bytes?.[1] === MIB);
    expect(await write(ann)).toBeLessThanOrEqual(MIB);
  });
  await as(1, async (bob) => {
    expect(await write(bob)).toBeGreaterThanOrEqual(2 * MIB);
  });
});

test("GetStats reveals nothing of another tenant's activity", async () => {
  await setQuota("{}");
  await as(1, async (bob) => {
    const before = await bob.call("SandboxService/GetStats");
    await as(0, async (ann) => {
      const { sandbox_id: id } = await ann.createSandbox();
      await ann.output(id, "head -c 100000 /dev/zero");
      await ann.call("WorkspaceService/CreateWorkspace", { workspace_id: "of-ann-alone" });
      const stats = await ann.call("SandboxService/GetStats");
      expect(stats).not.toEqual(before);
      expect(await bob.call("SandboxService/GetStats")).toEqual(before);
    });
  });
});

test("imports count towards a tenant's disk quota as they arrive: concurrent, replacing and endless ones", async () => {
  await setQuota("{workspaces: 4MiB}");
  await as(0, async (ann) => {
    await eventually(async () => (await quotasOf(ann)).workspace_bytes?.[1] === 4 * MIB);
    const { workspaces } = await ann.call("WorkspaceService/ListWorkspaces");
    for (const { workspace_id: id } of workspaces)
      await ann.call("WorkspaceService/CleanupWorkspace", { workspace_id: id, force: true });
    let sent = 0;
    const imports = (id: string, { files = 1, replace = false } = {}) => {
      function* requests() {
        yield { header: { workspace_id: id, replace } };
        for (let at = 0; at < files; at++) {
          sent = at;
          const tar = makeTar([{ name: `${at}`, content: "x".repeat(1_500_000) }], Buffer.alloc(0));
          for (let from = 0; from < tar.length; from += MIB / 2)
            yield { chunk: tar.subarray(from, from + MIB / 2) };
        }
        yield { chunk: Buffer.alloc(1024) };
      }
      return ann.upload("WorkspaceService/ImportWorkspace", requests());
    };
    const ends = await Promise.allSettled(["a", "b", "c", "d"].map((id) => imports(id)));
    const whole = ["a", "b", "c", "d"].filter((_, at) => ends[at]?.status === "fulfilled");
    expect(whole).toHaveLength(2);
    const isRefused = { reason: "TENANT_QUOTA", metadata: { quota: "workspace_bytes" } };
    expect(await failureOf(imports("e"))).toMatchObject(isRefused);
    // Replaced content frees space.
    await imports(whole[0] ?? "", { replace: true });
    expect(await failureOf(imports(whole[0] ?? "", { replace: true, files: 2 }))).toMatchObject(isRefused);
    for (const replace of [false, true]) {
      expect(await failureOf(imports("f", { replace, files: 100 }))).toMatchObject(isRefused);
      expect(sent).toBeLessThan(99);
    }
    expect((await quotasOf(ann)).workspace_bytes?.[0]).toBeLessThanOrEqual(4 * MIB);
  });
});
