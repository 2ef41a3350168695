"""
Reads the accessibility tree over AT-SPI: a process of its own, which a program
that hangs cannot keep from its next request. It takes a line of JSON with an id
and its time in seconds, and answers with a length of 4 bytes and JSON.

What a program has cached is asked for at once, and what is missing level by
level: all calls of a step are under way together.
"""

import json
import os
import struct
import sys
import time

import gi
from gi.repository import Gio, GLib

MAX_NODES = 2500
MAX_DEPTH = 60
MAX_CHILDREN = 500
MAX_STRING = 1000
MAX_TEXT_BYTES = 400 * 1024
BUS_SECONDS = 10

ATSPI = "org.a11y.atspi."
ROOT = "/org/a11y/atspi/accessible/root"
ROLES = (
    "invalid|accelerator label|alert|animation|arrow|calendar|canvas|check box|check menu item|color chooser|column header|combo box|"
    "date editor|desktop icon|desktop frame|dial|dialog|directory pane|drawing area|file chooser|filler|focus traversable|font chooser|"
    "frame|glass pane|html container|icon|image|internal frame|label|layered pane|list|list item|menu|menu bar|menu item|option pane|"
    "page tab|page tab list|panel|password text|popup menu|progress bar|push button|radio button|radio menu item|root pane|row header|"
    "scroll bar|scroll pane|separator|slider|spin button|split pane|status bar|table|table cell|table column header|table row header|"
    "tearoff menu item|terminal|text|toggle button|tool bar|tool tip|tree|tree table|unknown|viewport|window|extended|header|footer|"
    "paragraph|ruler|application|autocomplete|edit bar|embedded component|entry|chart|caption|document frame|heading|page|section|"
    "redundant object|form|link|input method window|table row|tree item|document spreadsheet|document presentation|document text|"
    "document web|document email|comment|list box|grouping|image map|notification|info bar|level bar|title bar|block quote|audio|video|"
    "definition|article|landmark|log|marquee|math|rating|timer|static|math fraction|math root|subscript|superscript|description list|"
    "description term|description value|footnote|content deletion|content insertion|mark|suggestion|push button menu").split("|")
STATES = {1: "active", 4: "checked", 7: "editable", 10: "expanded", 12: "focused", 20: "pressed", 23: "selected"}
# Roles of nodes that have a value or text, where their program is not asked for their interfaces.
WITH_VALUE, WITH_TEXT = {15, 42, 48, 51, 52, 103, 114}, {29, 60, 61, 73, 79, 83, 88, 116}
EDITABLE = 7
ENABLED, SENSITIVE, SHOWING, MANAGES_DESCENDANTS = 8, 24, 25, 31
APPLICATION, PASSWORD = 75, 40


class Node:
    def __init__(self, ref, count, interfaces, name, role, description, states):
        self.ref, self.count, self.interfaces = ref, count, interfaces
        self.name, self.role, self.description = name, role, description
        self.bits = states[0] | (states[1] << 32 if len(states) > 1 else 0)
        self.bounds = self.value = None
        self.children = []

    def has(self, state):
        return bool(self.bits >> state & 1)

    def offers(self, interface):
        if self.interfaces is not None:
            return ATSPI + interface in self.interfaces
        roles = {"Value": WITH_VALUE, "Text": WITH_TEXT}.get(interface)
        return roles is None or self.role in roles or (interface == "Text" and self.has(EDITABLE))


