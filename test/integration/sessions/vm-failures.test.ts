import { beforeAll, describe, expect, test } from "vitest";
import { useApp } from "../../support/app.ts";
import { failureOf } from "../../support/client.ts";
import { DESKTOP_ENGINES, desktopSandbox, type ScreenshotData, TestDesktop } from "../../support/desktop.ts";
import { testsInTurn } from "../../support/engines.ts";
import { eventually } from "../../support/eventually.ts";
import { BUSYBOX_IMAGE, TEST_IMAGE } from "../../support/images.ts";
import { Worker } from "../../support/worker.ts";

const SIZE = { screen_size: [800, 600] };
const PATIENCE = { timeoutMs: 60_000 };

/** Grabs what its argument names, reports it, and sleeps. */
const GRABBER = `
import ctypes, sys, time
x = ctypes.CDLL("libX11.so.6")
x.XOpenDisplay.restype = ctypes.c_void_p
x.XDefaultRootWindow.restype = ctypes.c_ulong
d = ctypes.c_void_p(x.XOpenDisplay(None)); root = ctypes.c_ulong(x.XDefaultRootWindow(d))
if sys.argv[1] == "input":
    x.XGrabPointer(d, root, 0, 0, 1, 1, ctypes.c_ulong(0), ctypes.c_ulong(0), ctypes.c_ulong(0))
    x.XGrabKeyboard(d, root, 0, 1, 1, ctypes.c_ulong(0))
else:
    x.XGrabServer(d)
x.XSync(d, 0)
open("/tmp/grabbed", "w").close()
time.sleep(600)
`;

/** Prints which buttons and modifiers are pressed. */
const STATE = `
import ctypes
x = ctypes.CDLL("libX11.so.6")
x.XOpenDisplay.restype = ctypes.c_void_p
x.XDefaultRootWindow.restype = ctypes.c_ulong
d = ctypes.c_void_p(x.XOpenDisplay(None))
keys = (ctypes.c_ubyte * 32)()
x.XQueryKeymap(d, keys)
w, n, mask = ctypes.c_ulong(), ctypes.c_int(), ctypes.c_uint()
x.XQueryPointer(d, ctypes.c_ulong(x.XDefaultRootWindow(d)), *[ctypes.byref(w)] * 2, *[ctypes.byref(n)] * 4, ctypes.byref(mask))
open("/tmp/state", "w").write("keys %d state %d;" % (sum(bin(k).count("1") for k in keys), mask.value))
`;

/** Notifies the owner of the clipboard that it has lost it. */
const LIAR = `
import ctypes
x = ctypes.CDLL("libX11.so.6")
x.XOpenDisplay.restype = ctypes.c_void_p
x.XGetSelectionOwner.restype = x.XInternAtom.restype = ctypes.c_ulong
class Event(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("serial", ctypes.c_ulong), ("sent", ctypes.c_int), ("display", ctypes.c_void_p),
                ("window", ctypes.c_ulong), ("selection", ctypes.c_ulong), ("pad", ctypes.c_long * 24)]
d = ctypes.c_void_p(x.XOpenDisplay(None))
clipboard = ctypes.c_ulong(x.XInternAtom(d, b"CLIPBOARD", 0))
owner = x.XGetSelectionOwner(d, clipboard)
x.XSendEvent(d, ctypes.c_ulong(owner), 0, ctypes.c_long(0), ctypes.byref(Event(29, window=owner, selection=clipboard.value)))
x.XSync(d, 0)
open("/tmp/lied", "w").close()
`;

/**
 * Takes the clipboard from its owner, and leaves it to nobody. In a second run gives it to that window, and runs on: X
 * takes it away when this ends. Says when it has done so.
 */
