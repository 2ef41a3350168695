import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { useApp } from "../../support/app.ts";
import { DESKTOP_IMAGE } from "../../support/images.ts";
import { decodePng } from "../../support/png.ts";
import { ServeProcess } from "../../support/program.ts";
import { fromStruct } from "../../support/wire-sessions.ts";
import { Worker } from "../../support/worker.ts";

/** The examples of the document from which sessions come, with "vm" as written there. */
describe("over the API", () => {
  const app = useApp({ engine: "docker" });
  const CONFIG = { screen_size: [1920, 1080], custom_name: "my_vm" };

  test("an explicit session is used by each call, until it is destroyed", async () => {
    const worker = new Worker(app.client, "agent");
    const { status, session } = await worker.create("vm", CONFIG);
    expect(status).toBe("SESSION_RESULT_STATUS_CREATED");
    expect(session?.name).toBe("vm_agent_001_my_vm");
    const id = session?.session_id;
    const screenshot = await worker.execute("vm:screenshot", {});
    expect(screenshot).toMatchObject({ code: 0, message: "success", data: { width: 1920, height: 1080 } });
    expect(screenshot.meta).toMatchObject({
      tool: "screenshot",
      resource_type: "vm",
      session_id: id,
      temporary_session: false,
    });
    const picture = decodePng(screenshot.attachments[0]?.content ?? Buffer.alloc(0));
    expect([picture.width, picture.height]).toEqual([1920, 1080]);
    // y is the pointer's: the middle of the screen.
    expect((await worker.execute("vm:click", { x: 100 })).data).toMatchObject({ x: 100, y: 540 });
    const typed = await worker.execute("vm:type", { text: "hello" });
    expect(typed).toMatchObject({ code: 0, data: { characters: 5 } });
    expect(typed.meta.session_id).toBe(id);
    expect((await worker.destroy("vm")).map((result) => result.status)).toEqual([
      "SESSION_RESULT_STATUS_DESTROYED",
    ]);
    expect(await worker.list()).toEqual([]);
  });

  test("a call without a session has a temporary one", async () => {
    const worker = new Worker(app.client, "passer-by");
    const first = await worker.execute("vm:screenshot", {});
    const second = await worker.execute("vm:click", { x: 100 });
    for (const { code, meta } of [first, second])
      expect({ code, temporary: meta.temporary_session }).toEqual({ code: 0, temporary: true });
    expect(second.meta.session_id).not.toBe(first.meta.session_id);
    expect(await worker.list()).toEqual([]);
  });

  test("reinitialize gives another size, and leaves other sessions alone", async () => {
    const worker = new Worker(app.client, "changer");
    const { session } = await worker.create("vm", { screen_size: [1920, 1080] });
    const bash = await worker.create("bash");
    const began = performance.now();
    const answer = await worker.reinitialize("vm", { screen_size: [2560, 1440] });
    console.log(`reinitialized without a warm pool: ${Math.round(performance.now() - began)} ms`);
    expect(answer.status).toBe("SESSION_RESULT_STATUS_REINITIALIZED");
    expect(answer.old_session_id).toBe(session?.session_id);
    expect(answer.new_session_id).not.toBe(answer.old_session_id);
    expect(fromStruct(answer.config_applied)).toMatchObject({ screen_size: [2560, 1440] });
    const { attachments } = await worker.execute("vm:screenshot", {});
    const { width, height } = decodePng(attachments[0]?.content ?? Buffer.alloc(0));
    expect([width, height]).toEqual([2560, 1440]);
    const sessions = await worker.list();
    expect(sessions.map((one) => [one.resource_type, one.session_id, one.status])).toEqual(
      expect.arrayContaining([
        ["vm", answer.new_session_id, "SESSION_STATUS_ACTIVE"],
        ["bash", bash.session?.session_id, "SESSION_STATUS_ACTIVE"],
      ]),
    );
    await worker.destroy();
  });
});

describe("with the command line", () => {
  let service: ServeProcess;
  beforeAll(async () => {
    service = await ServeProcess.start(["--desktop-image", DESKTOP_IMAGE]);
  });
  afterAll(() => service.stop());

  async function run(...args: string[]): Promise<string> {
    const { stdout, stderr, exitCode } = await service.run(args);
    expect(exitCode, stderr).toBe(0);
    return stdout.toString();
  }

  test("a session with a size and a name, its tools, and its end", async () => {
    const id = (await run("session", "create", "vm", "screen_size:=[1920,1080]", "custom_name=my_vm")).trim();
    expect(id).toMatch(/^vm_default_001_my_vm_[0-9a-f]{8}$/);
    expect(JSON.parse(await run("tool", "run", "vm:screenshot"))).toMatchObject({
      width: 1920,
      height: 1080,
    });
    expect(JSON.parse(await run("tool", "run", "vm:click", "x:=100"))).toMatchObject({ x: 100, y: 540 });
    expect(JSON.parse(await run("tool", "run", "vm:type", "text=hello"))).toMatchObject({ characters: 5 });
    const other = (await run("session", "reset", "vm", "--config", '{"screen_size": [2560, 1440]}')).trim();
    expect(other).not.toBe(id);
    expect(JSON.parse(await run("tool", "run", "vm:screenshot"))).toMatchObject({
      width: 2560,
      height: 1440,
    });
    expect((await run("session", "rm", "vm")).trim()).toBe(other);
  });

  test("a temporary one", async () => {
    expect(JSON.parse(await run("tool", "run", "vm:screenshot"))).toMatchObject({
      width: 1920,
      height: 1080,
    });
    expect(await run("session", "ls")).toMatch(/^ID\s+WORKER\b.*\n$/);
  });
});
