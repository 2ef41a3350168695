"""When to retry a failed call, and how long to wait before."""

from __future__ import annotations

from collections.abc import Iterator
from time import monotonic

from berth.errors import BerthError

_FIRST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 1.0
#: Codes of calls that ended because their connection broke, without a response of the service.
_BROKEN = {"UNAVAILABLE", "CANCELLED", "ABORTED", "INTERNAL", "UNKNOWN"}
_PASSING = {"SHUTTING_DOWN", "ENGINE_UNAVAILABLE"}


def is_broken(error: BerthError) -> bool:
    """Whether the connection failed instead of the call: the service was not reached, is restarting, or ended the calls
    of a token that has been replaced.
    """
    if error.token_replaced:
        return True
    return error.reason == "SHUTTING_DOWN" if error.reason else error.code in _BROKEN


def is_passing(error: BerthError) -> bool:
    """Whether to retry a call that is safe to repeat."""
    if error.token_replaced:
        return True
    return error.reason in _PASSING if error.reason else error.code in _BROKEN


class Pauses:
    """The pauses between attempts, for a number of seconds in total."""

    def __init__(self, for_s: float) -> None:
        self._until = monotonic() + for_s
        self._growing = self._grow()

    @staticmethod
    def _grow() -> Iterator[float]:
        pause = _FIRST_PAUSE_S
        while True:
            yield pause
            pause = min(pause * 2, _LONGEST_PAUSE_S)

    def next(self, error: BerthError) -> float | None:
        """Seconds to wait before the next attempt. None: no more attempts."""
        pause = max(next(self._growing), error.retry_after or 0)
        return pause if monotonic() + pause <= self._until else None
