"""The driver of a desktop. It reads requests from stdin, one line of JSON each, and answers in frames on stdout. It
runs one request at a time, as a generator that yields how long it waits, and for what.
"""

import json
import os
import selectors
import shutil
import signal
import struct
import sys
import time

import guard
import processes
import x11
from errors import Failure, Invalid

START_SECONDS = 40
# Screens can be resized up to this size without restarting the server.
SPARE_SIZE = (3840, 2160)


class Requests:
    """The two pipes to the service."""

    def __init__(self):
        # Processes that are started later do not inherit these.
        self._in, self._out = os.dup(0), os.dup(1)
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, 0)
        os.dup2(null, 1)
        os.close(null)
        self.fd = self._in
        self._text = b""

    def read(self):
        """The requests that have arrived; None at the end."""
        read = os.read(self._in, 1 << 20)
        if not read:
            return None
        *lines, self._text = (self._text + read).split(b"\n")
        return [json.loads(line) for line in lines]

    def answer(self, header, payload=b""):
        text = json.dumps(header, ensure_ascii=False).encode("utf-8", "replace")
        data = memoryview(struct.pack(">II", len(text), len(payload)) + text + payload)
        while data:
            data = data[os.write(self._out, data):]


class Driver:
    def __init__(self, directory):
        self.requests = Requests()
        self.processes = processes.Processes(directory)
        self.selector = selectors.DefaultSelector()
        self.display = None
        self.operations = {}
        self.recorder = None
        self._on_event = []
        self._id = self._task = None
        self._deadline, self._until = 0, None
        self._ended = False

    def run(self):
        wake, waker = os.pipe()
        for fd in (wake, waker):
            os.set_blocking(fd, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(waker)
        self.selector.register(wake, selectors.EVENT_READ, lambda: os.read(wake, 4096) and self.processes.reap())
        self.selector.register(self.requests.fd, selectors.EVENT_READ, self._read_requests)
        try:
            while not self._ended:
                self._turn()
            self._finish_recording(True)
        except Failure as failure:
            sys.stderr.write("%s\n" % failure)
            sys.stderr.flush()
            self._finish_recording(False)
            raise SystemExit(3)

    def _finish_recording(self, draws):
        recorder, self.recorder = self.recorder, None
        if recorder is not None:
            recorder.finish(draws)

    def _turn(self):
        # select() does not report events that Xlib has already read.
        self._take_events()
        # The recorder only runs between requests.
        deadline = self._deadline if self._task is not None else self.recorder and self.recorder.due
        wait = None if deadline is None else max(0, deadline - time.monotonic())
        if self._task is not None and self._until is not None and self._until():
            wait = 0
        for key, _ in self.selector.select(wait):
            key.data()
        self._take_events()
        if self._task is not None:
            reached = self._until is not None and self._until()
            if reached or time.monotonic() >= self._deadline:
                self._advance(reached)
        elif self.recorder is not None and self.recorder.due is not None and time.monotonic() >= self.recorder.due:
            self.recorder.flush()

    def _take_events(self):
        if self.display is not None:
            for event in self.display.events():
                for take in self._on_event:
                    take(event)

    def _read_requests(self):
        lines = self.requests.read()
        if lines is None:
            self._ended = True
            self._stop()
            return
        for request in lines:
            if "cancel" in request:
                if request["cancel"] == self._id:
                    self._finish({"error": {"kind": "canceled", "message": "The request was canceled."}})
            elif "note" in request:
                if self.recorder is not None:
                    self.recorder.note(**request["note"])
            else:
                self._begin(request)

    def _begin(self, request):
        if self._task is not None:
            self.requests.answer({"id": request["id"], "error": {"kind": "failed", "message": "another request is under way"}})
            return
        if self.recorder is not None:
            self.recorder.flush()
        self.processes.restart_window_manager()
        self._id = request.pop("id")
        name = request.pop("op")
        operation = self._start if self.display is None else self.operations[name]
        self._task = operation(**request)
        self._advance(None)

    def _advance(self, value):
        """Resumes the request until it waits or ends."""
        try:
            waits = self._task.send(value)
            seconds, self._until = waits if isinstance(waits, tuple) else (waits, None)
            self._deadline = time.monotonic() + seconds
        except StopIteration as end:
            data, payload = end.value if isinstance(end.value, tuple) else (end.value or {}, b"")
            self._finish({"data": data}, payload)
        except Invalid as error:
            self._finish({"error": {"kind": "invalid", "field": error.field, "message": str(error)}})
        except Failure as error:
            self._finish({"error": {"kind": "failed", "message": str(error)}})
        except OSError as error:
            self._finish({"error": {"kind": "failed", "message": error.strerror or str(error)}})

    def _finish(self, header, payload=b""):
        self._stop()
        if self.recorder is not None and self.recorder.stopped is not None:
            header["stopped"] = self.recorder.stopped
        self.requests.answer(dict(header, id=self._id), payload)
        self._id = None

    def _stop(self):
        """Ends the request. Closing its generator releases what it holds."""
        if self._task is not None:
            self._task.close()
        self._task = self._until = None

    def _start(self, width, height, dpi, record=None):
        """The first request: starts the screen. The answer says what is available."""
        functions = x11.Functions()
        programs = ("Xvfb",) if record is None else ("Xvfb", "ffmpeg")
        missing = functions.missing + [name for name in programs if shutil.which(name) is None]
        if missing:
            self._finish_start({"kind": "missing", "message": ", ".join(missing)})
        size = max(width, SPARE_SIZE[0]), max(height, SPARE_SIZE[1])
        try:
            name = self.processes.start_server(*size, dpi, START_SECONDS)
            self.display = x11.Display(functions, name, self._lost)
        except (Failure, OSError) as error:
            self._finish_start({"kind": "failed", "message": str(error)})
        has_bus = self.processes.start_bus()
        import operations
        desktop = operations.Desktop(self, width, height, dpi)
        self.processes.start_window_manager()
        if record is not None:
            self._record(desktop, record)
        self._on_event = desktop.takers
        self.operations = desktop.operations
        self.selector.register(self.display.fd, selectors.EVENT_READ, lambda: None)
        desktop.start_tree(has_bus)
        return {"display": name, "authority": os.environ["XAUTHORITY"], "window_manager": self.processes.window_manager, "accessibility": desktop.has_tree}
        yield

    def _record(self, desktop, directory):
        try:
            self.recorder = desktop.record(directory)
        except (Failure, OSError) as error:
            self._finish_start({"kind": "failed", "message": str(error)})
        self.selector.register(self.recorder.log, selectors.EVENT_READ, self._read_log)

    def _read_log(self):
        if not self.recorder.read_log():
            self.selector.unregister(self.recorder.log)

    def _lost(self):
        sys.stderr.write("The X server ended.\n")
        sys.stderr.flush()
        self._finish_recording(False)
        os._exit(3)

    def _finish_start(self, error):
        self.requests.answer({"id": self._id, "error": error})
        raise SystemExit(0)


if __name__ == "main":
    guard.guard(sys.argv[2], lambda directory: Driver(directory).run())
