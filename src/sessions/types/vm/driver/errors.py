"""How a request, or the driver, ends other than well."""


class Failure(Exception):
    """Ends a request, or the driver, with a message for a person."""


class Invalid(Exception):
    """A parameter that cannot be: its field, and what is wrong."""

    def __init__(self, field, problem):
        super().__init__(problem)
        self.field = field
