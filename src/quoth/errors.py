"""The error for mistakes in the input: a single line that names the culprit and what to do."""

from __future__ import annotations

LONGEST = 2000  # characters of a message: its beginning names the culprit, its end says what to do
# What ends a line, here or on some terminal, as its picture: a name or a value of a file may hold it.
_ENDS = {ord(end): 0x2400 + ord(end) for end in "\n\r\v\f\x1c\x1d\x1e"} | dict.fromkeys((0x85, 0x2028, 0x2029), 0x2424)


class QuothError(ValueError):
    """A mistake in the input. The command line prints it as one line and exits with code 2."""

    def __init__(self, message: object = "") -> None:
        super().__init__(one_line(str(message)))


class QuothWarning(UserWarning):
    """Something was left out, and the result is still defined: the message names it."""


def one_line(text: str) -> str:
    """A text as one line of at most `LONGEST` characters, its line ends made visible."""
    text = text.strip("\r\n")
    if len(text) > LONGEST:
        text = f"{text[: LONGEST // 2]} … {text[-LONGEST // 4 :]}"
    return text.translate(_ENDS)
