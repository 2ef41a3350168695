"""Writes `berth._sync`, the client without asyncio, from `berth._async`.

Usage: python generate_sync.py [--check]      (--check: only report whether it is up to date)

The two clients differ only in the words of asyncio. Each has its own hand-written `transport`, which makes the calls.
So there is one implementation, and type checkers see the types of both.
"""

import re
import sys
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent / "src/berth"
BY_HAND = {"__init__.py", "transport.py"}
HEAD = "# Generated from berth._async by generate_sync.py. Do not edit.\n"
#: Longer words come first if one is a prefix of another.
WORDS = [
    (r"Pending\[(\w+)\]", r"\1"),
    (r"\bPending, ", ""),
    (r"AsyncGenerator\[([^,\]]+), None\]", r"Generator[\1, None, None]"),
    (r"\bAsyncGenerator\b", "Generator"),
    (r"\bAsyncIterator\b", "Iterator"),
    (r"\bAsync([A-Z]\w+)", r"\1"),
    (r"\b_async\b", "_sync"),
    (r"__a(enter|exit|iter|next)__", r"__\1__"),
    (r"\baclose\b", "close"),
    (r"\basync (def|for|with) ", r"\1 "),
    (r"\bawait ", ""),
    (r"A client belongs to the event loop of its first call\.", "A client may be used by several threads."),
]


def sync_of(text: str) -> str:
    """A module of `berth._sync`."""
    for pattern, replacement in WORDS:
        text = re.sub(pattern, replacement, text)
    return HEAD + _sorted_imports(text)


def _sorted_imports(text: str) -> str:
    """Sorts names again that lost their "Async", as the linter requires."""

    def again(match: re.Match[str]) -> str:
        names = sorted({name.strip() for name in match[2].split(",")}, key=lambda name: (not name.isupper(), name.islower(), name))
        return f"{match[1]}{', '.join(names)}\n"

    return re.sub(r"^(from berth\._sync\.\w+ import )([^(\n]+)\n", again, text, flags=re.M)


def main(check: bool) -> int:
    """Writes the modules that differ. With `check`, only names them, and fails."""
    stale: list[str] = []
    for source in sorted((PACKAGE / "_async").glob("*.py")):
        if source.name in BY_HAND:
            continue
        target = PACKAGE / "_sync" / source.name
        text = sync_of(source.read_text())
        if not target.exists() or target.read_text() != text:
            stale.append(target.name)
            if not check:
                target.write_text(text)
    if check and stale:
        print(f"berth._sync is not what berth._async makes of it ({', '.join(stale)}): run {Path(__file__).name}")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main("--check" in sys.argv[1:]))
