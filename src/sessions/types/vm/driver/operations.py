"""What a desktop can do: one generator per operation, see main.py."""

import os
import time

import x11
from clipboard import Clipboard
from errors import Failure, Invalid
from keyboard import Keyboard
from processes import BACKGROUND, CURSOR_ARROW, RESOURCES
from recorder import Recorder
from screen import Screen
from tree import Tree
from windows import Windows

BUTTONS = {"left": 1, "middle": 2, "right": 3, "back": 8, "forward": 9}
WHEEL_UP, WHEEL_DOWN, WHEEL_LEFT, WHEEL_RIGHT = 4, 5, 6, 7
# Between the steps of a movement that a person would make at once.
STEP_SECONDS = 0.01
CLICK_SECONDS = 0.03
CLICK_MS = round(CLICK_SECONDS * 1000)
WHEEL_A_TURN = 10
# Programs do not recognize a jump as a drag, so that even a driver that lacks processor time moves in this many parts.
MIN_DRAG_PARTS = 10
MAX_PROGRAMS = 64
# With others, these copy or paste. How often a program may ask for what it pastes: first for its formats, then for one.
CLIPBOARD_KEYS = ("c", "x", "v", "Insert")
PASTE_ROUNDS = 5
# How long launches wait for the bus and the window manager, which a busy machine starts late. A program that comes before
# them stays without accessibility tree or without focus. Less than a call may take. What has not started by then never does.
READY_SECONDS = 20
# How long a launch waits for a shell that finds no such program, and how it ends then.
FAIL_SECONDS = 0.2
NOT_STARTED = (126, 127)


