import { existsSync, readdirSync } from "node:fs";
import { readdir, stat } from "node:fs/promises";
import path from "node:path";
import { describe, expect, test } from "vitest";
import { ENGINES } from "../../support/engines.ts";
import { eventually } from "../../support/eventually.ts";
import { holdTarsOnce, tarsIn } from "../../support/host-tools.ts";
import { useLastingApp } from "../../support/lasting-service.ts";
import { manyNames } from "../../support/many-names.ts";
import { WorkspaceClient } from "../../support/workspaces.ts";

const WORKSPACES = 20;
const CHANGES = 100;
/** Copying or removing so many files takes some tenths of a second. */
const MANY = 20_000;

describe.each(ENGINES)("on $name", ({ name }) => {
  const service = useLastingApp({ BERTH_ENGINE: name });
  const workspaces = new WorkspaceClient(() => service.client);

  test("100 concurrent reference changes on 20 workspaces, with three kills in between, leave exact references", async () => {
    // The last requests for each trace, and whether they were answered.
    const wanted = new Map<string, { readonly candidates: (string | undefined)[] }>();
    const idOf = (index: number) => `workspace ${index % WORKSPACES}`;
    for (let round = 0; round < 4; round++) {
      const changes = Array.from({ length: CHANGES }, async (_, index) => {
        const trace = `trace ${index}`;
        const before = wanted.get(trace)?.candidates ?? [undefined];
        const remove = round > 0 && index % 3 === 0 && before.length === 1 && before[0] !== undefined;
        const target = remove ? undefined : idOf(index * 7 + round);
        const call = remove
          ? workspaces.removeRef(before[0] as string, trace)
          : workspaces.addRef(idOf(index * 7 + round), trace);
        // An unanswered one may or may not have been created.
        const answered = await call.then(
          () => true,
          () => false,
        );
        wanted.set(trace, { candidates: answered ? [target] : [...before, target] });
      });
      if (round < 3) {
        // In the middle: some have been answered, others have not.
        await Promise.race(changes);
        await service.kill();
      }
      await Promise.all(changes);
      if (round < 3) await service.begin();
    }
    const { workspaces: all } = await workspaces.list();
    const holders = new Map<string, string>();
    for (const workspace of all) {
      expect(workspace.ref_count).toBe(workspace.trace_refs.length);
      for (const trace of workspace.trace_refs) {
        expect(holders.has(trace)).toBe(false);
        holders.set(trace, workspace.workspace_id);
      }
    }
    for (const [trace, { candidates }] of wanted) {
      expect(candidates).toContain(holders.get(trace));
      const found = await workspaces.lookup(trace).then(
        (workspace) => workspace.workspace_id,
        () => undefined,
      );
      expect(found).toBe(holders.get(trace));
    }
  });

  test("a workspace's sandbox is found after a kill: a running one is used again, one that ended is replaced", async () => {
    const made = await workspaces.ensure("known");
    const id = made.workspace.sandbox_id;
    await service.client.output(id, "echo kept > file");
    await service.kill();
    await service.begin();
    const lives = name === "docker";
    await eventually(async () => (await workspaces.get("known")).sandbox_id === (lives ? id : ""));
    expect(await workspaces.ensure("known")).toMatchObject({
      reused: lives,
      sandbox: { sandbox_id: id, generation: lives ? 1 : 2 },
    });
    expect(await service.client.output(id, "cat file")).toBe("kept\n");
    await workspaces.cleanup("known", { force: true });
  });

  test("a forced cleanup interrupted by a kill is finished at the next start, and its retry is answered once", async () => {
    const { workspace } = await workspaces.ensure("cut short");
    await workspaces.addRef("cut short", "trace");
    await service.client.output(workspace.sandbox_id, `mkdir -p a/b && cd a/b && ${manyNames(MANY)}`);
    const cut = workspaces
      .cleanup("cut short", { force: true, request_id: "cleanup" })
      .catch(() => undefined);
    // The deletion has started when the workspace is no longer found.
    for (;;) {
      const gone = await workspaces.get("cut short").then(
        () => false,
        () => true,
      );
      if (gone) break;
    }
    await service.kill();
    const answered = await cut;
    await service.begin();
    const retry = await workspaces.cleanup("cut short", { force: true, request_id: "cleanup" });
    expect(retry).toMatchObject({ deleted: true, cleared_ref_count: 1 });
    expect(answered ?? retry).toMatchObject({ deleted: true });
    await expect(stat(workspace.path)).rejects.toThrow("ENOENT");
    expect((await workspaces.list()).broken).toEqual([]);
    await expect(workspaces.lookup("trace")).rejects.toThrow("NOT_FOUND");
    // An answered deletion is complete: the name is free.
    expect((await workspaces.create("cut short")).trace_refs).toEqual([]);
  });

  test("a fork interrupted by a kill leaves nothing, nor a tool at work, and its retry completes it", async () => {
    const id = await workspaces.sandbox("source");
    await service.client.output(id, `mkdir many; cd many; ${manyNames(MANY)}`);
    const { path: from } = await workspaces.stop("source");
    const forking = workspaces.fork("source", "fork", { request_id: "fork" }).catch(() => undefined);
    const staging = path.join(path.dirname(from), ".staging");
    const copied = (): boolean => {
      const [fork] = readdirSync(staging).filter((entry) => entry.startsWith("fork-"));
      return existsSync(path.join(staging, `${fork}`, "tree/many"));
    };
    await holdTarsOnce(copied, path.dirname(from));
    await service.kill();
    await forking;
    await expect.poll(() => tarsIn(path.dirname(from))).toEqual([]);
    await service.begin();
    await eventually(async () => (await readdir(staging)).length === 0);
    expect((await workspaces.list()).workspaces.map(({ workspace_id: each }) => each)).not.toContain("fork");
    const fork = await workspaces.fork("source", "fork", { request_id: "fork" });
    expect(await readdir(path.join(fork.path, "many"))).toHaveLength(MANY);
    for (const each of ["fork", "source"]) await workspaces.cleanup(each, { force: true });
    expect((await workspaces.list()).broken).toEqual([]);
  });

  test("a sandbox that was created before the kill, but not answered, is the workspace's after the next start", async () => {
    await workspaces.create("killed");
    const ensuring = workspaces.ensure("killed").catch(() => undefined);
    for (;;) {
      const { sandboxes } = await service.client.call("SandboxService/ListSandboxes", {});
      if (sandboxes.some(({ spec }) => JSON.stringify(spec).includes("killed"))) break;
    }
    await service.kill();
    await ensuring;
    await service.begin();
    const { workspace, sandbox } = await workspaces.ensure("killed");
    expect(await service.client.output(workspace.sandbox_id, "pwd")).toBe("/workspace\n");
    const { sandboxes } = await service.client.call("SandboxService/ListSandboxes", {});
    expect(sandboxes.map(({ sandbox_id: id }) => id)).toEqual([sandbox?.sandbox_id]);
    await workspaces.cleanup("killed", { force: true });
  });
});