const GIVER = `
import ctypes, os, signal
x = ctypes.CDLL("libX11.so.6")
x.XOpenDisplay.restype = ctypes.c_void_p
x.XGetSelectionOwner.restype = x.XInternAtom.restype = x.XDefaultRootWindow.restype = x.XCreateSimpleWindow.restype = ctypes.c_ulong
d = ctypes.c_void_p(x.XOpenDisplay(None))
clipboard = x.XInternAtom(d, b"CLIPBOARD", 0)
def own(window): x.XSetSelectionOwner(d, ctypes.c_ulong(clipboard), ctypes.c_ulong(window), ctypes.c_ulong(0))
def say(name, text):
    x.XSync(d, 0)
    with open(name + ".new", "w") as file: file.write(text)
    os.rename(name + ".new", name)
if os.path.exists("/tmp/taken"):
    own(int(open("/tmp/taken").read()))
    say("/tmp/given", "")
    signal.pause()
former = x.XGetSelectionOwner(d, ctypes.c_ulong(clipboard))
root = ctypes.c_ulong(x.XDefaultRootWindow(d))
own(x.XCreateSimpleWindow(d, root, 0, 0, 1, 1, 0, ctypes.c_ulong(0), ctypes.c_ulong(0)))
own(0)
say("/tmp/taken", str(former))
`;

/** Has widgets with properties of types that AT-SPI does not define, and one whose value is not a number. */
const ODD_WIDGETS = `
from gi.repository import Gio, GLib
A, ROOT = "org.a11y.atspi.", "/org/a11y/atspi/accessible/root"
session = Gio.bus_get_sync(Gio.BusType.SESSION)
address, = session.call_sync("org.a11y.Bus", "/org/a11y/bus", "org.a11y.Bus", "GetAddress", None, None, 0, -1, None).unpack()
bus = Gio.DBusConnection.new_for_address_sync(address, Gio.DBusConnectionFlags(9), None, None)
name = bus.get_unique_name()
V = GLib.Variant
PLAIN = {"GetChildren": V("a(so)", []), "GetRole": V("u", 51), "GetState": V("au", [1 << 25, 0]),
         "GetExtents": V("(iiii)", (1, 2, 3, 4)), "Get": V("v", V("d", 0.5)), "Name": V("s", "")}
ODD = {"honest": {}, "infinite": {"Get": V("v", V("d", float("inf")))}, "list": {"Get": V("v", V("as", ["x"] * 100000))},
       "role": {"GetRole": V("s", "x")}, "state": {"GetState": V("s", "x")}, "extents": {"GetExtents": V("s", "x")},
       "number": {"Name": V("d", 1.5)}, "properties": {"GetAll": V("as", ["x"])}, "path": {"GetChildren": V("a(ss)", [("no name", "no path")])}}
WINDOW = {"Name": V("s", "odd"), "GetRole": V("u", 23), "GetChildren": V("a(so)", [(name, "/" + key) for key in ODD])}
objects = {ROOT: {**WINDOW, "GetChildren": V("a(so)", [(name, "/window")])}, "/window": WINDOW}
objects.update({"/" + key: {"Name": V("s", key), **odd} for key, odd in ODD.items()})
def answer(_bus, message, incoming):
    if not incoming or message.get_message_type() != Gio.DBusMessageType.METHOD_CALL: return message
    has = {**PLAIN, **objects.get(message.get_path(), {})}
    has.setdefault("GetAll", V("a{sv}", {"Name": has["Name"]}))
    if message.get_member() == "Get" and message.get_body().unpack()[1] == "Name": has["Get"] = V("v", has["Name"])
    reply = Gio.DBusMessage.new_method_reply(message)
    value = has.get(message.get_member())
    if value is not None: reply.set_body(V.new_tuple(value))
    bus.send_message(reply, 0)
bus.add_filter(answer)
bus.call_sync(A + "Registry", ROOT, A + "Socket", "Embed", V("((so))", ((name, ROOT),)), None, 0, -1, None)
GLib.MainLoop().run()
`;

/** Stands in for the driver, and answers every request after the start with 4 MiB. */
const BOASTER = `#!/usr/bin/python3
import json, struct, sys
sys.stdin.buffer.read(int(sys.argv[-2]))
def answer(id, data, payload):
    text = json.dumps({"id": id, "data": data}).encode()
    sys.stdout.buffer.write(struct.pack(">II", len(text), len(payload)) + text + payload)
    sys.stdout.buffer.flush()
for line in sys.stdin.buffer:
    request = json.loads(line)
    if request.get("op") == "start": answer(request["id"], {"display": ":1", "authority": "/x"}, b"")
    elif "op" in request: answer(request["id"], {}, b"x" * (4 << 20))
`;

