"""How a request, or the driver, fails."""


class Failure(Exception):
    """Fails a request, or the driver, with a message for people."""


class Invalid(Exception):
    """An invalid parameter: its field, and what is wrong."""

    def __init__(self, field, problem):
        super().__init__(problem)
        self.field = field
