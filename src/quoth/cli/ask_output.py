"""The result of a question on the screen: answers with their sentences and places, groups, sentences, or none."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.text import Text

from quoth.cli.screen import console, visible

SHOWN = 5  # places of one answer or sentence; --json has all
MARK = "**"  # on both sides of an answer in its sentence, where the screen has no styles
Spans = Sequence[list[int]]


def show(result: dict[str, Any], *, asked: bool = False, option: str = "--min-score") -> None:
    """Show a result. asked: the question too; option: what the least score is set with."""
    screen = console(wrap=False)
    if asked:
        screen.print(Text(_line(f"> {result['question']}")))
    if result["no_answer"]:
        _show_none(screen, result, option)
    elif result["form"] == "top":
        for answer in result["answers"]:
            screen.print(Text(_line(answer["answer"]), style="bold"))
            _show_answer(screen, answer)
    elif result["form"] == "all":
        for answer in result["answers"]:
            _show_group(screen, answer)
        _show_count(screen, result, "answer", result["answers"])
    else:
        for sentence in result["sentences"]:
            _show_sentence(screen, sentence)
        _show_count(screen, result, "sentence", result["sentences"])


def _show_none(screen: Console, result: dict[str, Any], option: str) -> None:
    """No answer; then the one rejected, and how to get it."""
    screen.print(f"No answer in these texts (score {result['score']:.2f}).")
    rejected = result["rejected"]
    if rejected:
        screen.print(Text(_line(f"Rejected: {rejected['answer']}"), style="dim"))
        _show_answer(screen, rejected)
        enough = math.floor(100 * rejected["score"]) / 100
        more = f"{option} {enough:.2f} gives this one, " if enough else ""
        screen.print(f"  {more}{option} 0 always gives one")


def _show_answer(screen: Console, answer: dict[str, Any]) -> None:
    """The sentence of an answer with the answer marked, where it stands, and its score."""
    screen.print(Text("  ") + _marked(screen, answer["sentence"], [answer["in_sentence"]]))
    screen.print(Text(visible(f"  {_where(answer)}, score {answer['score']:.2f}")))


def _show_group(screen: Console, group: dict[str, Any]) -> None:
    count = f" ({group['count']:,} places)" if group["count"] > 1 else ""
    screen.print(Text(_line(group["answer"]), style="bold") + Text(count, style="not bold"))
    for answer in group["places"][:SHOWN]:
        _show_answer(screen, answer)
    _show_more(screen, group)


def _show_sentence(screen: Console, sentence: dict[str, Any]) -> None:
    screen.print(_marked(screen, sentence["sentence"], [answer["in_sentence"] for answer in sentence["answers"]]))
    for place in sentence["places"][:SHOWN]:
        screen.print(Text(visible(f"  {_where(place)}, score {place['score']:.2f}")))
    _show_more(screen, sentence)


def _show_more(screen: Console, group: dict[str, Any]) -> None:
    if group["count"] > SHOWN:
        screen.print(f"  and {group['count'] - SHOWN:,} more places; --json has all")


def _show_count(screen: Console, result: dict[str, Any], what: str, shown: Sequence[dict[str, Any]]) -> None:
    """How many there are, of how many, in how many places."""
    places = sum(one["count"] for one in shown)
    of = f" of {result['distinct']:,}" if len(shown) < result["distinct"] else ""
    screen.print(f"{_number(len(shown), what, of)} in {_number(places, 'place')}.")


def _number(count: int, what: str, of: str = "") -> str:
    return f"{count:,}{of} {what}{'s' if count != 1 or of else ''}"


def _marked(screen: Console, sentence: str, spans: Spans) -> Text:
    """A sentence on one line with the spans in it marked: by a style, or by `MARK` where there are none."""
    text = Text(_line(sentence), style="dim")
    if screen.color_system:
        for start, end in spans:
            text.stylize("bold not dim underline", start, end)
        return text
    pieces, done = [], 0
    for start, end in sorted(spans):
        pieces += [text.plain[done:start], MARK, text.plain[start:end], MARK]
        done = end
    return Text("".join([*pieces, text.plain[done:]]))


def _line(text: str) -> str:
    """A text on one line, every character at its place."""
    return visible(text).translate({ord("\n"): " ", ord("\t"): " "})


def _where(facts: dict[str, Any]) -> str:
    """File, page or line, characters, and the headings above."""
    file = "standard input" if facts["file"] == "-" else facts["file"]
    if facts["page"] is not None:
        label = f" ({facts['label']})" if facts["label"] else ""
        where = f"{file}, page {facts['page']}{label}"
    elif facts["part"] is not None:
        where = f"{file}, {facts['part']}"
    elif facts["line"] is None:
        where = file
    else:
        where = f"{file}:{facts['line']}, characters {facts['start']}–{facts['end']}"
    return ", ".join([where, *([" > ".join(facts["headings"])] if facts["headings"] else [])])
