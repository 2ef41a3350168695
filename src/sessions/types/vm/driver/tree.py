"""The driver's side of the accessibility tree: a process of its own reads it, see tree_reader.py."""

import json
import os
import selectors
import struct
import subprocess

SECONDS = 0.4
MAX_BYTES = 768 * 1024
SOURCES = {}


class Tree:
    def __init__(self, driver):
        self._driver = driver
        self._asked = self._answered = 0
        self._answer = None
        self._data = b""
        self._process = None
        self._start()

    def _start(self):
        argv = ["python3", "-I", "-c", SOURCES["tree_reader"]]
        self._process = self._driver.processes.start("tree", argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
        os.set_blocking(self._process.stdout.fileno(), False)
        self._driver.selector.register(self._process.stdout.fileno(), selectors.EVENT_READ, self._read)

    def ask(self):
        if self._process is None:
            self._start()
        self._asked += 1
        try:
            self._process.stdin.write(json.dumps({"id": self._asked, "seconds": SECONDS}).encode() + b"\n")
        except OSError:
            pass
        return self._asked

    def answer(self, asked):
        """(nodes, whether that is all of them); None where there is no answer in time."""
        yield SECONDS + 0.1, lambda: self._answered >= asked
        if self._answered < asked or self._answer is None:
            return None
        return self._answer["nodes"], self._answer["whole"]

    def _read(self):
        try:
            read = os.read(self._process.stdout.fileno(), 1 << 20)
        except BlockingIOError:
            return
        if not read:
            self._driver.selector.unregister(self._process.stdout.fileno())
            self._process.stdout.close()
            self._process.stdin.close()
            self._process, self._data = None, b""
            return
        self._data += read
        while len(self._data) >= 4:
            size = struct.unpack(">I", self._data[:4])[0]
            if len(self._data) < 4 + size:
                break
            self._answer = json.loads(self._data[4:4 + size])
            self._data = self._data[4 + size:]
            self._answered = self._answer["id"]
