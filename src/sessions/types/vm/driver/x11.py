"""The parts of Xlib that the driver uses, through ctypes: a call needs no extra process or package."""

import ctypes
from ctypes import POINTER, Structure, Union, byref, c_char, c_char_p, c_int, c_long, c_uint, c_ulong, c_void_p

LIBRARIES = {"X11": "libX11.so.6", "Xtst": "libXtst.so.6", "Xext": "libXext.so.6", "Xrandr": "libXrandr.so.2"}

CURRENT_TIME = 0
ANY_PROPERTY = 0
Z_PIXMAP = 2
ALL_PLANES = 0xFFFFFFFF
IPC_CREAT, IPC_RMID = 0o1000, 0

# Events and masks.
PROPERTY_NOTIFY, SELECTION_CLEAR, SELECTION_REQUEST, SELECTION_NOTIFY = 28, 29, 30, 31
CONFIGURE_NOTIFY, CLIENT_MESSAGE, MAPPING_NOTIFY = 22, 33, 34
STRUCTURE_MASK, SUBSTRUCTURE_MASK, REDIRECT_MASK, PROPERTY_MASK = 1 << 17, 1 << 19, 1 << 20, 1 << 22

LOCK_MASK = 2
GROUP_SHIFT = 13
CORE_KEYBOARD = 0x100


class XImage(Structure):
    _fields_ = [(n, c_int) for n in ("width", "height", "xoffset", "format")] + [
        ("data", c_void_p), ("byte_order", c_int), ("bitmap_unit", c_int), ("bitmap_bit_order", c_int),
        ("bitmap_pad", c_int), ("depth", c_int), ("bytes_per_line", c_int), ("bits_per_pixel", c_int),
        ("red_mask", c_ulong), ("green_mask", c_ulong), ("blue_mask", c_ulong), ("obdata", c_void_p),
        ("create_image", c_void_p), ("destroy_image", c_void_p)]


class ShmInfo(Structure):
    _fields_ = [("shmseg", c_ulong), ("shmid", c_int), ("shmaddr", c_void_p), ("read_only", c_int)]


_ANY = [("type", c_int), ("serial", c_ulong), ("send_event", c_int), ("display", c_void_p)]


class PropertyEvent(Structure):
    _fields_ = _ANY + [("window", c_ulong), ("atom", c_ulong), ("time", c_ulong), ("state", c_int)]


class ConfigureEvent(Structure):
    _fields_ = _ANY + [("event", c_ulong), ("window", c_ulong), ("x", c_int), ("y", c_int), ("width", c_int), ("height", c_int)]


class SelectionRequest(Structure):
    _fields_ = _ANY + [(n, c_ulong) for n in ("owner", "requestor", "selection", "target", "property", "time")]


class SelectionEvent(Structure):
    _fields_ = _ANY + [(n, c_ulong) for n in ("requestor", "selection", "target", "property", "time")]


class ClientMessage(Structure):
    _fields_ = _ANY + [("window", c_ulong), ("message_type", c_ulong), ("format", c_int), ("data", c_long * 5)]


class Event(Union):
    _fields_ = [("type", c_int), ("property", PropertyEvent), ("configure", ConfigureEvent), ("request", SelectionRequest),
                ("selection", SelectionEvent), ("message", ClientMessage), ("pad", c_long * 24)]


class TextProperty(Structure):
    _fields_ = [("value", c_char_p), ("encoding", c_ulong), ("format", c_int), ("count", c_ulong)]


class ModeInfo(Structure):
    _fields_ = [("id", c_ulong), ("width", c_uint), ("height", c_uint), ("dot_clock", c_ulong)] + [
        (n, c_uint) for n in ("h_start", "h_end", "h_total", "h_skew", "v_start", "v_end", "v_total")] + [
        ("name", c_char_p), ("name_length", c_uint), ("flags", c_ulong)]


class ScreenResources(Structure):
    _fields_ = [("timestamp", c_ulong), ("config_timestamp", c_ulong), ("ncrtc", c_int), ("crtcs", POINTER(c_ulong)),
                ("noutput", c_int), ("outputs", POINTER(c_ulong)), ("nmode", c_int), ("modes", POINTER(ModeInfo))]


