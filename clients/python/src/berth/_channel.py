"""What the generated stubs are made on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class CurrentChannel:
    """Makes each call on the channel that is current then. It may be another one than when the method was looked up,
    because certificates may be renewed, also between two attempts.
    """

    def __init__(self, current: Callable[[], Any]) -> None:
        self._current = current

    def __getattr__(self, kind: str) -> Callable[..., _Method]:
        """`unary_unary` and its like, which make the methods of a stub."""
        return lambda *path, **codec: _Method(lambda: getattr(self._current(), kind)(*path, **codec))


class _Method:
    """A method of a stub."""

    def __init__(self, find: Callable[[], Any]) -> None:
        self._find = find

    def __call__(self, *request: Any, **options: Any) -> Any:
        return self._find()(*request, **options)

    def __getattr__(self, name: str) -> Any:
        """Other ways to call it, such as `with_call` and `future`."""
        return getattr(self._find(), name)