describe.each(DESKTOP_ENGINES)("on $name", ({ name, settings }) => {
  const app = useApp(settings);
  const it = testsInTurn(name);
  let sandboxId = "";
  let serial = 0;
  const newDesktop = () => new TestDesktop(new Worker(app.client, `user ${++serial}`));
  const here = () => ({ sandbox_id: sandboxId });
  const output = (line: string) => app.client.output(sandboxId, line);

  beforeAll(async () => {
    sandboxId = await desktopSandbox(app.client, name);
    await output(`cat > /tmp/grab.py <<'EOF'\n${GRABBER}EOF\ncat > /tmp/state.py <<'EOF'\n${STATE}EOF`);
  });

  /** Runs work on its own desktop in the shared sandbox, and checks that nothing is left behind. */
  async function withDesktop(work: (desktop: TestDesktop) => Promise<void>): Promise<void> {
    const desktop = newDesktop();
    await desktop.start(SIZE, here());
    try {
      await work(desktop);
    } finally {
      await desktop.worker.destroy("vm");
    }
  }

  /**
   * Pids of processes in the sandbox whose command line starts with the pattern, without the shells that start them.
   */
  async function pidsOf(pattern: string): Promise<string[]> {
    const found = await output(`pgrep -f '^([^ ]*/)?${pattern}' || true`);
    return found.split("\n").filter((pid) => pid !== "");
  }

  /** Waits until a call gets another desktop. Returns how an earlier call lost the last one, if one did. */
  async function restarts(desktop: TestDesktop): Promise<string> {
    let loss = "";
    await eventually(async () => {
      try {
        return (await desktop.ask("move", { x: 1, y: 1 })).data.session_restarted === true;
      } catch (error) {
        expect(String(error)).toContain("lost its desktop");
        loss = String(error);
        return false;
      }
    }, PATIENCE);
    return loss;
  }

  /** The pressed buttons and modifiers. */
  async function pressed(desktop: TestDesktop): Promise<string> {
    await output("rm -f /tmp/state");
    await desktop.do("launch", { command: ["python3", "/tmp/state.py"] });
    return eventually(async () => {
      const text = await output("cat /tmp/state 2>/dev/null || true");
      return text.endsWith(";") && text;
    }, PATIENCE);
  }

  it("a window manager that dies is restarted, and the session continues without one that dies too often", () =>
    withDesktop(async (desktop) => {
      const window = await desktop.open("xterm", ({ class: name }) => name === "XTerm");
      const isLost = async () => (await desktop.do("windows")).window_manager === "lost";
      const killed: string[] = [];
      // If one is about to end by itself, fewer are left to kill.
      for (let round = 0; round < 6; round++) {
        const pid = await eventually(async () => {
          if (await isLost()) return "none";
          return (await pidsOf("openbox --sm-disable")).find((each) => !killed.includes(each));
        }, PATIENCE);
        if (pid === "none") break;
        killed.push(pid);
        await output(`kill -9 ${pid}`);
      }
      expect(killed.length).toBeGreaterThan(2);
      await eventually(isLost, PATIENCE);
      expect((await desktop.windows()).map(({ id }) => id)).toEqual([window.id]);
      expect(await desktop.do("click", { x: 10, y: 10 })).toMatchObject({ session_restarted: false });
      expect((await desktop.screenshot()).data.session_restarted).toBe(false);
    }));

  it("a program starts once the bus and the window manager run, however slow those are", async () => {
    // Longer than an idle machine needs for a whole desktop.
    const slow = (program: string) =>
      `printf '#!/bin/sh\\nsleep 8\\nexec /usr/bin/${program} "$@"\\n' > /tmp/slow/${program}`;
    await output(
      `mkdir -p /tmp/slow; ${["dbus-daemon", "openbox"].map(slow).join("; ")}; chmod +x /tmp/slow/*`,
    );
    const desktop = newDesktop();
    await desktop.start({ ...SIZE, env: { PATH: "/tmp/slow:/usr/local/bin:/usr/bin:/bin" } }, here());
    const look =
      'if [ -S "${DBUS_SESSION_BUS_ADDRESS#unix:path=}" ]; then echo bus; else echo none; fi > /tmp/bus; exec xterm';
    await desktop.do("launch", { command: look });
    await expect.poll(() => output("cat /tmp/bus 2>/dev/null || true")).not.toBe("");
    expect(await output("cat /tmp/bus")).toBe("bus\n");
    // The window manager does not activate a window that was there before it.
    await desktop.window((window) => window.class === "XTerm" && window.active);
    await desktop.worker.destroy("vm");
  });

  it("a window manager that starts late is noticed at once, and one that never starts is waited for once", async () => {
    const fake = (directory: string, line: string) =>
      output(
        `mkdir -p ${directory}; printf '#!/bin/sh\\n${line}\\n' > ${directory}/openbox; chmod +x ${directory}/*`,
      );
    const withPath = (directory: string) => ({
      ...SIZE,
      env: { PATH: `${directory}:/usr/local/bin:/usr/bin:/bin` },
    });
    await fake("/tmp/late", 'sleep 0.2; exec /usr/bin/openbox "$@"');
    const timeOf = async (act: () => Promise<unknown>): Promise<number> => {
      const start = performance.now();
      await act();
      return performance.now() - start;
    };
    const delayOfFirstClick = async (): Promise<number> => {
      const desktop = newDesktop();
      await desktop.start(withPath("/tmp/late"), here());
      const click = () => timeOf(() => desktop.do("click", { x: 100 }));
      const [first, second] = [await click(), await click()];
      await desktop.worker.destroy("vm");
      return first - second;
    };
    // As long as a click waits for a window manager that does not answer. A busy machine may start one late, but not
    // each time.
    await expect.poll(delayOfFirstClick, { timeout: 100_000 }).toBeLessThan(2_000);

    await fake("/tmp/never", "exec sleep 1000");
    const desktop = newDesktop();
    await desktop.start(withPath("/tmp/never"), here());
    await desktop.do("launch", { command: ["true"] });
    // As long as the first one has waited.
    const launch = () => timeOf(() => desktop.do("launch", { command: ["true"] }));
    await expect.poll(launch).toBeLessThan(20_000);
    await desktop.worker.destroy("vm");
  });

  it("an X server that dies during a call ends it with the cause, and the next call starts another", () =>
    withDesktop(async (desktop) => {
      await desktop.do("move", { x: 3, y: 4 });
      const waiting = failureOf(desktop.ask("wait", { seconds: 60 }));
      await eventually(async () => (await desktop.worker.list())[0]?.active_calls === 1);
      const [pid] = await pidsOf("Xvfb :");
      await output(`kill -9 ${pid}`);
      expect(await waiting).toMatchObject({
        reason: "SESSION_LOST",
        message: expect.stringMatching(/X server ended/),
      });
      const { data, picture } = await desktop.screenshot();
      expect(data).toMatchObject({
        width: 800,
        height: 600,
        cursor: { x: 400, y: 300 },
        session_restarted: true,
      });
      expect([picture.width, picture.height]).toEqual([800, 600]);
      expect(await desktop.do("move")).toMatchObject({ session_restarted: false });
      expect(await pidsOf("Xvfb :")).toHaveLength(1);
    }));

  test.each([0, 1])(
    "a killed driver (%i) ends the whole desktop, and the next call starts another",
    (index) =>
      withDesktop(async (desktop) => {
        await desktop.do("launch", { command: "setsid sh -c 'sleep 9999 & sleep 9998' & sleep 9997" });
        await eventually(async () => (await pidsOf("sleep 999")).length >= 3, PATIENCE);
        // The guard, the driver, and the reader of the tree. For a moment, a process that is about to run another program
        // looks like them.
        const drivers = await eventually(async () => {
          const pids = await pidsOf("python3 -I -S -c");
          return pids.length === 3 && pids;
        }, PATIENCE);
        await output(`kill -9 ${drivers[index]}`);
        await eventually(async () => (await pidsOf("Xvfb :")).length === 0, PATIENCE);
        await restarts(desktop);
        expect(await pidsOf("sleep 999")).toEqual([]);
      }),
  );

  test("a desktop whose guard and driver are killed at once leaves nothing behind", async () => {
    const files = () =>
      output("find /tmp -name 'berth-vm-*' -prune -o -name '.X*-lock' -o -path '*/.X11-unix/X*' | sort");
    // The first desktop creates the directory of the sockets.
    await withDesktop(async () => {});
    const before = await files();
    await withDesktop(async () => {
      expect(await files()).not.toBe(before);
      const [guard, driver] = await pidsOf("python3 -I -S -c");
      await output(`kill -STOP ${driver}; kill -9 ${guard} ${driver}`);
    });
    await expect.poll(files, { timeout: PATIENCE.timeoutMs }).toBe(before);
  });

  test("a guard that gets SIGTERM while it cleans up after a killed driver goes on with it", () =>
    withDesktop(async (desktop) => {
      const waiting = failureOf(desktop.ask("wait", { seconds: 60 }));
      await eventually(async () => (await desktop.worker.list())[0]?.active_calls === 1);
      const [guard, driver] = await pidsOf("python3 -I -S -c");
      await output(`cd /tmp/berth-vm-*/run && seq 5000 | xargs touch; kill -9 ${driver}
        n=0; while [ $n -lt 20000 ] && kill -TERM ${guard} 2>/dev/null; do n=$((n + 1)); done`);
      const { message } = await waiting;
      expect(message).toMatch(/ lost its desktop: it exited with code 137\. Files are kept/);
    }));

  it("the program that reads the tree is restarted after a kill", () =>
    withDesktop(async (desktop) => {
      await desktop.open("mousepad", ({ class: name }) => name === "Mousepad");
      await desktop.node(({ role }) => role === "text");
      const reader = (await pidsOf("python3 -I -S -c"))[2];
      await output(`kill -9 ${reader}`);
      await desktop.node(({ role }) => role === "text");
      // On a busy machine, the time to read a tree may not suffice.
      await expect
        .poll(async () => (await desktop.screenshot()).data)
        .toMatchObject({ tree_truncated: false, session_restarted: false });
      expect(await pidsOf("python3 -I -S -c")).not.toContain(reader);
    }));

  it("a desktop that cannot start a process again goes on without it, and starts it later", () =>
    withDesktop(async (desktop) => {
      await desktop.open("xterm", ({ class: name }) => name === "XTerm");
      const [, driver, reader] = await eventually(async () => {
        const pids = await pidsOf("python3 -I -S -c");
        return pids.length === 3 && pids;
      }, PATIENCE);
      // With no descriptor left. If its sandbox had no process left, the end of one would make room for the next.
      const limit = (count: number) =>
        output(
          `python3 -c 'import resource as r; r.prlimit(${driver}, r.RLIMIT_NOFILE, (${count}, r.prlimit(${driver}, r.RLIMIT_NOFILE)[1]))'`,
        );
      const seen = async () => {
        const { data: windows } = await desktop.ask("windows");
        const { data, attachments } = await desktop.ask<ScreenshotData>("screenshot");
        return {
          windowManager: windows.window_manager,
          isWhole: !data.tree_truncated,
          restarted: windows.session_restarted || data.session_restarted,
          pictures: attachments.length,
        };
      };
      const poll = () => expect.poll(() => seen().catch(String), { timeout: PATIENCE.timeoutMs });
      await poll().toEqual({ windowManager: "openbox", isWhole: true, restarted: false, pictures: 1 });
      await limit(3);
      await output(`pkill -9 -f '^openbox'; kill -9 ${reader}`);
      await poll().toEqual({ windowManager: "lost", isWhole: false, restarted: false, pictures: 1 });
      await limit(1024);
      await poll().toEqual({ windowManager: "openbox", isWhole: true, restarted: false, pictures: 1 });
    }));

  it("foreign writes to the driver's connection end the session with the cause", () =>
    withDesktop(async (desktop) => {
      const [guard] = await pidsOf("python3 -I -S -c");
      await output(`printf '\\377\\377\\377\\377\\377\\377\\377\\377' > /proc/${guard}/fd/1`);
      // A call that is running fails with that.
      expect(await restarts(desktop)).toMatch(/^$|lost its desktop: something else wrote/);
      expect((await desktop.screenshot()).data).toMatchObject({ width: 800 });
    }));

  it("data on the driver's connection outside of a request is not kept", () =>
    withDesktop(async (desktop) => {
      // The start of an answer of 48 MiB, written to the driver's oldest process.
      await output("printf '\\0\\0\\0\\4\\3\\0\\0\\0' > /proc/$(pgrep -o -x python3)/fd/1");
      await eventually(async () => (await pidsOf("Xvfb :")).length === 0, PATIENCE);
      expect((await desktop.ask("move")).data).toMatchObject({ session_restarted: true });
    }));

  it("a program that grabs the pointer and the keyboard keeps neither from the session", () =>
    withDesktop(async (desktop) => {
      await output("rm -f /tmp/grabbed");
      await desktop.do("launch", { command: ["python3", "/tmp/grab.py", "input"] });
      await eventually(async () => (await output("ls /tmp")).includes("grabbed"), PATIENCE);
      await desktop.do("click", { x: 20, y: 20 });
      await desktop.do("type", { text: "text" });
      expect((await desktop.screenshot()).data).toMatchObject({ cursor: { x: 20, y: 20 } });
    }));

  it("a program that stops the X server costs the session its desktop, not its next calls", () =>
    withDesktop(async (desktop) => {
      await output("rm -f /tmp/grabbed");
      await desktop.do("launch", { command: ["python3", "/tmp/grab.py", "server"] });
      await eventually(async () => (await output("ls /tmp")).includes("grabbed"), PATIENCE);
      const more = { timeout: { seconds: 1 } };
      expect(await desktop.worker.execute("vm:screenshot", {}, more)).toMatchObject({ code: 5006 });
      expect((await desktop.screenshot()).data).toMatchObject({ width: 800, session_restarted: true });
    }));

  it("a program that hangs is missing in the tree, which says so", () =>
    withDesktop(async (desktop) => {
      const window = await desktop.open("mousepad", ({ class: name }) => name === "Mousepad");
      await desktop.node(({ role }) => role === "text");
      await output(`kill -STOP ${window.pid}`);
      const { data } = await desktop.screenshot();
      expect(data.tree_truncated).toBe(true);
      // Its window stands in for it.
      expect(data.accessibility_tree.children).toEqual([
        { role: "window", name: window.title, bounds: window.bounds },
      ]);
      await output(`kill -CONT ${window.pid}`);
      await eventually(
        async () => !(await desktop.ask<ScreenshotData>("screenshot")).data.tree_truncated,
        PATIENCE,
      );
    }));

  it("a program whose widgets have wrong types loses only those from the tree", () =>
    withDesktop(async (desktop) => {
      await desktop.do("launch", { command: ["python3", "-c", ODD_WIDGETS] });
      await desktop.node((node) => node.name === "honest" && node.value === 0.5);
      const seen = async () => {
        const window = await desktop.node(({ name: title, role }) => title === "odd" && role === "frame");
        return (window.children ?? []).map(({ name: title, value }) => [title, value]);
      };
      // On a busy machine, the time to read a tree may not suffice.
      await expect.poll(seen, { timeout: 120_000 }).toEqual([
        ["honest", 0.5],
        ["infinite", undefined],
        ["list", undefined],
        ["extents", 0.5],
        ["", 0.5],
        ["path", 0.5],
      ]);
      expect((await desktop.screenshot()).data.session_restarted).toBe(false);
    }));

  it("a program that falsely reports another owner of the clipboard has no effect", () =>
    withDesktop(async (desktop) => {
      await desktop.do("clipboard", { action: "set", text: "kept" });
      await desktop.do("launch", { command: ["python3", "-c", LIAR] });
      await eventually(async () => (await output("ls /tmp")).includes("lied"), PATIENCE);
      await output("rm /tmp/lied");
      expect(await desktop.do("clipboard", { action: "get" })).toMatchObject({
        text: "kept",
        session_restarted: false,
      });
    }));

  it("a clipboard that a program takes, and gives to the driver again, is empty", () =>
    withDesktop(async (desktop) => {
      await desktop.do("clipboard", { action: "set", text: "taken" });
      for (const done of ["taken", "given"]) {
        await desktop.do("launch", { command: ["python3", "-c", GIVER] });
        await eventually(async () => (await output("ls /tmp")).split("\n").includes(done), PATIENCE);
        const got = desktop.do("clipboard", { action: "get" });
        expect(await got.catch(String)).toMatchObject({ text: "", session_restarted: false });
      }
      await output("rm /tmp/taken /tmp/given");
    }));

  it("a call that times out or whose caller leaves releases what it pressed, and the session continues", () =>
    withDesktop(async (desktop) => {
      await desktop.open(["xterm", "-e", "cat > /tmp/cut"], ({ class: name }) => name === "XTerm");
      const nothing = await pressed(desktop);
      expect(nothing).toMatch(/^keys 0 state \d+;$/);
      const long = { text: "ABCDEFGHIJ".repeat(100), interval: 0.02 };
      const timeout = { timeout: { nanos: 300_000_000 } };
      expect(await desktop.worker.execute("vm:type", long, timeout)).toMatchObject({ code: 5006 });
      expect(await pressed(desktop)).toBe(nothing);

      const slow = { start_x: 700, start_y: 500, end_x: 750, end_y: 550, duration: 60 };
      expect(await desktop.worker.execute("vm:drag", slow, timeout)).toMatchObject({ code: 5006 });
      expect(await pressed(desktop)).toBe(nothing);

      const leaving = new AbortController();
      const left = desktop.worker.execute("vm:drag", slow, {}, { signal: leaving.signal });
      setTimeout(() => leaving.abort(), 200);
      await expect(left).rejects.toThrow(/CANCELLED/);
      expect(await pressed(desktop)).toBe(nothing);
      expect(await desktop.do("move", { x: 1, y: 1 })).toMatchObject({ session_restarted: false });

      await desktop.do("key_down", { key: "shift" });
      expect(await pressed(desktop)).toMatch(/^keys 1 state 1;$/);
      await desktop.do("key_up", { key: "shift" });
      expect(await pressed(desktop)).toBe(nothing);
    }));

  it("keys that key_down holds stay held while text is typed, whatever it needs", () =>
    withDesktop(async (desktop) => {
      const nothing = await pressed(desktop);
      for (const [key, text] of [
        ["shift", "A!"],
        ["a", "banana"],
        // More characters than there are spare keys, one of which is held.
        ["é", String.fromCodePoint(...Array.from({ length: 150 }, (_, index) => 0x4e00 + index))],
      ] as const) {
        await desktop.do("key_down", { key });
        await desktop.do("type", { text });
        expect(await pressed(desktop), key).toMatch(/^keys 1 /);
        await desktop.do("key_up", { key });
        expect(await pressed(desktop), key).toBe(nothing);
      }
    }));

  it("a driver that stops a call only later keeps its desktop", () =>
    withDesktop(async (desktop) => {
      const driver = (await pidsOf("python3 -I -S -c"))[1];
      await output(`kill -STOP ${driver}; (sleep 2; kill -CONT ${driver}) >/dev/null 2>&1 &`);
      const timeout = { timeout: { nanos: 100_000_000 } };
      expect(await desktop.worker.execute("vm:wait", { seconds: 60 }, timeout)).toMatchObject({ code: 5006 });
      expect(await desktop.do("move")).toMatchObject({ session_restarted: false });
    }));

  test("nothing is left in a sandbox that stays", async () => {
    const list = () =>
      output(
        // Without the shells in which Berth runs commands, of which there may be more. Not piped from ps, which would show
        // sort, or the shell that is about to become it.
        "all=$(ps -eo args --no-headers); printf '%s\\n' \"$all\" | grep -v '^/bin/sh ' | sort; find /tmp /dev/shm -mindepth 1 | sort; cat /proc/sysvipc/shm | wc -l",
      );
    // The first desktop creates the directory of the sockets.
    await withDesktop(async () => {});
    await output("rm -f /tmp/cut /tmp/state /tmp/grabbed; touch /tmp/cut");
    // A command that starts at the moment may be among them.
    const before = await list();
    const more = async (): Promise<readonly string[]> => {
      const rest = before.split("\n");
      return (await list()).split("\n").filter((line) => {
        const at = rest.indexOf(line);
        if (at >= 0) rest.splice(at, 1);
        return at < 0;
      });
    };
    await withDesktop(async (desktop) => {
      await desktop.open("xterm", ({ class: name }) => name === "XTerm");
      await desktop.do("launch", { command: "setsid sh -c 'sleep 8888 & sleep 8889' &" });
      await desktop.screenshot();
      expect(await more()).not.toEqual([]);
    });
    await expect.poll(more).toEqual([]);
  });

  it("desktops of two workers in one sandbox are separate", async () => {
    const [first, second] = [newDesktop(), newDesktop()];
    await Promise.all([
      first.start({ screen_size: [640, 480] }, here()),
      second.start({ screen_size: [800, 600] }, here()),
    ]);
    await Promise.all([first.do("move", { x: 11, y: 12 }), second.do("move", { x: 21, y: 22 })]);
    await first.do("clipboard", { action: "set", text: "first" });
    await first.open("xterm -T one", ({ title }) => title === "one");
    await second.open("xterm -T two", ({ title }) => title === "two");
    expect(await first.windows()).toHaveLength(1);
    const [{ data: one }, { data: two }] = await Promise.all([first.screenshot(), second.screenshot()]);
    expect(one).toMatchObject({ width: 640, cursor: { x: 11, y: 12 } });
    expect(two).toMatchObject({ width: 800, cursor: { x: 21, y: 22 } });
    expect(await second.do("clipboard", { action: "get" })).toMatchObject({ text: "" });
    await first.worker.destroy("vm");
    expect(await second.do("move")).toMatchObject({ x: 21, y: 22, session_restarted: false });
    await second.worker.destroy("vm");
  });
});

