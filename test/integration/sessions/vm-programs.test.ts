import { afterAll, beforeAll, describe, expect } from "vitest";
import { useApp } from "../../support/app.ts";
import { DESKTOP_ENGINES, type DesktopWindow, desktopSandbox, TestDesktop } from "../../support/desktop.ts";
import { testsInTurn } from "../../support/engines.ts";
import { eventually } from "../../support/eventually.ts";
import { Worker } from "../../support/worker.ts";

/** Latin with accents, Cyrillic, Chinese, Arabic, emoji, a combining accent, and characters that need Shift. */
const SCRIPTS = "Caf\u00e9 {A+b}! Привет, мир. 你好，世界 مرحبا 😀👍 e\u0301";
/** More characters than there are keys. */
const MANY = String.fromCodePoint(...Array.from({ length: 260 }, (_, index) => 0x4e00 + index));

/** How long a program may take on a loaded machine. */
const PATIENCE = { timeoutMs: 60_000 };

/** Presses a key by its code, which means what it means in the active layout: e, or у. */
const PRESS_E = `
import ctypes
x, test = ctypes.CDLL("libX11.so.6"), ctypes.CDLL("libXtst.so.6")
x.XOpenDisplay.restype = ctypes.c_void_p
display = ctypes.c_void_p(x.XOpenDisplay(None))
for down in (1, 0): test.XTestFakeKeyEvent(display, 26, down, 0)
x.XSync(display, 0)
open("/tmp/pressed", "w")`;

