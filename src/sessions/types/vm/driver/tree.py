"""The driver's side of the accessibility tree, which a separate process reads: see tree_reader.py."""

import json
import os
import selectors
import struct

import tree_reader

SECONDS = 0.4
MAX_FAILURES = 3


class Tree:
    def __init__(self, driver):
        self._driver = driver
        self._asked = self._answered = 0
        self._answer = None
        self._data = b""
        self._in = self._out = None
        # If programs cannot be queried at all, it ends before it answers.
        self._failures = 0
        self._start()

    def _start(self):
        """Starts the reader. If the sandbox has no process or descriptor left for it, there is no tree, and the next
        question tries again.
        """
        fds = []
        try:
            fds += os.pipe()
            fds += os.pipe()
            requests, to_reader, from_reader, answers = fds
            self._driver.processes.fork("tree", lambda: tree_reader.serve(requests, answers), (requests, answers))
        except OSError:
            for fd in fds:
                os.close(fd)
            return
        os.close(requests)
        os.close(answers)
        self._in, self._out = to_reader, from_reader
        os.set_blocking(self._in, False)
        self._driver.selector.register(self._out, selectors.EVENT_READ, self._read)

    def ask(self):
        if self._in is None and self._failures < MAX_FAILURES:
            self._start()
        self._asked += 1
        if self._in is None:
            return self._asked
        try:
            os.write(self._in, json.dumps({"id": self._asked, "seconds": SECONDS}).encode() + b"\n")
        except OSError:
            pass
        return self._asked

    def answer(self, asked):
        """The programs' trees, and whether they are complete."""
        yield SECONDS + 0.1, lambda: self._in is None or self._answered >= asked
        if self._answered < asked:
            return [], self._failures == MAX_FAILURES
        return self._answer["nodes"], self._answer["whole"]

    def _read(self):
        read = os.read(self._out, 1 << 20)
        if not read:
            self._driver.selector.unregister(self._out)
            os.close(self._out)
            os.close(self._in)
            self._in, self._data = None, b""
            self._failures += self._answered == 0
            return
        self._data += read
        while len(self._data) >= 4:
            size = struct.unpack(">I", self._data[:4])[0]
            if len(self._data) < 4 + size:
                break
            self._answer = json.loads(self._data[4:4 + size])
            self._data = self._data[4 + size:]
            self._answered = self._answer["id"]