class Reader:
    def __init__(self):
        self._context = GLib.MainContext.default()
        self._bus = self._session = None
        self._deadline = 0
        self._whole = True
        self._texts = 0

    def connect(self):
        """Connects to the accessibility bus, which starts with this where it does not run."""
        address = os.environ["DBUS_SESSION_BUS_ADDRESS"]
        path = address.partition("=")[2]
        deadline = time.monotonic() + BUS_SECONDS
        while not os.path.exists(path) and time.monotonic() < deadline:
            time.sleep(0.005)
        flags = Gio.DBusConnectionFlags.AUTHENTICATION_CLIENT | Gio.DBusConnectionFlags.MESSAGE_BUS_CONNECTION
        self._session = Gio.DBusConnection.new_for_address_sync(address, flags, None, None)
        timeout = BUS_SECONDS * 1000
        for name in ("IsEnabled", "ScreenReaderEnabled"):
            value = GLib.Variant("(ssv)", ("org.a11y.Status", name, GLib.Variant("b", True)))
            self._session.call_sync("org.a11y.Bus", "/org/a11y/bus", "org.freedesktop.DBus.Properties", "Set", value, None, Gio.DBusCallFlags.NONE, timeout, None)
        found = self._session.call_sync("org.a11y.Bus", "/org/a11y/bus", "org.a11y.Bus", "GetAddress", None, None, Gio.DBusCallFlags.NONE, timeout, None)
        self._bus = Gio.DBusConnection.new_for_address_sync(found.unpack()[0], flags, None, None)
        # Starts the registry, so that programs find it.
        self._bus.call_sync(ATSPI + "Registry", ROOT, ATSPI + "Accessible", "GetChildren", None, None, Gio.DBusCallFlags.NONE, timeout, None)

    def _all(self, calls):
        """Makes all calls at once; an answer for each, None where there is none in time."""
        answers, waiting = [None] * len(calls), [len(calls)]
        left = max(1, int((self._deadline - time.monotonic()) * 1000))
        if time.monotonic() >= self._deadline:
            self._whole = False
            return answers

        def done(bus, result, index):
            waiting[0] -= 1
            try:
                answers[index] = bus.call_finish(result)
            except GLib.Error as error:
                if error.matches(Gio.io_error_quark(), Gio.IOErrorEnum.TIMED_OUT):
                    self._whole = False

        for index, ((name, path), interface, method, parameters) in enumerate(calls):
            self._bus.call(name, path, interface, method, parameters, None, Gio.DBusCallFlags.NO_AUTO_START, left, None, done, index)
        while waiting[0] > 0:
            self._context.iteration(True)
        return answers

    def read(self, seconds):
        """The trees of all programs."""
        self._deadline, self._whole = time.monotonic() + seconds, True
        (found,) = self._all([((ATSPI + "Registry", ROOT), ATSPI + "Accessible", "GetChildren", None)])
        programs = [ref for ref in found.unpack()[0]][:MAX_CHILDREN] if found is not None else []
        bus = ("org.freedesktop.DBus", "/org/freedesktop/DBus")
        calls = [((name, "/org/a11y/atspi/cache"), ATSPI + "Cache", "GetItems", None) for name, _ in programs]
        calls += [(bus, bus[0], "GetConnectionUnixProcessID", GLib.Variant("(s)", (name,))) for name, _ in programs]
        title = GLib.Variant("(ss)", (ATSPI + "Accessible", "Name"))
        calls += [(ref, "org.freedesktop.DBus.Properties", "Get", title) for ref in programs]
        answers = self._all(calls)
        caches, pids, titles = [answers[at * len(programs):(at + 1) * len(programs)] for at in range(3)]
        cached = {}
        for items in caches:
            self._read_cache(items, cached)
        roots = [Node(ref, -1, (), "", APPLICATION, "", (1 << SHOWING,)) for ref in programs]
        for root, answer in zip(roots, titles):
            root.name = answer.unpack()[0] if answer is not None else ""
        nodes = self._expand(roots, cached)
        self._describe([node for node in nodes if node.role != APPLICATION])
        self._texts = MAX_TEXT_BYTES
        trees = []
        for root, pid in zip(roots, pids):
            root.children = [node for node in root.children if node.bounds is not None]
            if root.children:
                tree = self._plain(root)
                tree["pid"] = pid.unpack()[0] if pid is not None else None
                tree["bounds"] = _union([node.bounds for node in root.children])
                trees.append(tree)
        return trees, self._whole

    def _read_cache(self, items, cached):
        """Notes the nodes that a program has cached, each with its parent and its place there."""
        if items is None or items.get_type_string() != "(a((so)(so)(so)iiassusau))":
            return
        items = items.get_child_value(0)
        for index in range(items.n_children()):
            if index % 64 == 0 and time.monotonic() > self._deadline:
                self._whole = False
                return
            ref, _, parent, place, count, interfaces, name, role, description, states = items.get_child_value(index).unpack()
            cached[ref] = (Node(ref, count, interfaces, name, role, description, states), parent, place)

    def _expand(self, roots, cached):
        """Gives all shown nodes their children, a level after the other; returns all nodes."""
        known = {}
        for node, parent, place in cached.values():
            if place >= 0:
                known.setdefault(parent, []).append((place, node))
        nodes, level, seen = list(roots), roots, set(map(id, roots))
        for _ in range(MAX_DEPTH):
            self._find_children(level, known, cached)
            level = self._shown(level, seen, MAX_NODES - len(nodes))
            if not level:
                return nodes
            nodes += level
        self._whole = False
        for node in level:
            node.children = []
        return nodes

    def _shown(self, level, seen, room):
        """Drops children that are hidden, seen before, or too many; returns the others."""
        found = []
        for node in level:
            shown = [child for child in node.children if child.has(SHOWING) and id(child) not in seen]
            node.children = shown[:min(MAX_CHILDREN, room - len(found))]
            self._whole = self._whole and len(shown) == len(node.children)
            seen.update(map(id, node.children))
            found += node.children
        return found

    def _find_children(self, level, known, cached):
        """Children come from what is cached where that is all of them, and else from the program."""
        unknown = []
        for node in level:
            found = sorted(known.get(node.ref, ()), key=lambda item: item[0])
            node.children = [child for _, child in found]
            if len(found) != node.count and not node.has(MANAGES_DESCENDANTS):
                unknown.append(node)
        lists = self._all([(node.ref, ATSPI + "Accessible", "GetChildren", None) for node in unknown])
        missing = []
        for node, answer in zip(unknown, lists):
            refs = answer.unpack()[0][:MAX_CHILDREN] if answer is not None else []
            missing += [ref for ref in refs if ref not in cached]
        self._ask(missing[:MAX_NODES], cached)
        for node, answer in zip(unknown, lists):
            if answer is not None:
                node.children = [cached[ref][0] for ref in answer.unpack()[0][:MAX_CHILDREN] if ref in cached]

    def _ask(self, refs, cached):
        """Asks programs for nodes that they have not cached."""
        accessible, properties = ATSPI + "Accessible", GLib.Variant("(s)", (ATSPI + "Accessible",))
        calls = []
        for ref in refs:
            calls += [(ref, "org.freedesktop.DBus.Properties", "GetAll", properties), (ref, accessible, "GetRole", None),
                      (ref, accessible, "GetState", None)]
        answers = self._all(calls)
        for index, ref in enumerate(refs):
            given = answers[3 * index:3 * index + 3]
            if None not in given:
                values, role, states = [answer.unpack()[0] for answer in given]
                node = Node(ref, values.get("ChildCount", -1), None, values.get("Name", ""), role, values.get("Description", ""), states)
                cached[ref] = (node, ("", ""), -1)

    def _describe(self, nodes):
        """Asks for places and values."""
        calls, takers = [], []

        def ask(node, interface, method, parameters, take):
            calls.append((node.ref, interface, method, parameters))
            takers.append((node, take))

        def bounds(node, answer):
            node.bounds = list(answer[0])

        def value(node, answer):
            node.value = answer[0]

        for node in nodes:
            if node.offers("Component"):
                ask(node, ATSPI + "Component", "GetExtents", GLib.Variant("(u)", (0,)), bounds)
            if node.offers("Value"):
                parameters = GLib.Variant("(ss)", (ATSPI + "Value", "CurrentValue"))
                ask(node, "org.freedesktop.DBus.Properties", "Get", parameters, value)
            elif node.offers("Text") and node.role != PASSWORD and (node.has(EDITABLE) or not node.name):
                ask(node, ATSPI + "Text", "GetText", GLib.Variant("(ii)", (0, MAX_STRING)), value)
        for (node, take), answer in zip(takers, self._all(calls)):
            if answer is not None:
                take(node, answer.unpack())

    def _plain(self, node):
        role = ROLES[node.role] if node.role < len(ROLES) else "unknown"
        plain = {"role": role, "name": self._text(node.name), "bounds": node.bounds or [0, 0, 0, 0]}
        for key, text in (("value", node.value), ("description", node.description)):
            text = self._text(text) if isinstance(text, str) else text
            if text not in (None, ""):
                plain[key] = text
        states = [name for bit, name in STATES.items() if node.has(bit)]
        if not node.has(ENABLED) and not node.has(SENSITIVE) and node.role != APPLICATION:
            states.append("disabled")
        if states:
            plain["states"] = states
        if node.children:
            plain["children"] = [self._plain(child) for child in node.children]
        return plain

    def _text(self, text):
        cut = text[:min(MAX_STRING, self._texts)]
        self._whole = self._whole and len(cut) == len(text)
        self._texts -= len(cut.encode("utf-8", "replace"))
        self._texts = max(0, self._texts)
        return cut


def _union(all_bounds):
    left, top = min(b[0] for b in all_bounds), min(b[1] for b in all_bounds)
    right, bottom = max(b[0] + b[2] for b in all_bounds), max(b[1] + b[3] for b in all_bounds)
    return [left, top, right - left, bottom - top]


def serve():
    reader = Reader()
    reader.connect()
    for line in sys.stdin:
        request = json.loads(line)
        nodes, whole = reader.read(request["seconds"])
        answer = json.dumps({"id": request["id"], "nodes": nodes, "whole": whole}).encode()
        sys.stdout.buffer.write(struct.pack(">I", len(answer)) + answer)
        sys.stdout.buffer.flush()


serve()