// Programs find windows, the focus and the clipboard of one desktop, so the tests run one after another.
describe.each(DESKTOP_ENGINES)("on $name", ({ name, settings }) => {
  const app = useApp(settings);
  const it = testsInTurn(name);
  let desktop: TestDesktop;
  let sandboxId = "";

  beforeAll(async () => {
    sandboxId = await desktopSandbox(app.client, name);
    desktop = new TestDesktop(new Worker(app.client, "typist"));
    await desktop.start({ screen_size: [1280, 900] }, { sandbox_id: sandboxId });
  });

  afterAll(() => desktop?.worker.destroy());

  const contentOf = (path: string) => app.client.output(sandboxId, `cat ${path} 2>/dev/null || true`);

  async function holds(path: string, text: string): Promise<void> {
    let found = "";
    await eventually(
      async () => {
        found = await contentOf(path);
        return found === text;
      },
      { ...PATIENCE, describe: () => found },
    );
  }

  async function close(window: DesktopWindow): Promise<void> {
    await app.client.output(sandboxId, `kill ${window.pid}`);
    await eventually(async () => !(await desktop.windows()).some(({ id }) => id === window.id));
  }

  it("xterm: text of any script arrives as it was typed", async () => {
    const window = await desktop.open(
      ["xterm", "-e", "stty -icanon -echo; touch /tmp/ready; cat > /tmp/typed"],
      (window) => window.class === "XTerm",
    );
    await eventually(async () => (await app.client.output(sandboxId, "ls /tmp")).includes("typed"));
    expect(await desktop.do("type", { text: `${SCRIPTS}\n\tend\n` })).toEqual({
      characters: [...`${SCRIPTS}\n\tend\n`].length,
      session_restarted: false,
    });
    await holds("/tmp/typed", `${SCRIPTS}\n\tend\n`);
    await desktop.do("type", { text: MANY });
    await desktop.do("type", { text: "slowly я", interval: 0.01 });
    await holds("/tmp/typed", `${SCRIPTS}\n\tend\n${MANY}slowly я`);
    await close(window);
  });

  it("xterm: text arrives as it was typed after a program has changed the keyboard's layout", async () => {
    const window = await desktop.open(
      ["xterm", "-e", "stty -icanon -echo; cat > /tmp/layouts"],
      (window) => window.class === "XTerm",
    );
    await eventually(async () => (await app.client.output(sandboxId, "ls /tmp")).includes("layouts"));
    const typedSoFar = () => contentOf("/tmp/layouts");
    await desktop.do("type", { text: "first\n" });
    let typed = "first\n";
    await expect.poll(typedSoFar, { timeout: PATIENCE.timeoutMs }).toBe(typed);
    for (const [layout, text] of [
      ["ru", "hello, привет\n"],
      ["de", "zebra yes: /path?x=[1]\n"],
      ["us", "zebra\n"],
    ] as const) {
      await desktop.do("launch", { command: `setxkbmap ${layout}; touch /tmp/layout-${layout}` });
      await eventually(async () => (await app.client.output(sandboxId, "ls /tmp")).includes(`-${layout}`));
      await desktop.do("type", { text });
      typed += text;
      await expect.poll(typedSoFar, { timeout: PATIENCE.timeoutMs }).toBe(typed);
    }
    // While it changes, a program may get other characters.
    await desktop.do("launch", { command: "sleep 0.3; setxkbmap ru; sleep 0.3; setxkbmap us" });
    const text = "while it changes".repeat(8);
    await expect(desktop.do("type", { text, interval: 0.01 })).resolves.toEqual({
      characters: text.length,
      session_restarted: false,
    });
    expect(await desktop.do("hotkey", { keys: "ctrl+c" })).toEqual({ session_restarted: false });
    await eventually(async () => !(await desktop.windows()).some(({ id }) => id === window.id));
  });

  it("xterm: keys are those that were named, whichever of two layouts is active", async () => {
    const window = await desktop.open(
      ["xterm", "-e", "stty -icanon -echo; cat > /tmp/keys"],
      (window) => window.class === "XTerm",
    );
    await desktop.do("launch", {
      command: "setxkbmap us,ru -option grp:alt_shift_toggle; touch /tmp/keys-ready",
    });
    await eventually(async () => (await app.client.output(sandboxId, "ls /tmp")).includes("keys-ready"));
    const key = (name: string) => desktop.do("key", { key: name });
    // To the second layout, and back to the first.
    for (const _ of ["ru", "us"]) {
      await key("alt+shift");
      await key("a");
      await key("shift+b");
      await desktop.do("key_down", { key: "c" });
      await desktop.do("key_up", { key: "c" });
      await desktop.do("type", { text: "d" });
      await desktop.do("launch", { command: ["python3", "-c", PRESS_E] });
      await eventually(async () => (await app.client.output(sandboxId, "ls /tmp")).includes("pressed"));
      await app.client.output(sandboxId, "rm /tmp/pressed");
    }
    await expect.poll(() => contentOf("/tmp/keys"), { timeout: PATIENCE.timeoutMs }).toBe("aBcdуaBcde");
    await desktop.do("launch", { command: "setxkbmap us -option; touch /tmp/keys-reset" });
    await eventually(async () => (await app.client.output(sandboxId, "ls /tmp")).includes("keys-reset"));
    await close(window);
  });

  it("mousepad: typing, hotkeys, dragging, scrolling, the clipboard and the tree", async () => {
    const window = await desktop.open("mousepad", ({ class: name }) => name === "Mousepad");
    // For a moment, the program does not know yet where the window manager put its window.
    const area = await desktop.node(({ role, bounds: [x] }) => role === "text" && x >= window.bounds[0]);
    const [x, y, width, height] = area.bounds;
    // The text area fills the window below its menu.
    expect(x).toBeGreaterThanOrEqual(window.bounds[0]);
    expect(x + width).toBeLessThanOrEqual(window.bounds[0] + window.bounds[2]);
    expect(y).toBeGreaterThan(window.bounds[1]);
    expect(y + height).toBeLessThanOrEqual(window.bounds[1] + window.bounds[3]);
    expect(width * height).toBeGreaterThan(0.7 * window.bounds[2] * window.bounds[3]);

    await desktop.do("click", { x: x + 30, y: y + 30 });
    await desktop.do("type", { text: SCRIPTS });
    await desktop.do("hotkey", { keys: ["ctrl", "a"] });
    await desktop.do("hotkey", { keys: "ctrl+c" });
    expect(await desktop.copied((text) => text !== "")).toBe(SCRIPTS);
    await desktop.node(({ role, value }) => role === "text" && value === SCRIPTS);

    await desktop.do("type", { text: MANY });
    await desktop.do("hotkey", { keys: ["ctrl", "a"] });
    await desktop.do("hotkey", { keys: ["ctrl", "C"] });
    expect(await desktop.copied((text) => text !== SCRIPTS)).toBe(MANY);

    const ours = `from outside: ${SCRIPTS}\n${"0123456789".repeat(5_000)}`;
    await desktop.do("clipboard", { action: "set", text: ours });
    await desktop.do("key", { key: "Delete" });
    await desktop.do("hotkey", { keys: ["ctrl", "v"] });
    await desktop.node(({ role, value }) => role === "text" && ours.startsWith(String(value || "-")));
    await desktop.do("hotkey", { keys: ["ctrl", "a"] });
    await desktop.do("hotkey", { keys: ["ctrl", "x"] });
    // From the program again: the driver no longer owns it.
    await desktop.node(({ role, value }) => role === "text" && value === undefined);
    expect(await desktop.copied((text) => text !== "")).toBe(ours);

    await desktop.do("type", { text: "line 0\nline 1\nline 2\nline 3\n" });
    await desktop.do("hotkey", { keys: "ctrl+Home" });
    // From the start of the first line to the start of the third.
    await desktop.do("drag", { start_x: x + 3, start_y: y + 8, end_x: x + 3, end_y: y + 8 + 2 * 18 });
    await desktop.do("hotkey", { keys: "ctrl+c" });
    expect(await desktop.copied((text) => text !== ours)).toMatch(/^line 0\nline 1\n(line 2\n)?$/);

    await desktop.do("hotkey", { keys: "ctrl+End" });
    // No two of the lines that are visible at once start alike.
    const lines = Array.from({ length: 80 }, (_, line) => `${(line % 36).toString(36)} another\n`);
    await desktop.do("type", { text: lines.join("") });
    await desktop.node(({ role, value }) => role === "text" && String(value).endsWith(lines.join("")));
    const column = async (): Promise<string> => {
      const { picture } = await desktop.screenshot();
      return Array.from({ length: 100 }, (_, at) => picture.pixel(x + 8, y + at)).join();
    };
    // A busy program may still scroll back to what was typed.
    await eventually(async () => {
      await desktop.do("scroll", { x: x + 50, y: y + 50, clicks: 5 });
      const up = await column();
      await desktop.do("scroll", { x: x + 50, y: y + 50, clicks: -5 });
      return (await column()) !== up;
    }, PATIENCE);
    await close(window);
  });

  it("mousepad: calls after a paste or a copy find it done", async () => {
    // Otherwise it asks about the file that the killed one of another test had open.
    const command = "GSETTINGS_BACKEND=memory XDG_DATA_HOME=$(mktemp -d) mousepad";
    const window = await desktop.open(command, ({ class: name }) => name === "Mousepad");
    const [x, y, width, height] = window.bounds;
    await desktop.do("click", { x: Math.round(x + width / 2), y: Math.round(y + height / 2) });
    for (let round = 0; round < 5; round++) {
      await desktop.do("clipboard", { action: "set", text: `pasted ${round}, ` });
      await desktop.do("hotkey", { keys: "ctrl+v" });
      await desktop.do("type", { text: `typed ${round}` });
      await desktop.do("hotkey", { keys: "ctrl+a" });
      await desktop.do("hotkey", { keys: "ctrl+x" });
      expect(await desktop.do("clipboard", { action: "get" })).toMatchObject({
        text: `pasted ${round}, typed ${round}`,
      });
    }
    await close(window);
  });

  it("Chromium: clicks, drags, the wheel, keys and text reach a page", async () => {
    const page = `<!doctype html><meta charset=utf-8><title>start</title>
<body style="margin:0;background:#123456;height:3000px"><input id=i style="position:absolute;left:100px;top:100px;width:300px;height:40px">
<script>
const said = [];
const say = (text) => { said.push(text); document.title = said.slice(-6).join("|"); };
const drags = [];
addEventListener("mousedown", (e) => { drags.length = 0; say("down " + e.button + " " + e.clientX + "," + e.clientY); });
addEventListener("pointermove", (e) => drags.push(...e.getCoalescedEvents().map(({ buttons }) => buttons)));
addEventListener("mouseup", (e) => say("up " + e.clientX + "," + e.clientY + (drags.filter((b) => b === 1).length > 3 ? " dragged" : "")));
addEventListener("dblclick", () => say("double"));
addEventListener("contextmenu", (e) => { e.preventDefault(); say("menu"); });
addEventListener("wheel", (e) => say("wheel " + Math.sign(e.deltaX) + "," + Math.sign(e.deltaY)));
addEventListener("keydown", (e) => { if (e.ctrlKey && e.key !== "Control") { e.preventDefault(); say("key " + (e.shiftKey ? "S" : "") + e.code); } });
i.addEventListener("input", () => say("text " + i.value));
</script>`;
    await app.client.output(sandboxId, `cat > /tmp/page.html <<'EOF'\n${page}\nEOF`);
    const window = await desktop.open(
      "chromium --no-sandbox --no-first-run --user-data-dir=/tmp/chromium --app=file:///tmp/page.html",
      ({ title }) => title.startsWith("start"),
    );
    let said: readonly string[] = [];
    const hears = async (...wanted: readonly string[]): Promise<void> => {
      await eventually(
        async () => {
          const title = (await desktop.windows()).find(({ id }) => id === window.id)?.title ?? "";
          said = title.split("|");
          return wanted.every((text) => said.includes(text));
        },
        { ...PATIENCE, describe: () => ({ wanted, said }) },
      );
    };
    // Where the page starts, below the window's own toolbars.
    await eventually(async () => {
      const { picture } = await desktop.screenshot();
      return picture.pixel(window.bounds[0] + 20, window.bounds[1] + window.bounds[3] - 20) === "#123456";
    });
    const field = await desktop.node(
      ({ role, bounds }) => role === "entry" && bounds[2] > 290 && bounds[3] >= 40,
    );
    const [left, top] = [field.bounds[0] - 100, field.bounds[1] - 100];
    const at = (x: number, y: number) => ({ x: left + x, y: top + y });

    await desktop.do("click", at(50, 60));
    await hears("down 0 50,60", "up 50,60");
    await desktop.do("right_click", at(51, 61));
    await hears("down 2 51,61", "menu");
    await desktop.do("double_click", at(52, 62));
    await hears("double");
    await desktop.do("drag", {
      start_x: left + 10,
      start_y: top + 20,
      end_x: left + 200,
      end_y: top + 250,
    });
    await hears("down 0 10,20", "up 200,250 dragged");
    // For most of the time the driver has no processor.
    await app.client.output(
      sandboxId,
      `driver=$(pgrep -x python3 | sed -n 2p)
      while [ ! -e /tmp/dragged ]; do kill -STOP $driver; sleep 0.3; kill -CONT $driver; sleep 0.01; done >/dev/null 2>&1 &`,
    );
    await desktop.do("drag", {
      start_x: left + 11,
      start_y: top + 21,
      end_x: left + 201,
      end_y: top + 251,
      duration: 0.5,
    });
    await app.client.output(sandboxId, "touch /tmp/dragged");
    await hears("down 0 11,21", "up 201,251 dragged");
    await desktop.do("scroll", { ...at(200, 300), clicks: -2 });
    await hears("wheel 0,1");
    await desktop.do("scroll", { clicks: 2 });
    await hears("wheel 0,-1");
    await desktop.do("scroll", { clicks: 0, horizontal: 1 });
    await hears("wheel 1,0");
    await desktop.do("hotkey", { keys: ["ctrl", "shift", "k"] });
    await hears("key SKeyK");
    await desktop.do("key_down", { key: "ctrl" });
    await desktop.do("key", { key: "j" });
    await desktop.do("key_up", { key: "ctrl" });
    await hears("key KeyJ");
    await desktop.do("move", at(60, 300));
    // Keeps the pointer in place until the window manager has seen the click.
    await app.client.output(
      sandboxId,
      "pkill -STOP openbox; (sleep 1; pkill -CONT openbox) >/dev/null 2>&1 &",
    );
    await desktop.do("mouse_down");
    await desktop.do("move", at(70, 310));
    await desktop.do("mouse_up");
    await hears("down 0 60,300", "up 70,310");
    await eventually(async () => {
      await desktop.do("scroll", { clicks: 10 });
      const entry = await desktop.node(({ role, bounds }) => role === "entry" && bounds[2] > 290);
      return entry.bounds[1] === top + 100;
    });
    await desktop.do("click", at(150, 120));
    await desktop.do("type", { text: "Zu Fuß 你好 мир 😀" });
    await hears("text Zu Fuß 你好 мир 😀");
    await close(window);
  });
});
