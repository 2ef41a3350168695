import { afterEach, beforeAll, describe, expect, test } from "vitest";
import { useApp } from "../../support/app.ts";
import { failureOf } from "../../support/client.ts";
import { DESKTOP_ENGINES } from "../../support/desktop.ts";
import { testsInTurn } from "../../support/engines.ts";
import { eventually } from "../../support/eventually.ts";
import { type ApiView, openView } from "../../support/view.ts";
import { Worker } from "../../support/worker.ts";

const [WIDTH, HEIGHT] = [800, 600];

describe.each(DESKTOP_ENGINES)("on $name", ({ name, settings }) => {
  const app = useApp(settings);
  const it = testsInTurn(name);
  const views: ApiView[] = [];
  let worker: Worker;
  let sandboxId = "";

  beforeAll(async () => {
    worker = new Worker(app.client, "viewed");
    const { session, failure } = await worker.create("vm", { screen_size: [WIDTH, HEIGHT] });
    expect(failure).toBeNull();
    sandboxId = session?.sandbox_id ?? "";
  });
  afterEach(async () => {
    for (const { rfb } of views.splice(0)) rfb.close();
    // A session has no time of expiry while somebody views it, and has room for few views.
    await expect.poll(async () => (await worker.list())[0]?.expire_time).not.toBeNull();
  });

  const open = async (more: Record<string, unknown> = {}): Promise<ApiView> => {
    const view = await openView(app.client, worker.id, more);
    views.push(view);
    return view;
  };
  /** Runs a program on the desktop. */
  const launch = (command: string) => worker.execute("vm:launch", { command });
  const output = (line: string): Promise<string> => app.client.output(sandboxId, line);
  /** A terminal with the focus, in which a program writes what is typed to a file in /tmp. */
  const launchReader = async (file: string, place: string) => {
    await launch(`xterm -title ${file} -geometry 60x10${place} -e sh -c 'cat > /tmp/${file}'`);
    await eventually(async () => (await output(`test -e /tmp/${file} && echo there || true`)) !== "");
    await eventually(async () => (await activeWindow()) === file);
  };
  const activeWindow = async (): Promise<string | undefined> => {
    interface Window {
      readonly title: string;
      readonly active: boolean;
    }
    const { data } = await worker.execute<{ windows: readonly Window[] }>("vm:windows");
    return data.windows.find(({ active }) => active)?.title;
  };
  const pointerAt = async (): Promise<string> => {
    await launch("sh -c 'rm -f /tmp/at; xdotool getmouselocation > /tmp/at.new; mv /tmp/at.new /tmp/at'");
    return eventually(
      async () => (await output("cat /tmp/at 2>/dev/null && rm /tmp/at || true")) || undefined,
    );
  };
  const viewers = () => output("pgrep -c x11vnc || true");

  test("the desktop is shown at once and exactly, and updates follow", async () => {
    const { started, rfb } = await open();
    expect(started).toMatchObject({ protocol: "rfb", width: WIDTH, height: HEIGHT, read_only: false });
    expect({ width: rfb.width, height: rfb.height }).toEqual({ width: WIDTH, height: HEIGHT });
    for (const [color, rgb] of [
      ["#d01020", 0xd01020],
      ["#1020d0", 0x1020d0],
    ] as const) {
      await launch(`xsetroot -solid '${color}'`);
      await rfb.until(() => rfb.pixel(3, HEIGHT - 3) === rgb);
    }
  });

  it("typing and pointing reach the desktop, in several scripts", async () => {
    await launchReader("typed", "+0+0");
    await launchReader("over", "+0+300");
    const { rfb } = await open();
    for (const buttons of [0, 1, 0]) await rfb.pointer(200, 60, buttons);
    await eventually(async () => (await activeWindow()) === "typed");
    await rfb.type("Hello жук 日本 {~}\n");
    let typed = "";
    await eventually(
      async () => {
        typed = await output("cat /tmp/typed");
        return typed === "Hello жук 日本 {~}\n";
      },
      { describe: () => typed },
    );
    expect(await output("cat /tmp/over")).toBe("");
    expect(await pointerAt()).toMatch(/^x:200 y:60 /);
  });

  it("a read-only view shows and does nothing else", async () => {
    await launchReader("unwanted", "+0+0");
    const { started, rfb } = await open({ read_only: true });
    expect(started.read_only).toBe(true);
    await rfb.pointer(11, 12);
    await rfb.type("intruder\n");
    // Its answer shows that the earlier events were read.
    await rfb.update(false);
    expect(await pointerAt()).not.toMatch(/^x:11 y:12 /);
    const other = await open();
    await other.rfb.type("guest\n");
    await eventually(async () => (await output("cat /tmp/unwanted")) !== "");
    expect(await output("cat /tmp/unwanted")).toBe("guest\n");
  });

  test("nothing listens on a port, and a viewer ends with its caller", async () => {
    const [one, two] = [await open(), await open()];
    await Promise.all([one.rfb.update(false), two.rfb.update(false)]);
    // Those of earlier views may still be ending.
    await expect.poll(viewers).toBe("2\n");
    const listening = await output(
      'cat /proc/net/tcp /proc/net/tcp6 | awk \'$4 == "0A"\'; awk \'$6 == "01" && $4 == "00010000" {print $8}\' /proc/net/unix',
    );
    if (name === "docker")
      expect(listening.split("\n").filter((line) => !/^$|X11-unix|dbus|at-spi|berth/.test(line))).toEqual([]);
    one.rfb.close();
    await eventually(async () => (await viewers()) === "1\n");
    await two.rfb.update(false);
    two.rfb.close();
    await eventually(async () => (await viewers()) === "0\n");
  });

  it("the session lives while it is viewed, and calls on it continue", async () => {
    const short = new Worker(app.client, "short");
    const { rfb } = await eventually(async () => {
      await short.create("vm", { screen_size: [640, 480] }, { ttl: { seconds: 1 } });
      // On a busy machine it may expire before that.
      return openView(app.client, short.id).catch(() => undefined);
    });
    const [session] = await short.list();
    expect(session?.expire_time).toBeNull();
    const waiting = short.execute("vm:wait", { seconds: 1.5 });
    await rfb.update(false);
    expect(await waiting).toMatchObject({ code: 0 });
    expect(await short.list()).toHaveLength(1);
    rfb.close();
    await eventually(async () => (await short.list()).length === 0);
  });

  test.each([
    ["destroyed", (short: Worker) => short.destroy("vm")],
    ["replaced", (short: Worker) => short.reinitialize("vm", { screen_size: [320, 240] })],
  ])("a session that is %s ends its views and says so", async (_, end) => {
    const short = new Worker(app.client, "ending");
    await short.create("vm", { screen_size: [640, 480] });
    const stream = app.client.stream("SessionService/ViewSession", { worker_id: short.id });
    const all = (async () => {
      for await (const item of stream) if (item.event === "data") await end(short);
    })();
    expect(await failureOf(all)).toMatchObject({ code: "ABORTED", reason: "SESSION_LOST" });
    await short.destroy();
  });

  it("at most 8 views at once", async () => {
    const opened = await Promise.all(Array.from({ length: 8 }, () => open({ read_only: true })));
    const more = app.client.stream("SessionService/ViewSession", { worker_id: worker.id });
    expect(await failureOf(more.toArray())).toMatchObject({ reason: "TOO_MANY_OPERATIONS" });
    opened[0]?.rfb.close();
    await eventually(() => open().catch(() => undefined));
  });

  test.each([
    ["no worker", { worker_id: "" }, "INVALID_ARGUMENT", "INVALID_ARGUMENT"],
    ["no such type", { resource_type: "hologram" }, "INVALID_ARGUMENT", "INVALID_ARGUMENT"],
    ["no session", { worker_id: "nobody" }, "NOT_FOUND", "SESSION_NOT_FOUND"],
    ["no view", { resource_type: "bash" }, "FAILED_PRECONDITION", "UNSUPPORTED"],
  ])("%s", async (_, request, code, reason) => {
    await worker.create("bash");
    const call = app.client.stream("SessionService/ViewSession", { worker_id: worker.id, ...request });
    expect(await failureOf(call.toArray())).toMatchObject({ code, reason });
  });
});
