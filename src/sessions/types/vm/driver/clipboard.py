"""The clipboard: offers text to programs, and reads text that a program offers."""

import ctypes
from ctypes import byref

import x11

# The limit in both directions: a property of this size fits into one request.
MAX_BYTES = 1 << 20
OWNER_SECONDS = 2
ANSWER = "BERTH_CLIPBOARD"


class Clipboard:
    def __init__(self, display):
        self._display = display
        self._text = None
        self._answer = None
        self._parts = None
        # How many requests of programs were answered.
        self.served = 0

    def set(self, text):
        display = self._display
        display.call("XSetSelectionOwner", display.atom("CLIPBOARD"), display.window, x11.CURRENT_TIME)
        display.sync()
        self._text = text.encode("utf-8", "replace")

    def get(self):
        """The clipboard's text, and whether it was truncated. Empty if there is none. None if its owner does not
        answer.
        """
        display = self._display
        owner = display.call("XGetSelectionOwner", display.atom("CLIPBOARD"))
        if not owner:
            return "", False
        if owner == display.window:
            # Any program can make this window the owner.
            return (self._text or b"").decode("utf-8"), False
        for target in ("UTF8_STRING", "STRING"):
            self._answer, self._parts = None, None
            display.call("XDeleteProperty", display.window, display.atom(ANSWER))
            display.call("XConvertSelection", display.atom("CLIPBOARD"), display.atom(target), display.atom(ANSWER), display.window,
                         x11.CURRENT_TIME)
            display.sync()
            yield OWNER_SECONDS, lambda: self._answer is not None
            if self._answer is None:
                self._parts = None
                return None
            if self._answer is not False:
                data = self._answer
                text = data[:MAX_BYTES].decode("utf-8" if target == "UTF8_STRING" else "latin-1", "ignore")
                return text, len(data) > MAX_BYTES
        return "", False

    def take(self, event):
        display = self._display
        if event.type == x11.SELECTION_REQUEST:
            self._serve(event.request)
        elif event.type == x11.SELECTION_CLEAR:
            # The event may be older than the last set, and any program can send one.
            if display.call("XGetSelectionOwner", display.atom("CLIPBOARD")) != display.window:
                self._text = None
        elif event.type == x11.SELECTION_NOTIFY and event.selection.requestor == display.window:
            self._answer = self._read() if event.selection.property else False
        elif event.type == x11.PROPERTY_NOTIFY and self._parts is not None and event.property.window == display.window:
            if event.property.atom == display.atom(ANSWER) and event.property.state == 0:
                self._read_part()

    def _read(self):
        """The text of an answer. None if it comes in parts."""
        display = self._display
        data, kind = display.property(display.window, ANSWER, MAX_BYTES + 4, delete=True)
        if kind == display.atom("INCR"):
            self._parts = []
            return None
        display.call("XDeleteProperty", display.window, display.atom(ANSWER))
        return data

    def _read_part(self):
        # Deleting the property asks for the next part.
        display = self._display
        data, _ = display.property(display.window, ANSWER, MAX_BYTES + 4, delete=True)
        self._parts.append(data)
        if not data or sum(map(len, self._parts)) > MAX_BYTES:
            self._answer, self._parts = b"".join(self._parts), None

    def _serve(self, request):
        """Sends the text to a program, in the format that it asks for."""
        self.served += 1
        display = self._display
        utf8 = [display.atom(name) for name in ("UTF8_STRING", "text/plain;charset=utf-8", "text/plain", "TEXT")]
        kind, form, data = 0, 8, None
        if self._text is not None:
            if request.target == display.atom("TARGETS"):
                targets = [request.target, *utf8, display.atom("STRING")]
                kind, form, data = display.atom("ATOM"), 32, bytes((ctypes.c_ulong * len(targets))(*targets))
            elif request.target in utf8:
                kind, data = request.target if request.target in utf8[:3] else utf8[0], self._text
            elif request.target == display.atom("STRING"):
                kind, data = request.target, self._text.decode("utf-8").encode("latin-1", "replace")
        place = request.property or request.target
        if data is not None:
            items = len(data) // ctypes.sizeof(ctypes.c_ulong) if form == 32 else len(data)
            display.call("XChangeProperty", request.requestor, place, kind, form, 0, data, items)
        event = x11.Event()
        answer = event.selection
        answer.type, answer.requestor, answer.selection = x11.SELECTION_NOTIFY, request.requestor, request.selection
        answer.target, answer.time = request.target, request.time
        answer.property = place if data is not None else 0
        display.call("XSendEvent", request.requestor, 0, 0, byref(event))
        display.call("XFlush")