_ERROR_HANDLER = ctypes.CFUNCTYPE(c_int, c_void_p, c_void_p)
_SIGNATURES = {
    "X11": {
        "XOpenDisplay": (c_void_p, c_char_p), "XDefaultRootWindow": (c_ulong, c_void_p),
        "XDefaultVisual": (c_void_p, c_void_p, c_int), "XDefaultDepth": (c_int, c_void_p, c_int),
        "XConnectionNumber": (c_int, c_void_p), "XSync": (c_int, c_void_p, c_int), "XFlush": (c_int, c_void_p),
        "XPending": (c_int, c_void_p), "XNextEvent": (c_int, c_void_p, POINTER(Event)), "XFree": (c_int, c_void_p),
        "XSetErrorHandler": (c_void_p, _ERROR_HANDLER), "XSetIOErrorHandler": (c_void_p, ctypes.CFUNCTYPE(c_int, c_void_p)),
        "XInternAtom": (c_ulong, c_void_p, c_char_p, c_int), "XSelectInput": (c_int, c_void_p, c_ulong, c_long),
        "XSendEvent": (c_int, c_void_p, c_ulong, c_int, c_long, POINTER(Event)),
        "XCreateSimpleWindow": (c_ulong, c_void_p, c_ulong, c_int, c_int, c_uint, c_uint, c_uint, c_ulong, c_ulong),
        "XGetGeometry": (c_int, c_void_p, c_ulong, POINTER(c_ulong), *[POINTER(c_int)] * 2, *[POINTER(c_uint)] * 4),
        "XTranslateCoordinates": (c_int, c_void_p, c_ulong, c_ulong, c_int, c_int, *[POINTER(c_int)] * 2, POINTER(c_ulong)),
        "XQueryTree": (c_int, c_void_p, c_ulong, *[POINTER(c_ulong)] * 2, POINTER(POINTER(c_ulong)), POINTER(c_uint)),
        "XQueryPointer": (c_int, c_void_p, c_ulong, *[POINTER(c_ulong)] * 2, *[POINTER(c_int)] * 4, POINTER(c_uint)),
        "XGetWindowProperty": (c_int, c_void_p, c_ulong, c_ulong, c_long, c_long, c_int, c_ulong, POINTER(c_ulong),
                               POINTER(c_int), *[POINTER(c_ulong)] * 2, POINTER(c_void_p)),
        "Xutf8TextPropertyToTextList": (c_int, c_void_p, POINTER(TextProperty), POINTER(POINTER(c_char_p)), POINTER(c_int)),
        "XFreeStringList": (None, POINTER(c_char_p)),
        "XChangeProperty": (c_int, c_void_p, c_ulong, c_ulong, c_ulong, c_int, c_int, c_void_p, c_int),
        "XDeleteProperty": (c_int, c_void_p, c_ulong, c_ulong),
        "XSetWindowBackground": (c_int, c_void_p, c_ulong, c_ulong), "XClearWindow": (c_int, c_void_p, c_ulong),
        "XCreateFontCursor": (c_ulong, c_void_p, c_uint), "XDefineCursor": (c_int, c_void_p, c_ulong, c_ulong),
        "XDisplayKeycodes": (c_int, c_void_p, POINTER(c_int), POINTER(c_int)),
        "XGetKeyboardMapping": (c_void_p, c_void_p, ctypes.c_ubyte, c_int, POINTER(c_int)),
        "XChangeKeyboardMapping": (c_int, c_void_p, c_int, c_int, POINTER(c_ulong), c_int),
        "XkbKeycodeToKeysym": (c_ulong, c_void_p, ctypes.c_ubyte, c_int, c_int),
        "XStringToKeysym": (c_ulong, c_char_p), "XRefreshKeyboardMapping": (c_int, POINTER(Event)),
        "XkbLockModifiers": (c_int, c_void_p, c_uint, c_uint, c_uint), "XkbLockGroup": (c_int, c_void_p, c_uint, c_uint),
        "XSetSelectionOwner": (c_int, c_void_p, c_ulong, c_ulong, c_ulong), "XGetSelectionOwner": (c_ulong, c_void_p, c_ulong),
        "XConvertSelection": (c_int, c_void_p, *[c_ulong] * 5),
        "XGetImage": (POINTER(XImage), c_void_p, c_ulong, c_int, c_int, c_uint, c_uint, c_ulong, c_int),
        "XGrabServer": (c_int, c_void_p), "XUngrabServer": (c_int, c_void_p),
    },
    "Xtst": {
        "XTestQueryExtension": (c_int, c_void_p, *[POINTER(c_int)] * 4),
        "XTestFakeMotionEvent": (c_int, c_void_p, c_int, c_int, c_int, c_ulong),
        "XTestFakeButtonEvent": (c_int, c_void_p, c_uint, c_int, c_ulong),
        "XTestFakeKeyEvent": (c_int, c_void_p, c_uint, c_int, c_ulong),
    },
    "Xext": {
        "XShmQueryExtension": (c_int, c_void_p),
        "XShmCreateImage": (POINTER(XImage), c_void_p, c_void_p, c_uint, c_int, c_char_p, POINTER(ShmInfo), c_uint, c_uint),
        "XShmAttach": (c_int, c_void_p, POINTER(ShmInfo)), "XShmDetach": (c_int, c_void_p, POINTER(ShmInfo)),
        "XShmGetImage": (c_int, c_void_p, c_ulong, POINTER(XImage), c_int, c_int, c_ulong),
    },
    "Xrandr": {
        "XRRGetScreenResources": (POINTER(ScreenResources), c_void_p, c_ulong),
        "XRRFreeScreenResources": (None, POINTER(ScreenResources)),
        "XRRCreateMode": (c_ulong, c_void_p, c_ulong, POINTER(ModeInfo)),
        "XRRAddOutputMode": (None, c_void_p, c_ulong, c_ulong),
        "XRRSetScreenSize": (None, c_void_p, c_ulong, c_int, c_int, c_int, c_int),
        "XRRSetCrtcConfig": (c_int, c_void_p, POINTER(ScreenResources), c_ulong, c_ulong, c_int, c_int, c_ulong,
                             ctypes.c_ushort, POINTER(c_ulong), c_int),
    },
}


