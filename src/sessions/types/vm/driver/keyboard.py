"""Keys and text. A keysym is typed with the key that has it; if there is none, it is bound to a spare key first."""

import contextlib
import ctypes
from ctypes import byref, c_int, c_ubyte, c_ulong

import x11
from errors import Failure

# The codes of multimedia keys, which the virtual keyboard does not have, so that they are free for other characters.
# They are contiguous, because every change makes all programs read the layout again. Modifiers lie in between.
SPARE = (*range(150, 203), *range(208, 256))
# How many keys are typed without a pause. A request can be canceled at each pause.
KEYS_A_TURN = 32
_CONTROL_KEYS = {"\n": b"Return", "\t": b"Tab"}


class Keyboard:
    """Remembers what is pressed, so that a request that ends early releases it."""

    def __init__(self, display, programs_are_ready):
        self._display = display
        # A generator that waits until the active program has read its events.
        self._programs_are_ready = programs_are_ready
        self.shift = 0
        self._keys = {}
        # The spare codes by the keysym they are bound to, and where to look for the next free one.
        self._bound = {}
        self._next = 0
        # Codes among them that a program may still have to look up.
        self._used = set()
        # Codes that stay pressed until they are released by name.
        self.held = set()
        self.changed = True

    def keysym(self, name):
        """The keysym of a character, or of a name in X's spelling. 0 if there is none."""
        if len(name) == 1:
            return keysym_of(name, self._display)
        return self._display.x.XStringToKeysym(name.encode("utf-8", "replace"))

    def _read(self):
        """Reads the layout if it has changed."""
        if not self.changed:
            return
        self.changed = False
        display, first, last, width = self._display, c_int(), c_int(), c_int()
        display.call("XDisplayKeycodes", byref(first), byref(last))
        count = last.value - first.value + 1
        address = display.call("XGetKeyboardMapping", c_ubyte(first.value), count, byref(width))
        if not address:
            return
        syms = (c_ulong * (count * width.value)).from_address(address)
        rows = {first.value + index: syms[index * width.value:(index + 1) * width.value] for index in range(count)}
        display.x.XFree(address)
        self._bound = {sym: code for sym, code in self._bound.items() if rows.get(code, (0,))[0] == sym}
        self._keys = {}
        for code in sorted(set(rows) - set(SPARE)):
            # The two levels of the first group: without and with Shift.
            for level, sym in enumerate(rows[code][:2]):
                if sym:
                    self._keys.setdefault(sym, (code, level == 1))
        self.shift = self._keys.get(display.x.XStringToKeysym(b"Shift_L"), (50, False))[0]

    def find(self, keysym):
        """The key of a keysym and whether it needs Shift. None if it must be bound first."""
        self._read()
        return self._keys.get(keysym) or (keysym in self._bound and (self._bound[keysym], False)) or None

    def bind(self, keysyms):
        """Binds the keysyms that have no key, as far as there is room. Returns how many keysyms can be typed now."""
        self._read()
        needed, fit = {}, 0
        room = len(SPARE) - len(self.held.intersection(SPARE))
        for keysym in keysyms:
            code = self._bound.get(keysym)
            if keysym not in self._keys and keysym not in needed and code not in self.held:
                if len(needed) == room:
                    if fit == 0:
                        raise Failure("too many keys are held: release some first")
                    break
                needed[keysym] = code
            fit += 1
        wanted = [keysym for keysym, code in needed.items() if code is None]
        if not wanted:
            return fit
        kept = self.held.union(needed.values())
        free = [code for code in SPARE[self._next:] + SPARE[:self._next] if code not in kept][:len(wanted)]
        self._next = SPARE.index(free[-1]) + 1
        if self._used.intersection(free):
            yield from self._programs_are_ready()
            self._used.clear()
            if self.changed:
                # A program has changed the layout meanwhile.
                return (yield from self.bind(keysyms))
        self._bound = {keysym: code for keysym, code in self._bound.items() if code not in free}
        self._bound.update(zip(wanted, free))
        self._write(dict(zip(free, wanted)))
        return fit

    def _write(self, meanings):
        """Binds keys. Uses one request for contiguous codes, because each makes every program read the layout again."""
        codes = sorted(meanings)
        while codes:
            run = [codes.pop(0)]
            while codes and codes[0] == run[-1] + 1:
                run.append(codes.pop(0))
            # Both levels: with only a lower-case letter, Shift would type its capital.
            rows = (c_ulong * (len(run) * 2))(*[meanings[code] for code in run for _ in range(2)])
            self._display.call("XChangeKeyboardMapping", run[0], 2, rows, len(run))
        self._display.sync()

    def press(self, code, down):
        self._display.call("XTestFakeKeyEvent", code, int(down), x11.CURRENT_TIME)

    def tap(self, keysym):
        """Presses and releases the key of a keysym, which must have one. Held keys are pressed again, and stay so."""
        code, shifted = self.find(keysym)
        shifted = shifted and self.shift not in self.held
        if shifted:
            self.press(self.shift, True)
        # The server ignores a second press.
        for down in (False, True) if code in self.held else (True, False):
            self.press(code, down)
        if shifted:
            self.press(self.shift, False)
        if keysym in self._bound:
            self._used.add(code)

    @contextlib.contextmanager
    def first_layout(self):
        """Keys have their meanings in the first layout meanwhile: find() knows no other."""
        display = self._display
        before = display.pointer()[2] >> x11.GROUP_SHIFT & 3
        if not before:
            yield
            return
        display.call("XkbLockGroup", x11.CORE_KEYBOARD, 0)
        try:
            yield
        finally:
            # Keys that go to the next layout went on from the first. The server wraps a number that is too large.
            moved = display.pointer()[2] >> x11.GROUP_SHIFT & 3
            display.call("XkbLockGroup", x11.CORE_KEYBOARD, before + moved)
            display.sync()

    def type(self, text, interval):
        """Types text, one key after another, whatever Caps Lock and the current layout are."""
        display = self._display
        keysyms = [keysym_of(character, display) for character in text]
        locked = display.pointer()[2] & x11.LOCK_MASK
        if locked:
            display.call("XkbLockModifiers", x11.CORE_KEYBOARD, x11.LOCK_MASK, 0)
        try:
            with self.first_layout():
                at = 0
                while at < len(keysyms):
                    fit = yield from self.bind(keysyms[at:at + 4096])
                    for keysym in keysyms[at:at + fit]:
                        if self.find(keysym) is None:
                            # A program has changed the layout since.
                            break
                        self.tap(keysym)
                        at += 1
                        if interval and at < len(keysyms):
                            display.sync()
                            yield interval
                        elif at % KEYS_A_TURN == 0:
                            display.sync()
                            yield 0
        finally:
            if locked:
                display.call("XkbLockModifiers", x11.CORE_KEYBOARD, x11.LOCK_MASK, x11.LOCK_MASK)
            display.sync()


def keysym_of(character, display):
    """The keysym in the X protocol: Latin-1 unchanged, the rest of Unicode plus 0x01000000."""
    if character in _CONTROL_KEYS:
        return display.x.XStringToKeysym(_CONTROL_KEYS[character])
    code = ord(character)
    return code if 0x20 <= code <= 0x7E or 0xA0 <= code <= 0xFF else 0x01000000 + code
