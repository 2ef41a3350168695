import { describe, expect, test } from "vitest";
import { useApp } from "../../support/app.ts";
import { DESKTOP_ENGINES, TestDesktop } from "../../support/desktop.ts";
import { testsInTurn } from "../../support/engines.ts";
import { eventually } from "../../support/eventually.ts";
import { Worker } from "../../support/worker.ts";
import { WorkspaceClient } from "../../support/workspaces.ts";

describe.each(DESKTOP_ENGINES)("on $name", ({ name, settings }) => {
  const it = testsInTurn(name);
  const app = useApp({ ...settings, warmSessions: [{ resourceType: "vm", count: 1 }] });
  let serial = 0;

  async function filled(): Promise<void> {
    await eventually(async () => {
      const { warm_pools: pools } = await app.client.call("SandboxService/GetStats", {});
      const pool = pools.find(({ resource_type: type }) => type === "vm");
      expect(pool?.target).toBe(1);
      return pool?.ready === 1;
    });
  }

  /** Takes a desktop from the pool. Also returns the time to its first picture. */
  async function take(config: Readonly<Record<string, unknown>> = {}) {
    await filled();
    const desktop = new TestDesktop(new Worker(app.client, `user ${++serial}`));
    const began = performance.now();
    await desktop.start(config);
    const { data, picture } = await desktop.screenshot();
    const ms = performance.now() - began;
    return { desktop, data, picture, ms };
  }

  test("a session of the default config is one of the pool", async () => {
    const times: number[] = [];
    for (let round = 0; round < 3; round++) {
      const { desktop, picture, ms } = await take();
      expect([picture.width, picture.height]).toEqual([1920, 1080]);
      times.push(ms);
      await desktop.worker.destroy("vm");
    }
    console.log(`a session of the pool to its first picture: ${times.map(Math.round).join(", ")} ms`);
  });

  it("another size is given in place", async () => {
    const { desktop, data, picture } = await take({ screen_size: [801, 601], custom_name: "small" });
    expect([picture.width, picture.height]).toEqual([801, 601]);
    expect(data).toMatchObject({ width: 801, height: 601, session_restarted: false });
    await desktop.worker.destroy("vm");
  });

  it("a setting that cannot be changed in place restarts the desktop, in the same sandbox", async () => {
    const { desktop } = await take({ env: { GREETING: "hello" } });
    await desktop.do("launch", { command: 'xterm -T "$GREETING"' });
    await desktop.window(({ title }) => title === "hello");
    await desktop.worker.destroy("vm");
  });

  test("programs start in the session's workspace, which is mounted after the desktop starts", async () => {
    await new WorkspaceClient(() => app.client).create("project");
    await filled();
    const desktop = new TestDesktop(new Worker(app.client, `user ${++serial}`));
    const { session } = await desktop.worker.create("vm", {}, { workspace_id: "project" });
    await desktop.do("launch", { command: "echo made >file" });
    await eventually(
      async () =>
        (await app.client.output(session?.sandbox_id ?? "", "cat /workspace/file; true")) === "made\n",
    );
    await desktop.worker.destroy("vm");
  });

  it("a size that is impossible in place restarts the desktop", async () => {
    const { desktop, picture } = await take({ screen_size: [7000, 100] });
    expect([picture.width, picture.height]).toEqual([7000, 100]);
    await desktop.worker.destroy("vm");
  });

  it("an error of it names the session", async () => {
    const { desktop } = await take();
    // A call that starts after the end was noticed gets another desktop, and does not fail.
    const failure = await eventually(() =>
      desktop.worker
        .execute("vm:launch", { command: "kill -KILL $(pidof Xvfb)" })
        .then(() => desktop.worker.execute("vm:screenshot", {}))
        .then(
          () => false,
          (error: unknown) => String(error),
        ),
    );
    expect(failure).toMatch(/session "?vm_user \d+_001_/);
    expect((await desktop.screenshot()).data.session_restarted).toBe(true);
    await desktop.worker.destroy("vm");
  });
});
