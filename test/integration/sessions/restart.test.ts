import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { startTestApp } from "../../support/app.ts";
import { writeSecrets } from "../../support/secrets.ts";
import { Worker } from "../../support/worker.ts";

let dataDir = "";

beforeAll(async () => {
  dataDir = await mkdtemp(path.join(tmpdir(), "berth-sessions-"));
});
afterAll(() => rm(dataDir, { recursive: true, force: true }));

// Sandboxes of bubblewrap end with the service, so only the second half applies there.
test("after a restart a session continues in its sandbox, with a new interpreter; one without its sandbox says that it is lost", async () => {
  const secrets = writeSecrets(path.join(dataDir, "secrets.yaml"), { key: "hush" });
  const first = await startTestApp({ dataDir, secrets, leaveSandboxes: true });
  const stays = new Worker(first.client, "stays");
  const lost = new Worker(first.client, "lost");
  const { session } = await stays.create(
    "bash",
    { env: { GREETING: "hi" } },
    { secrets: { env: { S: "key" }, redact: true } },
  );
  await stays.create("files", undefined, { sandbox_id: session?.sandbox_id });
  const gone = (await lost.create("bash")).session;
  await stays.bash("x=1; echo kept > file");
  // A sandbox with a session in it is left running, because of the setting.
  await first.client.call("SandboxService/DeleteSandbox", { sandbox_id: gone?.sandbox_id });
  first.client.close();
  await first.app.stop();

  const second = await startTestApp({ dataDir, secrets, instance: first.instance });
  try {
    const again = new Worker(second.client, "stays");
    expect((await again.list()).map(({ session_id: id }) => id)).toContain(session?.session_id);
    const answer = await again.execute("bash:run", { command: "cat file; echo [$x] $GREETING ${#S} $S" });
    expect(answer).toMatchObject({
      data: { stdout: "kept\n[] hi 4 [redacted]\n", session_restarted: true },
      meta: { session_id: session?.session_id, temporary_session: false },
    });
    expect(await again.bash("true")).toMatchObject({ session_restarted: false });
    expect((await again.execute("files:read", { file_path: "file" })).data).toMatchObject({
      content: "   1→kept\n",
    });

    const orphan = new Worker(second.client, "lost");
    expect(await orphan.list()).toEqual([]);
    await expect(orphan.bash("true")).rejects.toThrow(
      /ABORTED: The session .* was lost: the server was restarted/,
    );
    expect((await orphan.execute("bash:run", { command: "true" })).meta.temporary_session).toBe(true);
  } finally {
    await second.stop();
  }
});
