"""A D-Bus client for thousands of concurrent calls. A call costs a fraction of what it does with a general library."""

import os
import select
import socket
import struct
import time

CALL, RETURN = 1, 2
NO_AUTO_START = 2
# Larger answers are skipped: reading them would take too long.
MAX_ANSWER = 8 << 20
READ_BYTES = 1 << 18
SIZES = {"y": 1, "b": 4, "n": 2, "q": 2, "i": 4, "u": 4, "x": 8, "t": 8, "d": 8}
FORMATS = {"y": "<B", "b": "<I", "n": "<h", "q": "<H", "i": "<i", "u": "<I", "x": "<q", "t": "<Q", "d": "<d"}
_readers = {}


class Bus:
    """A connection to a bus, by an address such as unix:path=/run/bus,guid=…"""

    def __init__(self, address, seconds):
        parts = dict(part.split("=", 1) for part in address.partition(":")[2].split(",") if "=" in part)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(seconds)
        self._socket.connect(parts["path"] if "path" in parts else "\0" + parts["abstract"])
        self._socket.sendall(b"\0AUTH EXTERNAL %s\r\n" % str(os.getuid()).encode().hex().encode())
        answer = b""
        while not answer.endswith(b"\r\n"):
            read = self._socket.recv(4096)
            if not read:
                raise OSError("the bus ended the connection")
            answer += read
        if not answer.startswith(b"OK"):
            raise OSError("the bus refused the connection")
        self._socket.sendall(b"BEGIN\r\n")
        self._socket.setblocking(False)
        self._serial = 0
        self._data, self._out = bytearray(), b""
        self._skip = 0
        self.one("org.freedesktop.DBus", "/org/freedesktop/DBus", "org.freedesktop.DBus", "Hello", seconds=seconds)

    def one(self, name, path, interface, member, signature="", values=(), seconds=5):
        """Makes a call, which may start the service that answers it. Returns the values of the answer."""
        call = ((name, path), interface, member, signature, values)
        (answer,), late = self.all([call], time.monotonic() + seconds, 0)
        if answer is None:
            raise OSError("%s does not answer%s" % (name, " in time" if late else ""))
        return answer

    def all(self, calls, deadline, flags=NO_AUTO_START, results={}):
        """Makes all calls at once: ((name, path), interface, member, signature, values). Returns the values of each
        answer, None if there is none or if it does not have the type that `results` gives for the member; and whether
        any was missing at the deadline.
        """
        first = self._serial + 1
        self._serial += len(calls)
        # First finish sending calls that were not sent in time.
        out = self._out = memoryview(bytes(self._out) + b"".join([_message(first + index, flags, *call) for index, call in enumerate(calls)]))
        answers, waiting = [None] * len(calls), len(calls)
        poll = select.poll()
        while waiting > 0:
            left = deadline - time.monotonic()
            if left <= 0:
                break
            poll.register(self._socket, select.POLLIN | (select.POLLOUT if out else 0))
            for _, event in poll.poll(left * 1000 + 1):
                if event & select.POLLOUT and out:
                    out = self._out = out[self._socket.send(out):]
                if event & ~select.POLLOUT:
                    for serial, body in self._receive():
                        if first <= serial <= self._serial:
                            answers[serial - first] = body
                            waiting -= 1
        wanted = [results.get(member) for _, _, member, *_ in calls]
        values = [read_values(*body) if body and kind in (None, body[0]) else None for kind, body in zip(wanted, answers)]
        return values, waiting > 0

    def _receive(self):
        """The answers that have arrived: (serial of the call, (signature, body) or None for an error)."""
        read = self._socket.recv(READ_BYTES)
        if not read:
            raise OSError("the bus ended the connection")
        if self._skip:
            read, self._skip = read[self._skip:], max(0, self._skip - len(read))
        self._data += read
        data, at, found = bytes(self._data), 0, []
        while len(data) - at >= 16:
            length, _, fields = struct.unpack_from("<III", data, at + 4)
            start = at + (16 + fields + 7 & -8)
            serial, signature = _fields(data[at:start], 16 + fields) if len(data) >= start else (0, "")
            if len(data) >= start and length > MAX_ANSWER:
                found.append((serial, None))
                self._skip = max(0, start + length - len(data))
                at = min(len(data), start + length)
                continue
            if len(data) < start + length:
                break
            if serial:
                found.append((serial, (signature, data[start:start + length]) if data[at + 1] == RETURN else None))
            at = start + length
        del self._data[:at]
        return found


