"""The screen: its size, and screenshots."""

import ctypes
import struct
import zlib
from ctypes import byref, c_char_p, c_ulong, c_void_p, POINTER

import x11

STRIP_ROWS = 32
LEVEL = 1
ADLER = 65521

_libc = ctypes.CDLL(None)
_libc.shmget.argtypes = (ctypes.c_int, ctypes.c_size_t, ctypes.c_int)
_libc.shmat.restype, _libc.shmat.argtypes = c_void_p, (ctypes.c_int, c_void_p, ctypes.c_int)
_libc.shmdt.argtypes = (c_void_p,)
_libc.shmctl.argtypes = (ctypes.c_int, ctypes.c_int, c_void_p)


class Screen:
    def __init__(self, display, dpi):
        self._display = display
        self._dpi = dpi
        self._image = self._shm = None
        self._modes = {}
        self.width, self.height = display.geometry(display.root)[2:]
        self.actual = (self.width, self.height)
        self._encoder = Encoder()

    def resize(self, width, height):
        """Resizes the screen through RANDR. Returns whether the server could: it can up to its size at the start."""
        display, root = self._display, self._display.root
        if (width, height) != self.actual:
            resources = display.call("XRRGetScreenResources", root)
            try:
                found = resources.contents
                if found.ncrtc == 0 or found.noutput == 0:
                    return False
                mode = self._mode(found, width, height)
                both = max(width, self.actual[0]), max(height, self.actual[1])
                display.call("XGrabServer")
                self._set_size(*both)
                output = (c_ulong * 1)(found.outputs[0])
                display.call("XRRSetCrtcConfig", resources, found.crtcs[0], x11.CURRENT_TIME, 0, 0, mode, 1, output, 1)
                self._set_size(width, height)
            finally:
                display.call("XUngrabServer")
                display.x.XRRFreeScreenResources(resources)
            display.sync()
            self.actual = tuple(display.geometry(root)[2:])
        self.width, self.height = self.actual
        return self.actual == (width, height)

    def restore(self):
        """Restores the size after a program changed it."""
        if self.actual != (self.width, self.height):
            self.resize(self.width, self.height)

    def _mode(self, resources, width, height):
        for mode in resources.modes[:resources.nmode]:
            if (mode.width, mode.height) == (width, height):
                return mode.id
        name = b"%dx%d-berth" % (width, height)
        info = x11.ModeInfo(width=width, height=height, h_total=width, v_total=height, name=name, name_length=len(name))
        mode = self._display.call("XRRCreateMode", self._display.root, byref(info))
        self._display.call("XRRAddOutputMode", resources.outputs[0], mode)
        return mode

    def _set_size(self, width, height):
        millimetres = [round(side * 25.4 / self._dpi) for side in (width, height)]
        self._display.call("XRRSetScreenSize", self._display.root, width, height, *millimetres)

    def picture(self):
        """A PNG of the whole screen, without the pointer."""
        self.restore()
        return self._encoder.encode(self._grab(), self.width, self.height)

    def _grab(self):
        """The pixels, four bytes each: blue, green, red, unused."""
        display, size = self._display, self.width * self.height * 4
        if self._image is None or self._image.contents.width != self.width or self._image.contents.height != self.height:
            self._attach()
        if self._shm is not None and display.call("XShmGetImage", display.root, self._image, 0, 0, x11.ALL_PLANES):
            return ctypes.string_at(self._shm.shmaddr, size)
        image = display.call("XGetImage", display.root, 0, 0, self.width, self.height, x11.ALL_PLANES, x11.Z_PIXMAP)
        if not image:
            raise OSError("the X server gives no picture of the screen")
        try:
            return ctypes.string_at(image.contents.data, size)
        finally:
            ctypes.CFUNCTYPE(ctypes.c_int, c_void_p)(image.contents.destroy_image)(image)

    def _attach(self):
        """Shares memory with the server. If that fails, pictures come over the connection."""
        display = self._display
        if self._shm is not None:
            display.call("XShmDetach", byref(self._shm))
            display.sync()
            _libc.shmdt(self._shm.shmaddr)
            display.x.XFree(self._image)
            self._shm = self._image = None
        if not display.call("XShmQueryExtension"):
            return
        shm = x11.ShmInfo()
        visual, depth = display.call("XDefaultVisual", 0), display.call("XDefaultDepth", 0)
        image = display.call("XShmCreateImage", visual, depth, x11.Z_PIXMAP, None, byref(shm), self.width, self.height)
        shm.shmid = _libc.shmget(0, self.width * self.height * 4, x11.IPC_CREAT | 0o600)
        if not image or shm.shmid < 0:
            return
        shm.shmaddr = _libc.shmat(shm.shmid, None, 0)
        image.contents.data = shm.shmaddr
        before = display.errors
        display.call("XShmAttach", byref(shm))
        display.sync()
        # Removes it once its last user is gone, even after a crash.
        _libc.shmctl(shm.shmid, x11.IPC_RMID, None)
        if display.errors == before:
            self._image, self._shm = image, shm
        else:
            _libc.shmdt(shm.shmaddr)
            display.x.XFree(image)


class Encoder:
    """Creates PNGs. Compresses the picture in independent strips, so that strips that did not change are not compressed
    again.
    """

    def __init__(self):
        self._strips = []
        self._size = None

    def encode(self, pixels, width, height):
        if self._size != (width, height):
            self._strips, self._size = [], (width, height)
        size = STRIP_ROWS * width * 4
        adler, body = 1, [b"\x78\x01"]
        for index, start in enumerate(range(0, len(pixels), size)):
            raw = pixels[start:start + size]
            if index == len(self._strips):
                self._strips.append(None)
            known = self._strips[index]
            if known is None or known[0] != raw:
                known = self._strips[index] = (raw, *self._deflate(raw, width))
            body.append(known[1])
            adler = _combined(adler, known[2], known[3])
        body.append(b"\x03\x00" + struct.pack(">I", adler))
        header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
        return b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", header) + _chunk(b"IDAT", b"".join(body)) + _chunk(b"IEND", b"")

    @staticmethod
    def _deflate(raw, width):
        line, rows = width * 3 + 1, len(raw) // (width * 4)
        rgb = bytearray(width * rows * 3)
        rgb[0::3], rgb[1::3], rgb[2::3] = raw[2::4], raw[1::4], raw[0::4]
        # Each row starts with its filter type; 0: none.
        data = b"".join([b"\0" + rgb[at:at + line - 1] for at in range(0, len(rgb), line - 1)])
        deflate = zlib.compressobj(LEVEL, zlib.DEFLATED, -15)
        return deflate.compress(data) + deflate.flush(zlib.Z_FULL_FLUSH), zlib.adler32(data), len(data)


def _combined(first, second, length):
    """The Adler-32 of two concatenated parts, from theirs and the second's length."""
    a = (first & 0xFFFF) + (second & 0xFFFF) - 1
    b = (first >> 16) + (second >> 16) + length * ((first & 0xFFFF) - 1)
    return b % ADLER << 16 | a % ADLER


def _chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(data, zlib.crc32(kind)))
