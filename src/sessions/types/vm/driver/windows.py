"""Windows as the window manager lists them, and waiting for programs that handle events."""

import time

import x11

MAX_WINDOWS = 256
MAX_TEXT = 200
# JSON would escape each of these in six bytes.
CONTROLS = {code: "\ufffd" for code in range(32)}
# How long the window manager and programs may take to answer. After that a request continues without their answer.
MANAGER_SECONDS = 2
ASK_SECONDS = 0.05
PROGRAM_SECONDS = 10
SETTLE_SECONDS = 0.15


class Windows:
    def __init__(self, display, processes):
        self._display = display
        self._processes = processes
        self._asked = self._answered = 0
        self._placed = True
        self._runs = False

    def list(self):
        """From the bottom to the top: id, title, class, pid, bounds of the content, and whether it is active."""
        display, root = self._display, self._display.root
        if self._processes.window_manager == "openbox":
            windows = display.longs(root, "_NET_CLIENT_LIST_STACKING")
            active = (display.longs(root, "_NET_ACTIVE_WINDOW") or [0])[0]
        else:
            windows, active = [w for w in display.children(root) if display.property(w, "WM_CLASS")[0]], 0
        found = []
        for window in windows[-MAX_WINDOWS:]:
            bounds = display.geometry(window)
            if bounds is None:
                continue
            title = self._text(window, "_NET_WM_NAME") or self._text(window, "WM_NAME")
            names = display.property(window, "WM_CLASS", 1024)[0].split(b"\0")
            pid = display.longs(window, "_NET_WM_PID", 4)
            found.append({
                "id": window, "title": title, "class": _plain(names[1 if len(names) > 1 else 0].decode("utf-8", "replace")),
                "pid": pid[0] if pid else None, "bounds": bounds, "active": window == active,
                "minimized": display.atom("_NET_WM_STATE_HIDDEN") in display.longs(window, "_NET_WM_STATE", 256)})
        return found

    def are_managed(self):
        return bool(self._display.longs(self._display.root, "_NET_SUPPORTING_WM_CHECK", 4))

    def _text(self, window, name):
        return _plain(self._display.text(window, name, MAX_TEXT * 4))

    def manager_runs(self, deadline):
        """Waits until the window manager handles events. It appears before that, and does not notice what comes meanwhile.
        """
        while not self._runs and time.monotonic() < deadline:
            yield from self._answer(ASK_SECONDS)
            self._runs = self._placed

    def manager_is_ready(self):
        """Waits until the window manager has handled all earlier events, such as the focus change of a click. One that has
        not answered yet may still start, and would not notice a single question.
        """
        if self._runs:
            yield from self._answer(MANAGER_SECONDS)
        else:
            yield from self.manager_runs(time.monotonic() + MANAGER_SECONDS)

    def _answer(self, seconds):
        self._placed = self._processes.window_manager != "openbox"
        if self._placed:
            return
        display = self._display
        display.send_message(display.root, display.window, "_NET_REQUEST_FRAME_EXTENTS", (0, 0, 0, 0, 0),
                             x11.SUBSTRUCTURE_MASK | x11.REDIRECT_MASK)
        display.sync()
        yield seconds, lambda: self._placed

    def program_is_ready(self):
        """Waits until the active program has read its events. A program that cannot be asked gets a short time instead.
        """
        display = self._display
        active = (display.longs(display.root, "_NET_ACTIVE_WINDOW") or [0])[0]
        if not active or display.atom("_NET_WM_PING") not in display.longs(active, "WM_PROTOCOLS", 256):
            yield SETTLE_SECONDS
            return
        self._asked += 1
        values = (display.atom("_NET_WM_PING"), self._asked, active, 0, 0)
        display.send_message(active, active, "WM_PROTOCOLS", values, 0)
        display.sync()
        asked = self._asked
        yield PROGRAM_SECONDS, lambda: self._answered >= asked

    def take(self, event):
        """Handles events that answer the two waits above."""
        if event.type == x11.PROPERTY_NOTIFY and event.property.window == self._display.window:
            if event.property.atom == self._display.atom("_NET_FRAME_EXTENTS"):
                self._placed = True
        elif event.type == x11.CLIENT_MESSAGE and event.message.window == self._display.root:
            data = event.message.data
            if event.message.message_type == self._display.atom("WM_PROTOCOLS") and data[0] == self._display.atom("_NET_WM_PING"):
                self._answered = max(self._answered, min(data[1], self._asked))


def _plain(text):
    return text[:MAX_TEXT].translate(CONTROLS)
