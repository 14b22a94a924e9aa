"""The one exception that a user's mistake raises."""


class InputError(ValueError):
    """Bad input: one line that says what is wrong, where, and what to do. Commands print it and exit with status 2."""
