"""Reads the accessibility tree over AT-SPI, in a separate process, so that a hung program does not block the driver. A
request is a line of JSON with an id and a time limit in seconds; an answer is a length of 4 bytes and JSON.

It goes level by level, and makes all calls of a level at once. Hidden nodes are left out with everything below them.
"""

import json
import math
import os
import struct
import time

from bus import Bus

MAX_NODES = 2000
MAX_DEPTH = 60
MAX_CHILDREN = 500
MAX_STRING = 1000
MAX_TEXT_BYTES = 256 * 1024
BUS_SECONDS = 10

# JSON would escape each of these in six bytes.
CONTROLS = {code: "\ufffd" for code in range(32) if chr(code) not in "\t\n"}

ATSPI = "org.a11y.atspi."
REGISTRY = (ATSPI + "Registry", "/org/a11y/atspi/accessible/root")
PROPERTIES = "org.freedesktop.DBus.Properties"
DBUS = ("org.freedesktop.DBus", "/org/freedesktop/DBus")
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
# Roles of nodes that have a value, or text that may differ from their name.
WITH_VALUE, WITH_TEXT = {15, 42, 48, 51, 52, 103, 114}, {29, 60, 61, 73, 79, 83, 88, 116}
# The expected types of answers: programs may send anything.
RESULTS = {"GetChildren": "a(so)", "GetAll": "a{sv}", "Get": "v", "GetRole": "u", "GetState": "au", "GetExtents": "(iiii)",
           "GetText": "s", "GetConnectionUnixProcessID": "u"}
EDITABLE = 7
ENABLED, SENSITIVE, SHOWING = 8, 24, 25
APPLICATION, PASSWORD = 75, 40


class Node:
    def __init__(self, ref, properties, role, states):
        self.ref, self.role = ref, role
        self.name, self.description = _string(properties.get("Name")), _string(properties.get("Description"))
        self.bits = states[0] | (states[1] << 32 if len(states) > 1 else 0)
        self.bounds = self.value = None
        self.children = []

    def has(self, state):
        return bool(self.bits >> state & 1)

    def has_text(self):
        return self.has(EDITABLE) or (self.role in WITH_TEXT and not self.name)


