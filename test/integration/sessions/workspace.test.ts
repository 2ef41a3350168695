import { describe, expect, test } from "vitest";
import { useApp } from "../../support/app.ts";
import { ENGINES } from "../../support/engines.ts";
import { eventually } from "../../support/eventually.ts";
import { type BashData, Worker } from "../../support/worker.ts";
import { WorkspaceClient } from "../../support/workspaces.ts";

describe.concurrent.each(ENGINES)("on $name", ({ settings }) => {
  const app = useApp(settings);
  const workspaces = new WorkspaceClient(() => app.client);

  test("a session with a workspace works on its files, which stay when the session and its sandbox end", async () => {
    await workspaces.create("project");
    const first = new Worker(app.client, "first");
    const { session } = await first.create("bash", undefined, { workspace_id: "project" });
    expect(session).toMatchObject({ workspace_id: "project" });
    expect(await first.bash("pwd; echo kept > notes")).toMatchObject({
      stdout: "/workspace\n",
      exit_code: 0,
    });
    // Another type and a restarted session use the same files.
    await first.create("files", undefined, { workspace_id: "project" });
    const read = await first.execute("files:read", { file_path: "notes" });
    expect(read.data).toMatchObject({ content: "   1→kept\n" });
    await first.reinitialize("bash");
    expect((await first.bash("cat notes; echo more >> notes")).stdout).toBe("kept\n");

    await first.destroy();
    const { sandbox_id: sandboxId = "" } = session ?? {};
    await eventually(
      async () => (await app.client.getSandbox(sandboxId)).state === "SANDBOX_STATE_TERMINATED",
    );
    const second = new Worker(app.client, "second");
    await second.create("bash", undefined, { workspace_id: "project" });
    expect((await second.bash("cat notes")).stdout).toBe("kept\nmore\n");
    const temporary = await new Worker(app.client, "third").execute<BashData>("bash:run", {
      command: "ls /workspace",
    });
    expect(temporary.data.stdout).toBe("");
  });

  test("a missing workspace fails the create and leaves no session", async () => {
    const worker = new Worker(app.client, "lost");
    const { status, failure } = await worker.create("bash", undefined, { workspace_id: "nowhere" });
    expect(status).toBe("SESSION_RESULT_STATUS_FAILED");
    expect(failure?.detail?.reason).toBe("ERROR_REASON_WORKSPACE_NOT_FOUND");
    expect(await worker.list()).toEqual([]);
  });
});
