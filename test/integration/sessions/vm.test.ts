import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { useApp } from "../../support/app.ts";
import { failureOf } from "../../support/client.ts";
import { DESKTOP_ENGINES, desktopSandbox, TestDesktop } from "../../support/desktop.ts";
import { testsInTurn } from "../../support/engines.ts";
import { eventually } from "../../support/eventually.ts";
import { Worker } from "../../support/worker.ts";

describe.each(DESKTOP_ENGINES)("on $name", ({ name, settings }) => {
  const it = testsInTurn(name);
  const app = useApp(settings);
  let sandboxId = "";
  let desktop: TestDesktop;
  let serial = 0;
  const newDesktop = () => new TestDesktop(new Worker(app.client, `user ${++serial}`));
  const here = () => ({ sandbox_id: sandboxId });

  beforeAll(async () => {
    sandboxId = await desktopSandbox(app.client, name);
    desktop = newDesktop();
    await desktop.start({}, here());
  });

  afterAll(() => desktop?.worker.destroy());

  test("without a session, a screenshot uses a temporary one, 1920 by 1080", async () => {
    const { data, picture } = await newDesktop().screenshot();
    expect([picture.width, picture.height]).toEqual([1920, 1080]);
    expect(data).toMatchObject({
      width: 1920,
      height: 1080,
      cursor: { x: 960, y: 540 },
      accessibility_tree: { role: "desktop", bounds: [0, 0, 1920, 1080] },
      session_restarted: false,
    });
  });

  test.each([
    [64, 64],
    [801, 601],
    [1023, 769],
    [2560, 1440],
    [5000, 400],
  ])("the screen is exactly %i by %i", async (width, height) => {
    const other = newDesktop();
    await other.start({ screen_size: [width, height], custom_name: "size" }, here());
    const { data, picture } = await other.screenshot();
    expect([picture.width, picture.height]).toEqual([width, height]);
    expect(data).toMatchObject({ width, height });
    expect(picture.pixel(width - 1, height - 1)).toBe(picture.pixel(0, 0));
    await other.worker.destroy("vm");
  });

  it("the pointer tools say where they acted, and act at the current position by default", async () => {
    expect(await desktop.do("move", { x: 100, y: 200 })).toEqual({
      x: 100,
      y: 200,
      session_restarted: false,
    });
    expect(await desktop.do("click", { x: 300 })).toMatchObject({ x: 300, y: 200, button: "left" });
    expect(await desktop.do("click", { y: 400, button: "middle" })).toMatchObject({
      x: 300,
      y: 400,
      button: "middle",
    });
    expect(await desktop.do("double_click")).toMatchObject({ x: 300, y: 400, button: "left" });
    expect(await desktop.do("right_click", { x: 1919, y: 1079 })).toMatchObject({
      x: 1919,
      y: 1079,
      button: "right",
    });
    expect(await desktop.do("scroll", { clicks: 3 })).toMatchObject({
      x: 1919,
      y: 1079,
      clicks: 3,
      horizontal: 0,
    });
    expect(await desktop.do("mouse_down", { x: 5, y: 6 })).toMatchObject({ x: 5, y: 6, button: "left" });
    expect(await desktop.do("mouse_up", { x: 7 })).toMatchObject({ x: 7, y: 6 });
    expect(
      await desktop.do("drag", { start_x: 0, start_y: 0, end_x: 50, end_y: 60, duration: 0 }),
    ).toMatchObject({
      end_x: 50,
      end_y: 60,
    });
    const { data } = await desktop.screenshot();
    expect(data.cursor).toEqual({ x: 50, y: 60 });
  });

  it("done and fail report, and wait waits", async () => {
    expect(await desktop.do("done")).toEqual({ status: "done", session_restarted: false });
    expect(await desktop.do("fail", { reason: "no such button" })).toEqual({
      status: "fail",
      reason: "no such button",
      session_restarted: false,
    });
    const start = performance.now();
    await desktop.do("wait", { seconds: 0.3 });
    expect(performance.now() - start).toBeGreaterThanOrEqual(295);
  });

  it("the clipboard holds a mebibyte", async () => {
    expect(await desktop.do("clipboard", { action: "get" })).toEqual({
      text: "",
      truncated: false,
      session_restarted: false,
    });
    const text = `"\u0001${"é".repeat(2 ** 19 - 1)}`;
    expect(await desktop.do("clipboard", { action: "set", text })).toMatchObject({ text });
    expect(await desktop.do("clipboard", { action: "get" })).toMatchObject({ text, truncated: false });
  });

  it("a screenshot can omit the tree", async () => {
    const { data } = await desktop.ask("screenshot", { tree: false });
    expect(Object.keys(data).sort()).toEqual(["cursor", "height", "session_restarted", "width"]);
  });

  test("programs have the session's directory and variables", async () => {
    const other = newDesktop();
    await other.start({ cwd: "/tmp", env: { GREETING: "Grüße" }, screen_size: [640, 480] }, here());
    await other.do("launch", { command: 'echo "$GREETING $PWD $DISPLAY" > launched' });
    await other.do("launch", { command: ["sh", "-c", 'test -r "$XAUTHORITY" && echo ok > authorized'] });
    const said = await eventually(async () => {
      const text = await app.client.output(
        sandboxId,
        "cat /tmp/launched /tmp/authorized 2>/dev/null || true",
      );
      return text.endsWith("ok\n") && text;
    });
    expect(said).toMatch(/^Grüße \/tmp :\d+\nok\n$/);
    const failure = await other.ask("launch", { command: ["no-such-program"] });
    expect(failure).toMatchObject({
      code: 4001,
      message: expect.stringMatching(/no-such-program .*No such file/),
    });
    // A slow shell is still looking for the program when the call returns.
    for (const [command, problem] of [
      ["no-such-program; exit $?", "exit code 127: the program was not found"],
      ["/etc/passwd", "exit code 126: the program cannot be executed"],
    ]) {
      await expect
        .poll(() => other.ask("launch", { command }))
        .toMatchObject({ code: 4001, message: expect.stringContaining(problem ?? "") });
    }
    expect(await other.ask("launch", { command: "exit 3" })).toMatchObject({ code: 0 });
    await other.worker.destroy("vm");
  });

  it("programs see the session's dots per inch", async () => {
    const other = newDesktop();
    await other.start({ dpi: 192, screen_size: [640, 480] }, here());
    await other.do("launch", { command: "{ xdpyinfo; xrdb -query; } > /tmp/dpi" });
    const seen = () => app.client.output(sandboxId, "cat /tmp/dpi 2>/dev/null || true");
    await expect.poll(seen).toMatch(/^Xft\.dpi:\s+192$/m);
    // The screen's size is in whole millimetres.
    expect(await seen()).toMatch(/resolution: +19[0-4]x19[0-4] dots per inch/);
    await other.worker.destroy("vm");
  });

  it("windows have their titles, in whatever encoding programs set them", async () => {
    const titled = (set: string) => `
import ctypes, time
x = ctypes.CDLL("libX11.so.6")
x.XOpenDisplay.restype = ctypes.c_void_p
x.XCreateSimpleWindow.restype = x.XDefaultRootWindow.restype = x.XInternAtom.restype = ctypes.c_ulong
d = ctypes.c_void_p(x.XOpenDisplay(None))
w = ctypes.c_ulong(x.XCreateSimpleWindow(d, ctypes.c_ulong(x.XDefaultRootWindow(d)), 0, 0, 200, 100, 0, 0, 0))
${set}
x.XMapWindow(d, w)
x.XFlush(d)
time.sleep(600)`;
    const broken =
      'x.XChangeProperty(d, w, ctypes.c_ulong(39), ctypes.c_ulong(x.XInternAtom(d, b"COMPOUND_TEXT", 0)), 8, 0, b"broken\\x1b$(B\\xff\\x1b", 12)';
    const other = newDesktop();
    await other.start({ screen_size: [800, 600] }, here());
    await other.do("launch", { command: ["xterm", "-T", "東京 Grüße"] });
    await other.do("launch", {
      command: ["python3", "-c", titled('x.XStoreName(d, w, b"Latin Gr\\xfc\\xdfe")')],
    });
    await other.do("launch", { command: ["python3", "-c", titled(broken)] });
    for (const title of ["東京 Grüße", "Latin Grüße"]) await other.window((window) => window.title === title);
    await other.window((window) => window.title.startsWith("broken"));
    await other.worker.destroy("vm");
  });

  test("another program's X client cannot connect without the session's cookie", async () => {
    const { stdout, stderr } = await app.client.run(
      sandboxId,
      "for socket in /tmp/.X11-unix/X*; do XAUTHORITY=/dev/null DISPLAY=:${socket##*X} xdpyinfo; done",
    );
    expect(stdout.toString()).not.toContain("dimensions");
    expect(stderr.toString()).toContain("unable to open display");
  });

  test.each([
    ["to the right", "click", { x: 1920, y: 5 }, /params\.x: must be below 1920: the screen is 1920 x 1080/],
    ["below", "move", { x: 5, y: 1080 }, /params\.y: must be below 1080/],
    ["negative", "move", { x: -1 }, /params\.x/],
    ["a fraction", "click", { x: 1.5 }, /params\.x: must be a whole number/],
    ["no number", "click", { x: "5" }, /params\.x/],
    [
      "a drag that ends outside",
      "drag",
      { start_x: 1, start_y: 1, end_x: 5000, end_y: 1 },
      /params\.end_x: must be below 1920/,
    ],
    ["an unknown button", "click", { button: "fire" }, /params\.button: .*left.*middle.*right/],
    ["an unknown key", "key", { key: "NoSuchKey" }, /params\.key: there is no key NoSuchKey/],
    [
      "an unknown key of several",
      "hotkey",
      { keys: ["ctrl", "hyperdrive"] },
      /params\.keys\[1\]: there is no key hyperdrive/,
    ],
    ["no keys", "hotkey", { keys: [] }, /params\.keys: must name 1 to 16 keys/],
    ["half a key", "hotkey", { keys: "ctrl+" }, /params\.keys: there is no key ""/],
    ["NUL", "type", { text: "a\0b" }, /params\.text: .*must not contain control characters/],
    [
      "an escape sequence",
      "type",
      { text: "\u001b[A" },
      /params\.text: .*must not contain control characters/,
    ],
    ["too much text", "type", { text: "a".repeat(70_000) }, /params\.text: .*65536/],
    ["a wait of days", "wait", { seconds: 1e6 }, /params\.seconds/],
    ["an unknown parameter", "screenshot", { scale: 2 }, /scale/],
    ["a million steps of the wheel", "scroll", { clicks: 1e6 }, /params\.clicks/],
    ["no action", "clipboard", {}, /params\.action/],
    ["nothing to set", "clipboard", { action: "set" }, /params\.text: must be given/],
    ["too much to set", "clipboard", { action: "set", text: "é".repeat(600_000) }, /params\.text: .*1048576/],
    ["no program", "launch", { command: [] }, /params\.command/],
    ["NUL in a program", "launch", { command: ["a\0b"] }, /params\.command/],
  ])("%s is INVALID_ARGUMENT", async (_, tool, params, message) => {
    const failure = await failureOf(desktop.ask(tool, params));
    expect(failure).toMatchObject({ reason: "INVALID_ARGUMENT", message: expect.stringMatching(message) });
    expect(await desktop.do("move", { x: 1, y: 1 })).toMatchObject({ session_restarted: false });
  });

  test.each([
    [[0, 0]],
    [[100_000, 100_000]],
    [[7680, 4320]],
    [[1920.5, 1080]],
    [[1920]],
    ["1920x1080"],
    [[-1920, 1080]],
  ])("a screen of %j is INVALID_ARGUMENT", async (screen_size) => {
    const { failure } = await newDesktop().worker.create("vm", { screen_size }, here());
    expect(failure).toMatchObject({ detail: { reason: "ERROR_REASON_INVALID_ARGUMENT" } });
  });
});
