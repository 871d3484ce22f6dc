"""What is shown to people. Text from files, models and data is not trusted: its control characters are made visible.

An escape sequence in a document could else change the title of the terminal, its colours, or what stands on it.
"""

from __future__ import annotations

import json
import os
import re
import sys
from typing import Any, TextIO

from rich.console import Console
from rich.text import Text

from quoth.errors import one_line

# One character for one, so that places in a text stay what they are: ␛ for ESC, and � for what has no picture.
_PICTURES = {code: 0x2400 + code for code in range(0x20) if chr(code) not in "\n\t"} | {0x7F: 0x2421}
_UNSEEN = dict.fromkeys((*range(0x80, 0xA0), *range(0xD800, 0xE000)), 0xFFFD)
_TABLE = _PICTURES | _UNSEEN
_ESCAPED = re.compile("[\x7f-\x9f\ud800-\udfff]")  # what JSON may hold as it is, and a terminal may take for a command


def visible(text: str) -> str:
    """A text with its control characters made visible; new lines and tabs stay."""
    return text.translate(_TABLE)


def say(line: str, file: TextIO | None = None) -> None:
    """Print a line, on standard error unless told otherwise."""
    print(visible(one_line(line)), file=file or sys.stderr, flush=True)


def print_json(value: Any, indent: int | None = 2) -> None:
    """Print one JSON object; on one line if `indent` is None."""
    text = json.dumps(value, ensure_ascii=False, indent=indent)
    print(_ESCAPED.sub(lambda found: f"\\u{ord(found[0]):04x}", text))


class _Screen(Console):
    """A console that shows no control character of a text that it is given."""

    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str(visible(text), **options)


def console(*, stderr: bool = False, markup: bool = False, wrap: bool = True, width: int | None = None) -> Console:
    """The screen. markup: whether [bold] and so on are styles; wrap: whether long lines are broken."""
    if os.environ.get("COLUMNS") == "0":  # rich would show nothing
        width = width or 80
    return _Screen(stderr=stderr, highlight=False, markup=markup, soft_wrap=not wrap, width=width)