class Reader:
    def __init__(self):
        self._bus = None
        self._deadline = 0
        self._whole = True
        self._texts = 0

    def connect(self):
        """Connects to the accessibility bus, and starts it if necessary."""
        address = os.environ["DBUS_SESSION_BUS_ADDRESS"]
        path = address.partition("=")[2]
        deadline = time.monotonic() + BUS_SECONDS
        while not os.path.exists(path) and time.monotonic() < deadline:
            time.sleep(0.005)
        session = Bus(address, BUS_SECONDS)
        place = ("org.a11y.Bus", "/org/a11y/bus")
        for name in ("IsEnabled", "ScreenReaderEnabled"):
            session.one(*place, PROPERTIES, "Set", "ssv", ("org.a11y.Status", name, True), BUS_SECONDS)
        (found,) = session.one(*place, "org.a11y.Bus", "GetAddress", seconds=BUS_SECONDS)
        self._bus = Bus(found, BUS_SECONDS)
        # Starts the registry, so that programs find it.
        self._bus.one(*REGISTRY, ATSPI + "Accessible", "GetChildren", seconds=BUS_SECONDS)

    def _all(self, calls):
        """Makes all calls at once. Returns the single value of each answer, or None if there is none in time."""
        answers, late = self._bus.all(calls, self._deadline, results=RESULTS)
        self._whole = self._whole and not late
        return [answer[0] if answer else None for answer in answers]

    def read(self, seconds):
        """The trees of all programs."""
        self._deadline, self._whole = time.monotonic() + seconds, True
        (programs,) = self._all([(REGISTRY, ATSPI + "Accessible", "GetChildren")])
        programs = (programs or [])[:MAX_CHILDREN]
        calls = [(DBUS, DBUS[0], "GetConnectionUnixProcessID", "s", (name,)) for name, _ in programs]
        calls += [(ref, PROPERTIES, "Get", "ss", (ATSPI + "Accessible", "Name")) for ref in programs]
        answers = self._all(calls)
        pids, names = answers[:len(programs)], answers[len(programs):]
        roots = [Node(ref, {"Name": name}, APPLICATION, (0,)) for ref, name in zip(programs, names)]
        self._describe(self._expand(roots)[len(roots):])
        self._texts = MAX_TEXT_BYTES
        trees = []
        for root, pid in zip(roots, pids):
            root.children = [node for node in root.children if node.bounds is not None]
            if root.children:
                tree = self._plain(root)
                tree["pid"] = pid
                tree["bounds"] = _union([node.bounds for node in root.children])
                trees.append(tree)
        return trees, self._whole

    def _expand(self, roots):
        """Adds the children of all visible nodes, level by level. Returns all nodes."""
        nodes, level, seen = list(roots), roots, {root.ref for root in roots}
        for _ in range(MAX_DEPTH):
            self._find_children(level, seen)
            level = self._shown(level, MAX_NODES - len(nodes))
            if not level:
                return nodes
            nodes += level
        self._whole = False
        return nodes

    def _shown(self, level, room):
        """Drops children that are hidden or beyond the limits. Returns the others."""
        found = []
        for node in level:
            shown = [child for child in node.children if child.has(SHOWING)]
            node.children = shown[:min(MAX_CHILDREN, room - len(found))]
            self._whole = self._whole and len(shown) == len(node.children)
            found += node.children
        return found

    def _find_children(self, level, seen):
        """Queries the children of nodes. Skips nodes seen before, so that there are no cycles."""
        accessible = ATSPI + "Accessible"
        places, calls = [], []
        for node, refs in zip(level, self._all([(node.ref, accessible, "GetChildren") for node in level])):
            for ref in (refs or [])[:MAX_CHILDREN]:
                if ref not in seen and len(places) < MAX_NODES:
                    seen.add(ref)
                    places.append((node, ref))
                    calls += [(ref, PROPERTIES, "GetAll", "s", (accessible,)), (ref, accessible, "GetRole"), (ref, accessible, "GetState")]
        answers = self._all(calls)
        for index, (node, ref) in enumerate(places):
            properties, role, states = answers[3 * index:3 * index + 3]
            if properties is not None and role is not None and states:
                node.children.append(Node(ref, dict(properties), role, states))

    def _describe(self, nodes):
        """Queries positions and values."""
        calls, takers = [], []

        def ask(node, key, *call):
            calls.append((node.ref, *call))
            takers.append((node, key))

        for node in nodes:
            ask(node, "bounds", ATSPI + "Component", "GetExtents", "u", (0,))
            if node.role in WITH_VALUE:
                ask(node, "value", PROPERTIES, "Get", "ss", (ATSPI + "Value", "CurrentValue"))
            elif node.has_text() and node.role != PASSWORD:
                ask(node, "value", ATSPI + "Text", "GetText", "ii", (0, MAX_STRING))
        for (node, key), answer in zip(takers, self._all(calls)):
            setattr(node, key, answer)

    def _plain(self, node):
        role = ROLES[node.role] if node.role < len(ROLES) else "unknown"
        plain = {"role": role, "name": self._text(node.name), "bounds": node.bounds or [0, 0, 0, 0]}
        for key, text in (("value", node.value), ("description", node.description)):
            if isinstance(text, str) and text:
                plain[key] = self._text(text)
            elif isinstance(text, (int, float)) and math.isfinite(text):
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
        text = text.translate(CONTROLS)
        cut = text[:min(MAX_STRING, self._texts)]
        self._whole = self._whole and len(cut) == len(text)
        # Without the two quotes around it.
        self._texts -= len(json.dumps(cut, ensure_ascii=False).encode("utf-8", "replace")) - len('""')
        self._texts = max(0, self._texts)
        return cut


def _string(value):
    return value if isinstance(value, str) else ""


def _union(all_bounds):
    left, top = min(b[0] for b in all_bounds), min(b[1] for b in all_bounds)
    right, bottom = max(b[0] + b[2] for b in all_bounds), max(b[1] + b[3] for b in all_bounds)
    return [left, top, right - left, bottom - top]


def serve(requests, answers):
    """Reads requests from one descriptor and writes answers to another, until EOF."""
    reader = Reader()
    reader.connect()
    with open(requests, "rb", buffering=0) as lines, open(answers, "wb", buffering=0) as out:
        for line in lines:
            request = json.loads(line)
            nodes, whole = reader.read(request["seconds"])
            answer = json.dumps({"id": request["id"], "nodes": nodes, "whole": whole}).encode()
            out.write(struct.pack(">I", len(answer)) + answer)
