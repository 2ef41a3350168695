"""Keys and text: keysyms are typed with the keys that have them, or bound to spare keys first."""

import ctypes
from ctypes import byref, c_int, c_ubyte, c_ulong

import x11

# How long a program has to look up a key's meaning before that key may get another,
# where it does not say that it has.
SETTLE_SECONDS = 0.15
ANSWER_SECONDS = 3
# Keys that are typed in one go: between two of these a request can be canceled.
KEYS_A_TURN = 32
_CONTROL_KEYS = {"\n": b"Return", "\t": b"Tab"}


class Keyboard:
    """What is pressed stays known, so that a request that ends early releases it."""

    def __init__(self, display, programs_are_ready):
        self._display = display
        # A wait until the program in front has taken what was sent to it.
        self._programs_are_ready = programs_are_ready
        self.shift = 0
        self._keys = {}
        self._spare = []
        # Spare keys by what they mean now, the least recently used first.
        self._bound = {}
        self._used = set()
        self.changed = True

    def keysym(self, name):
        """The keysym of a character, or of a name as X has it; 0 where there is none."""
        if len(name) == 1:
            return keysym_of(name, self._display)
        return self._display.x.XStringToKeysym(name.encode("utf-8", "replace"))

    def _read(self):
        """Reads the layout, where it has changed. Spare keys are those that mean nothing."""
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
        bound, spare = {code: sym for sym, code in self._bound.items()}, []
        self._keys = {}
        for index in range(count):
            code, row = first.value + index, syms[index * width.value:(index + 1) * width.value]
            if code in bound and row[0] == bound[code]:
                continue
            if not any(row):
                spare.append(code)
            # The first group's two levels: without and with Shift.
            for level, sym in enumerate(row[:2]):
                if sym:
                    self._keys.setdefault(sym, (code, level == 1))
        display.x.XFree(address)
        known = set(self._spare) & set(bound)
        self._bound = {sym: code for sym, code in self._bound.items() if code in known}
        self._spare = sorted(set(spare) | known)
        self.shift = self._keys.get(display.x.XStringToKeysym(b"Shift_L"), (50, False))[0]

    def find(self, keysym):
        """The key of a keysym and whether it needs Shift; None where it has to be bound."""
        self._read()
        if keysym in self._bound:
            # Moves it to the end: it is the last to get another meaning.
            code = self._bound[keysym] = self._bound.pop(keysym)
            return code, False
        return self._keys.get(keysym)

    def bind(self, keysyms):
        """Gives keys to all of the keysyms that have none and fit, and waits until these may be used. Returns how many fit."""
        self._read()
        wanted, here = [], set()
        fit = 0
        for keysym in keysyms:
            if self.find(keysym) is None and keysym not in here:
                if len(here) == max(1, len(self._spare) - 1):
                    break
                here.add(keysym)
                wanted.append(keysym)
            elif keysym in self._bound:
                here.add(keysym)
                if len(here) > max(1, len(self._spare) - 1):
                    break
            fit += 1
        if not wanted or not self._spare:
            return fit
        free = [code for code in self._spare if code not in self._bound.values()]
        # Oldest first, and none that this text needs itself.
        old = [sym for sym in self._bound if sym not in here]
        taken = free[:len(wanted)]
        for sym in old[:len(wanted) - len(taken)]:
            taken.append(self._bound.pop(sym))
        if any(code in self._used for code in taken):
            yield from self._programs_are_ready()
            self._used.clear()
        for keysym, code in zip(wanted, taken):
            self._bound[keysym] = code
        self._write(dict(zip(taken, wanted)))
        return fit

    def _write(self, meanings):
        """Binds keys: one request for neighbours, as each makes every program read the layout again."""
        codes = sorted(meanings)
        while codes:
            run = [codes.pop(0)]
            while codes and codes[0] == run[-1] + 1:
                run.append(codes.pop(0))
            # Both levels: a lower-case letter alone would get its capital with Shift.
            rows = (c_ulong * (len(run) * 2))(*[meanings[code] for code in run for _ in range(2)])
            self._display.call("XChangeKeyboardMapping", run[0], 2, rows, len(run))
        self._display.sync()

    def press(self, code, down):
        self._display.call("XTestFakeKeyEvent", code, int(down), x11.CURRENT_TIME)

    def tap(self, keysym):
        """Presses and releases a key that is bound."""
        code, shifted = self.find(keysym)
        if shifted:
            self.press(self.shift, True)
        self.press(code, True)
        self.press(code, False)
        if shifted:
            self.press(self.shift, False)
        if keysym in self._bound:
            self._used.add(code)

    def type(self, text, interval):
        """Types text, a key after the other. What is typed does not depend on Caps Lock and the layout in force."""
        display = self._display
        keysyms = [keysym_of(character, display) for character in text]
        state = display.pointer()[2]
        locked, group = state & x11.LOCK_MASK, state >> x11.GROUP_SHIFT & 3
        if locked:
            display.call("XkbLockModifiers", x11.CORE_KEYBOARD, x11.LOCK_MASK, 0)
        if group:
            display.call("XkbLockGroup", x11.CORE_KEYBOARD, 0)
        try:
            at = 0
            while at < len(keysyms):
                fit = yield from self.bind(keysyms[at:at + 4096])
                for keysym in keysyms[at:at + fit]:
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
            if group:
                display.call("XkbLockGroup", x11.CORE_KEYBOARD, group)
            display.sync()


def keysym_of(character, display):
    """As the X protocol has it: Latin-1 as it is, the rest of Unicode above 0x01000000."""
    if character in _CONTROL_KEYS:
        return display.x.XStringToKeysym(_CONTROL_KEYS[character])
    code = ord(character)
    return code if 0x20 <= code <= 0x7E or 0xA0 <= code <= 0xFF else 0x01000000 + code