class Desktop:
    def __init__(self, driver, width, height, dpi):
        self._driver = driver
        self._display = display = driver.display
        self._processes = driver.processes
        self._screen = Screen(display, dpi)
        if not self._screen.resize(width, height):
            raise Failure("the X server cannot show %d x %d" % (width, height))
        self._windows = Windows(display, driver.processes)
        self._clipboard = Clipboard(display)
        self._keyboard = Keyboard(display, self._windows.program_is_ready)
        self._tree = None
        # When launches stop to wait for a window manager: set by the first.
        self._gives_up = None
        # See record().
        self._recorder = None
        self.takers = (self._take, self._windows.take, self._clipboard.take)
        names = ("screenshot", "click", "keys", "hold_keys", "type", "scroll", "drag", "move", "button", "wait", "launch", "windows",
                 "clipboard", "resize")
        self.operations = {name: getattr(self, name) for name in names}
        self._dress(dpi)

    def _dress(self, dpi):
        display = self._display
        display.call("XSetWindowBackground", display.root, BACKGROUND)
        display.call("XClearWindow", display.root)
        display.call("XDefineCursor", display.root, display.call("XCreateFontCursor", CURSOR_ARROW))
        display.set_property(display.root, "RESOURCE_MANAGER", display.atom("STRING"), 8, RESOURCES % dpi)
        display.call("XTestFakeMotionEvent", -1, self._screen.width // 2, self._screen.height // 2, x11.CURRENT_TIME)
        display.sync()

    @property
    def has_tree(self):
        return self._tree is not None

    def start_tree(self, has_bus):
        if has_bus:
            self._tree = Tree(self._driver)

    def record(self, directory):
        """Starts a recording and returns it."""
        self._recorder = Recorder(self._processes, self._screen, directory)
        self._recorder.start(self._processes.environment["DISPLAY"])
        return self._recorder

    def _take(self, event):
        if event.type == x11.MAPPING_NOTIFY:
            self._keyboard.changed = True
        elif event.type == x11.CONFIGURE_NOTIFY and event.configure.window == self._display.root:
            self._screen.actual = (event.configure.width, event.configure.height)

    def screenshot(self, tree):
        asked = self._tree.ask() if tree and self._tree else None
        png = self._screen.picture()
        if self._recorder is not None:
            self._recorder.show(png)
        x, y, _ = self._display.pointer()
        data = {"width": self._screen.width, "height": self._screen.height, "cursor": {"x": x, "y": y}}
        if tree:
            nodes, whole = (yield from self._tree.answer(asked)) if self._tree else ([], True)
            data["accessibility_tree"] = self._with_windows(nodes)
            data["tree_truncated"] = not whole
        return data, png

    def _with_windows(self, nodes):
        """The screen with the programs' trees. A window that belongs to none of them is a node of its own."""
        pids = {node.pop("pid", None) for node in nodes}
        for window in self._windows.list():
            if window["pid"] not in pids and not window["minimized"]:
                nodes.append({"role": "window", "name": window["title"], "bounds": window["bounds"]})
        return {"role": "desktop", "name": "", "bounds": [0, 0, self._screen.width, self._screen.height], "children": nodes}

    def windows(self):
        return {"windows": self._windows.list(), "window_manager": self._processes.window_manager}
        yield

    def _place(self, x, y):
        """Moves the pointer, and returns its position. A missing coordinate stays unchanged."""
        if x is None or y is None:
            # After a click, pointer moves may be held up until the window manager has seen it.
            yield from self._windows.manager_is_ready()
            self._screen.restore()
            here = self._display.pointer()[:2]
            if x is None and y is None:
                return here
            x, y = here[0] if x is None else x, here[1] if y is None else y
        return self._move(x, y)

    def _move(self, x, y):
        self._screen.restore()
        self._check("x", x, self._screen.width)
        self._check("y", y, self._screen.height)
        self._display.call("XTestFakeMotionEvent", -1, x, y, x11.CURRENT_TIME)
        self._display.sync()
        return x, y

    def _check(self, name, value, size):
        if not 0 <= value < size:
            raise Invalid(name, "must be below %d: the screen is %d x %d" % (size, self._screen.width, self._screen.height))

    def _press(self, button, down):
        self._display.call("XTestFakeButtonEvent", button, int(down), x11.CURRENT_TIME)
        self._display.sync()

    def move(self, x=None, y=None):
        x, y = yield from self._place(x, y)
        return {"x": x, "y": y}

    def click(self, x=None, y=None, button="left", count=1):
        x, y = yield from self._place(x, y)
        for index in range(count):
            # The server times the clicks: on a slow machine separate requests would be too far apart for a double
            # click.
            for down, delay in ((1, CLICK_MS if index else 0), (0, 0)):
                self._display.call("XTestFakeButtonEvent", BUTTONS[button], down, delay)
        self._display.sync()
        return {"x": x, "y": y, "button": button}

    def button(self, button, down, x=None, y=None):
        x, y = yield from self._place(x, y)
        self._press(BUTTONS[button], down)
        return {"x": x, "y": y, "button": button}

    def drag(self, start_x, start_y, end_x, end_y, button, duration):
        self._check("end_x", end_x, self._screen.width)
        self._check("end_y", end_y, self._screen.height)
        self._check("start_x", start_x, self._screen.width)
        self._check("start_y", start_y, self._screen.height)
        self._move(start_x, start_y)
        self._press(BUTTONS[button], True)
        try:
            yield CLICK_SECONDS
            began = time.monotonic()
            part = 0.0
            while part < 1:
                part = min(1.0, part + 1 / MIN_DRAG_PARTS, (time.monotonic() - began) / duration) if duration else 1.0
                self._move(round(start_x + (end_x - start_x) * part), round(start_y + (end_y - start_y) * part))
                yield STEP_SECONDS
        finally:
            self._press(BUTTONS[button], False)
        return {"start_x": start_x, "start_y": start_y, "end_x": end_x, "end_y": end_y, "button": button}

    def scroll(self, clicks, horizontal, x=None, y=None):
        x, y = yield from self._place(x, y)
        for axis, amount in (((WHEEL_UP, WHEEL_DOWN), clicks), ((WHEEL_RIGHT, WHEEL_LEFT), horizontal)):
            button = axis[0] if amount > 0 else axis[1]
            for index in range(abs(amount)):
                self._press(button, True)
                self._press(button, False)
                if index % WHEEL_A_TURN == WHEEL_A_TURN - 1:
                    yield STEP_SECONDS
        return {"x": x, "y": y, "clicks": clicks, "horizontal": horizontal}

    def type(self, text, interval):
        yield from self._windows.manager_is_ready()
        yield from self._keyboard.type(text, interval)
        return {"characters": len(text)}

    def _codes(self, keys):
        """The key codes for named keys, in order, including the modifiers that they need."""
        keysyms = []
        for field, name in keys:
            keysym = self._keyboard.keysym(name)
            if keysym == 0:
                raise Invalid(field, "there is no key %s" % name)
            keysyms.append(keysym)
        yield from self._keyboard.bind(keysyms)
        codes = []
        for keysym in keysyms:
            code, shifted = self._keyboard.find(keysym)
            codes += [part for part in ((self._keyboard.shift, code) if shifted else (code,)) if part not in codes]
        return codes

    def keys(self, keys):
        """Presses keys in order, and releases them in reverse order."""
        codes = yield from self._codes(keys)
        yield from self._windows.manager_is_ready()
        # Keys that are already held stay pressed.
        codes = [code for code in codes if code not in self._keyboard.held]
        pressed = []
        with self._keyboard.first_layout():
            try:
                for code in codes:
                    self._keyboard.press(code, True)
                    pressed.append(code)
            finally:
                for code in reversed(pressed):
                    self._keyboard.press(code, False)
                self._display.sync()
        if len(keys) > 1 and any(name in CLIPBOARD_KEYS for _, name in keys):
            yield from self._clipboard_is_used()

    def _clipboard_is_used(self):
        """Waits until the active program has copied or pasted. Otherwise what is typed next would come before what is
        pasted, and the clipboard would be read before it has what is copied.
        """
        for _ in range(PASTE_ROUNDS):
            served = self._clipboard.served
            yield from self._windows.program_is_ready()
            if self._clipboard.served == served:
                return

    def hold_keys(self, keys, down):
        codes = yield from self._codes(keys)
        yield from self._windows.manager_is_ready()
        with self._keyboard.first_layout():
            for code in codes if down else reversed(codes):
                self._keyboard.press(code, down)
                if down:
                    self._keyboard.held.add(code)
                else:
                    self._keyboard.held.discard(code)
            self._display.sync()

    def wait(self, seconds):
        yield seconds

    def clipboard(self, text=None):
        if text is not None:
            self._clipboard.set(text)
            return {"truncated": False}, text.encode("utf-8", "replace")
        found = yield from self._clipboard.get()
        if found is None:
            raise Failure("The program that has the clipboard does not answer.")
        return {"truncated": found[1]}, found[0].encode("utf-8", "replace")

    def launch(self, argv):
        if self._processes.count("program") >= MAX_PROGRAMS:
            raise Failure("%d launched programs run: close one first." % MAX_PROGRAMS)
        if self._gives_up is None:
            self._gives_up = time.monotonic() + READY_SECONDS
        deadline = self._gives_up
        while not self._is_ready() and time.monotonic() < deadline:
            yield STEP_SECONDS
        yield from self._windows.manager_runs(deadline)
        directory = self._processes.working_directory
        ended = []
        try:
            process = self._processes.start("program", argv, lambda _, status: ended.append(status), cwd=directory if os.path.isdir(directory) else None)
        except (OSError, ValueError) as error:
            raise Failure("%s could not be started: %s." % (argv[0], getattr(error, "strerror", None) or error))
        deadline = time.monotonic() + FAIL_SECONDS
        while argv[0] == "/bin/sh" and not ended and time.monotonic() < deadline:
            yield STEP_SECONDS
        if ended and os.WIFEXITED(ended[0]) and os.WEXITSTATUS(ended[0]) in NOT_STARTED:
            raise Failure("The command ended at once with exit code %d: the program %s." % (
                os.WEXITSTATUS(ended[0]), "was not found" if os.WEXITSTATUS(ended[0]) == 127 else "cannot be executed"))
        return {"pid": process.pid}

    def _is_ready(self):
        """Whether the services that programs look for at their start are ready: the bus and the window manager."""
        has_bus = os.path.exists(self._processes.path("bus")) or not self._processes.count("dbus-daemon")
        return has_bus and (self._processes.window_manager != "openbox" or self._windows.are_managed())

    def resize(self, width, height):
        """Resizes the screen. Returns whether it now has that size."""
        return {"resized": self._screen.resize(width, height)}
        yield