class Functions:
    """Xlib's functions by name. `missing` lists the libraries that are not installed."""

    def __init__(self):
        self.missing = []
        for library, signatures in _SIGNATURES.items():
            try:
                loaded = ctypes.CDLL(LIBRARIES[library])
            except OSError:
                self.missing.append(LIBRARIES[library])
                continue
            for name, (result, *arguments) in signatures.items():
                function = getattr(loaded, name)
                function.restype, function.argtypes = result, arguments
                setattr(self, name, function)


class Display:
    """One connection to an X server. X errors are only counted; a lost connection calls `on_lost`."""

    def __init__(self, functions, name, on_lost):
        self.x = functions
        self.errors = 0
        self._atoms = {}
        self._handlers = (_ERROR_HANDLER(self._on_error), ctypes.CFUNCTYPE(c_int, c_void_p)(lambda _: on_lost() or 0))
        functions.XSetErrorHandler(self._handlers[0])
        functions.XSetIOErrorHandler(self._handlers[1])
        self.handle = functions.XOpenDisplay(name.encode())
        if not self.handle:
            raise OSError("the X server takes no connection")
        self.root = functions.XDefaultRootWindow(self.handle)
        self.fd = functions.XConnectionNumber(self.handle)
        self.window = functions.XCreateSimpleWindow(self.handle, self.root, -10, -10, 1, 1, 0, 0, 0)
        functions.XSelectInput(self.handle, self.root, STRUCTURE_MASK | SUBSTRUCTURE_MASK)
        functions.XSelectInput(self.handle, self.window, PROPERTY_MASK)
        # Xlib reports a change of the keyboard's layout only to a program that has asked it for a key.
        functions.XkbKeycodeToKeysym(self.handle, 8, 0, 0)

    def _on_error(self, _display, _event):
        self.errors += 1
        return 0

    def call(self, name, *arguments):
        return getattr(self.x, name)(self.handle, *arguments)

    def sync(self):
        self.call("XSync", 0)

    def atom(self, name):
        if name not in self._atoms:
            self._atoms[name] = self.call("XInternAtom", name.encode(), 0)
        return self._atoms[name]

    def events(self):
        """The events that have arrived. Never waits."""
        while self.call("XPending"):
            event = Event()
            self.call("XNextEvent", byref(event))
            yield event

    def property(self, window, name, limit=64 * 1024, delete=False):
        """The bytes of a property and its type. A 32-bit item is a native long. (b"", 0) if there is none."""
        kind, form, count, after, data = c_ulong(), c_int(), c_ulong(), c_ulong(), c_void_p()
        status = self.call("XGetWindowProperty", window, self.atom(name), 0, limit // 4, int(delete), ANY_PROPERTY, byref(kind),
                           byref(form), byref(count), byref(after), byref(data))
        if status != 0 or not data:
            return b"", 0
        try:
            width = {8: 1, 16: 2, 32: ctypes.sizeof(c_long)}.get(form.value, 0)
            return ctypes.string_at(data, count.value * width), kind.value
        finally:
            self.x.XFree(data)

    def text(self, window, name, limit):
        """The text of a property, whose encoding is its type: programs may use Latin-1 or what X calls compound text."""
        data, kind = self.property(window, name, limit)
        if kind != self.atom("COMPOUND_TEXT"):
            return data.decode("latin-1" if kind == self.atom("STRING") else "utf-8", "replace")
        found, count = POINTER(c_char_p)(), c_int()
        self.call("Xutf8TextPropertyToTextList", byref(TextProperty(data, kind, 8, len(data))), byref(found), byref(count))
        try:
            return found[0].decode("utf-8", "replace") if count.value else ""
        finally:
            self.x.XFreeStringList(found)

    def longs(self, window, name, limit=64 * 1024):
        data, _ = self.property(window, name, limit)
        return list((c_ulong * (len(data) // ctypes.sizeof(c_ulong))).from_buffer_copy(data)) if data else []

    def set_property(self, window, name, kind, form, data):
        items = len(data) if form == 8 else len(data) // ctypes.sizeof(c_long)
        self.call("XChangeProperty", window, self.atom(name), kind, form, 0, data, items)

    def send_message(self, target, window, kind, values, mask):
        event = Event()
        event.message.type, event.message.window, event.message.format = CLIENT_MESSAGE, window, 32
        event.message.message_type = self.atom(kind)
        event.message.data = (c_long * 5)(*values)
        self.call("XSendEvent", target, 0, mask, byref(event))

    def pointer(self):
        """The pointer's x and y, and the state of modifiers and groups."""
        window, child = c_ulong(), c_ulong()
        x, y, wx, wy, mask = c_int(), c_int(), c_int(), c_int(), c_uint()
        self.call("XQueryPointer", self.root, byref(window), byref(child), byref(x), byref(y), byref(wx), byref(wy), byref(mask))
        return x.value, y.value, mask.value

    def geometry(self, window):
        """[x, y, width, height] on the screen. None if the window is gone."""
        root, x, y, child = c_ulong(), c_int(), c_int(), c_ulong()
        w, h, border, depth = c_uint(), c_uint(), c_uint(), c_uint()
        sizes = (byref(root), byref(x), byref(y), byref(w), byref(h), byref(border), byref(depth))
        if not self.call("XGetGeometry", window, *sizes):
            return None
        if not self.call("XTranslateCoordinates", window, self.root, 0, 0, byref(x), byref(y), byref(child)):
            return None
        return [x.value, y.value, w.value, h.value]

    def children(self, window):
        root, parent, count, found = c_ulong(), c_ulong(), c_uint(), POINTER(c_ulong)()
        if not self.call("XQueryTree", window, byref(root), byref(parent), byref(found), byref(count)) or not found:
            return []
        children = found[:count.value]
        self.x.XFree(ctypes.cast(found, c_void_p))
        return children