describe("on docker, which has images", () => {
  const app = useApp({ engine: "docker" });

  test.each([
    ["Xvfb and the X libraries", TEST_IMAGE, /has no .*libX11\.so\.6.*Xvfb.*berth\/desktop/],
    ["python3", BUSYBOX_IMAGE, /has no python3.*berth\/desktop/],
  ])("one without %s is refused by name", async (_, image, message) => {
    const { sandbox_id } = await app.client.createSandbox({ image });
    const { failure } = await new Worker(app.client, "user").create("vm", SIZE, { sandbox_id });
    expect(failure).toMatchObject({
      detail: { reason: "ERROR_REASON_SESSION_START_FAILED" },
      message: expect.stringMatching(message),
    });
    await app.client.deleteSandbox(sandbox_id);
  });

  test.each([
    ["that ends", "kill -9 $$", "it exited with code 137"],
    ["that ends with words", "echo oops >&2; exit 3", "it exited with code 3: oops"],
    [
      "that says something else",
      "read -r request; echo 12345678; cat >/dev/null",
      "something else wrote to its connection (a frame is too large)",
    ],
  ])("a driver %s does not start, and says why", async (_, script, why) => {
    const { sandbox_id } = await app.client.createSandbox({ image: TEST_IMAGE });
    await app.client.output(
      sandbox_id,
      `mkdir bin; printf '%s\\n' '#!/bin/sh' '${script}' >bin/python3; chmod 755 bin/python3`,
    );
    const env = { PATH: "/workspace/bin:/usr/bin:/bin" };
    const { failure } = await new Worker(app.client, "user").create("vm", { ...SIZE, env }, { sandbox_id });
    expect(failure).toMatchObject({
      detail: { reason: "ERROR_REASON_SESSION_START_FAILED" },
      message: `The desktop did not start: ${why}`,
    });
    await app.client.deleteSandbox(sandbox_id);
  });

  test.each([
    ["screenshot", {}],
    ["clipboard", { action: "get" }],
    ["move", {}],
  ])("an answer to %s that is larger than one can be is not taken", async (tool, params) => {
    const { sandbox_id } = await app.client.createSandbox({ image: TEST_IMAGE });
    await app.client.output(
      sandbox_id,
      `mkdir bin; cat >bin/python3 <<'EOF'\n${BOASTER}EOF\nchmod 755 bin/python3`,
    );
    const desktop = new TestDesktop(new Worker(app.client, `user of ${tool}`));
    const env = { PATH: "/workspace/bin:/usr/bin:/bin" };
    await desktop.start({ ...SIZE, env }, { sandbox_id });
    const codeOf = async () => (await desktop.ask(tool, params)).code;
    expect(await failureOf(codeOf())).toMatchObject({
      reason: "SESSION_LOST",
      message: expect.stringContaining("(a frame is too large)"),
    });
    await app.client.deleteSandbox(sandbox_id);
  });
});