def _fields(data, end):
    """The serial that a message answers, 0 if it is not an answer; and the signature of its body."""
    at, serial, signature = 16, 0, ""
    while at < end:
        at = at + 7 & -8
        code, kind = data[at], data[at + 2]
        at += 4
        if kind == 0x75:
            if code == 5:
                serial = struct.unpack_from("<I", data, at)[0]
            at += 4
        elif kind == 0x67:
            signature = data[at + 1:at + 1 + data[at]].decode()
            at += data[at] + 2
        else:
            at += struct.unpack_from("<I", data, at)[0] + 5
    return serial, signature


def _message(serial, flags, where, interface, member, signature="", values=()):
    body = _body(signature, values) if signature else b""
    fields = b""
    for code, kind, text in ((1, b"o", where[1]), (2, b"s", interface), (3, b"s", member), (6, b"s", where[0])):
        text = text.encode()
        field = struct.pack("<B2sxI", code, b"\1" + kind, len(text)) + text + b"\0"
        fields += b"\0" * (-len(fields) % 8) + field
    if signature:
        fields += b"\0" * (-len(fields) % 8) + b"\x08\1g\0" + bytes([len(signature)]) + signature.encode() + b"\0"
    header = struct.pack("<cBBBIII", b"l", CALL, flags, 1, len(body), serial, len(fields)) + fields
    return header + b"\0" * (-len(header) % 8) + body


def _body(signature, values):
    """Encodes strings, numbers, and variants that are booleans."""
    body = b""
    for kind, value in zip(signature, values):
        if kind == "v":
            body += b"\1b\0"
        body += b"\0" * (-len(body) % 4)
        if kind == "s":
            body += struct.pack("<I", len(value.encode())) + value.encode() + b"\0"
        else:
            body += struct.pack("<i", value)
    return body


def read_values(signature, data):
    """All values of a body, as a list."""
    values, at, pos = [], 0, 0
    while at < len(signature):
        read, after = _reader(signature, at)
        value, pos = read(data, pos)
        values.append(value)
        at = after
    return values


def _reader(signature, at):
    """The reader of a type, as read(data, position) -> (value, position after it), and where the next type starts."""
    key = (signature, at)
    if key not in _readers:
        _readers[key] = _make_reader(signature, at)
    return _readers[key]


def _make_reader(signature, at):
    kind = signature[at]
    if kind in SIZES:
        size, unpack = SIZES[kind], struct.Struct(FORMATS[kind]).unpack_from

        def number(data, pos):
            pos = pos + size - 1 & -size
            return unpack(data, pos)[0], pos + size
        return number, at + 1
    if kind in "so":
        length = struct.Struct("<I").unpack_from

        def text(data, pos):
            pos = pos + 3 & -4
            end = pos + 4 + length(data, pos)[0]
            return data[pos + 4:end].decode("utf-8", "replace"), end + 1
        return text, at + 1
    if kind in "gv":
        def variant(data, pos):
            end = pos + 1 + data[pos]
            found = data[pos + 1:end].decode()
            return (found, end + 1) if kind == "g" else _reader(found, 0)[0](data, end + 1)
        return variant, at + 1
    if kind == "a":
        inner, after = _reader(signature, at + 1)
        align = SIZES.get(signature[at + 1], {"(": 8, "{": 8, "g": 1, "v": 1}.get(signature[at + 1], 4))
        length = struct.Struct("<I").unpack_from

        def array(data, pos):
            pos = pos + 3 & -4
            size = length(data, pos)[0]
            pos = pos + 4 + align - 1 & -align
            end, items = pos + size, []
            while pos < end:
                item, pos = inner(data, pos)
                items.append(item)
            return items, pos
        return array, after
    inner, at = [], at + 1
    while signature[at] not in ")}":
        read, at = _reader(signature, at)
        inner.append(read)

    def record(data, pos):
        pos = pos + 7 & -8
        items = []
        for read in inner:
            item, pos = read(data, pos)
            items.append(item)
        return tuple(items), pos
    return record, at + 1
