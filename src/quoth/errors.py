"""The error for mistakes in the input: a single line that names the culprit and what to do."""


class QuothError(ValueError):
    """A mistake in the input. The command line prints it as one line and exits with code 2."""


class QuothWarning(UserWarning):
    """Something was left out, and the result is still defined: the message names it."""
