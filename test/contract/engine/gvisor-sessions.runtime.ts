import { beforeAll, describe, expect, test } from "vitest";
import { useApp } from "../../support/app.ts";
import { BrowserClient } from "../../support/browser.ts";
import { TestDesktop } from "../../support/desktop.ts";
import { DESKTOP_IMAGE } from "../../support/images.ts";
import { type PythonData, Worker } from "../../support/worker.ts";

const MIB = 1024 * 1024;

/** Tests of sessions whose sandboxes run under gVisor. */
describe("sessions whose sandboxes run under gVisor", () => {
  const service = useApp({ engine: "docker", allowRuntimes: { runsc: "USER_KERNEL" } });

  describe("of the image for tests", () => {
    let worker: Worker;
    beforeAll(async () => {
      worker = new Worker(service.client, "programmer");
      const { sandbox_id } = await service.client.createSandbox({ runtime: "runsc" });
      for (const type of ["bash", "python", "code", "files"])
        expect((await worker.create(type, undefined, { sandbox_id })).failure, type).toBeNull();
    });

    test("bash keeps its state, in the sandbox's own kernel, and ends what takes too long", async () => {
      expect((await worker.bash("cat /proc/version")).stdout).toContain("gvisor");
      await worker.bash("cd /tmp; x=5; f() { echo f$x; }");
      expect(await worker.bash("f; pwd; echo err >&2; (exit 3)")).toMatchObject({
        ...{ stdout: "f5\n/tmp\n", stderr: "err\n", exit_code: 3, cwd: "/tmp", session_lost: false },
      });
      const slow = await worker.execute("bash:run", { command: "sleep 1000", timeout: 1 });
      expect(slow).toMatchObject({ code: 5006, data: { timed_out: true } });
      expect(await worker.bash("echo on")).toMatchObject({ stdout: "on\n" });
    });

    test("a bash that is killed is lost, and the next call has a new one", async () => {
      expect(await worker.bash("kill -9 $$")).toMatchObject({ session_lost: true });
      expect(await worker.bash("echo again")).toMatchObject({ stdout: "again\n", session_restarted: true });
    });

    test("python keeps its variables, reports its exceptions, and can be interrupted", async () => {
      const run = (code: string, more = {}) => worker.execute<PythonData>("python:run", { code, ...more });
      await run("x = 20");
      expect((await run("print('out'); x * 2 + 2")).data).toMatchObject({ stdout: "out\n", result: "42" });
      expect((await run("1 / 0")).data.error).toMatchObject({ name: "ZeroDivisionError" });
      expect((await run("while True: pass", { timeout: 1 })).data.timed_out).toBe(true);
      expect((await run("x")).data).toMatchObject({ result: "20", session_restarted: false });
    });

    test("code runs in separate processes, and its files stay", async () => {
      const execute = (code: string) => worker.execute("code:execute", { language: "python", code });
      expect((await execute("y = 1; open('kept', 'w').write('k')")).data).toMatchObject({ exit_code: 0 });
      expect((await execute("print(open('kept').read())")).data).toMatchObject({ stdout: "k\n" });
      expect((await execute("y")).data).toMatchObject({ exit_code: 1 });
    });

    test("files are written, edited and found", async () => {
      await worker.execute("files:write", { file_path: "src/a.txt", content: "one\ntwo\n" });
      expect((await worker.execute("files:read", { file_path: "src/a.txt" })).data).toMatchObject({
        content: "   1→one\n   2→two\n",
      });
      const found = await worker.execute("files:grep", { pattern: "two" });
      expect(JSON.stringify(found.data)).toContain("src/a.txt");
    });
  });

  describe("of the image for desktops", () => {
    let sandboxId = "";
    beforeAll(async () => {
      const resources = { memory_bytes: 3072 * MIB, pids_limit: 2048, cpu_millis: 2000 };
      const spec = { runtime: "runsc", image: DESKTOP_IMAGE, resources };
      sandboxId = (await service.client.createSandbox(spec)).sandbox_id;
    });

    test("a desktop shows its screen and takes clicks", { timeout: 240_000 }, async () => {
      const desktop = new TestDesktop(new Worker(service.client, "clerk"));
      await desktop.start({ screen_size: [801, 601] }, { sandbox_id: sandboxId });
      const { picture } = await desktop.screenshot();
      expect([picture.width, picture.height]).toEqual([801, 601]);
      expect(await desktop.do("click", { x: 300, y: 200 })).toMatchObject({ x: 300, y: 200 });
      await desktop.worker.destroy("vm");
    });

    test("a browser opens pages, runs their scripts, and shows them", { timeout: 240_000 }, async () => {
      const browser = new BrowserClient(new Worker(service.client, "surfer"));
      const more = { sandbox_id: sandboxId };
      expect((await browser.worker.create("browser", { viewport: [800, 600] }, more)).failure).toBeNull();
      const page = "<title>One</title><button onclick=\"document.title='Two'\">go</button>";
      expect(await browser.show(page)).toMatchObject({ title: "One" });
      expect(await browser.evaluate("document.querySelector('button').click(); document.title")).toBe("Two");
      const { data } = await browser.call("screenshot");
      expect(data).toMatchObject({ width: 800, height: 600 });
      await browser.worker.destroy("browser");
    });
  });
});
