"""Passages as users have them: Markdown, lists, headings, hard line breaks, code between the sentences (`relayout`).

A layout is a set of edits of the passage. An edit that would change or split an answer is left out, so every answer
stands unchanged at its new offset.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from quoth.augment.base import FUNCTION_WORDS, Draws, Rewriter, draw, is_article, rewrite
from quoth.augment.blocks import BLOCKS, HEADINGS, SLOTS
from quoth.augment.sentences import sentence_spans
from quoth.data import Gold, Question

Edit = tuple[int, int, str]
"""The characters from the first number up to the second become the text; equal numbers: it is put in there."""

Group = tuple[Edit, ...]
"""Edits that are made together or not at all, such as a pair of brackets."""

Layout = Callable[[Question, Draws], list[Group]]
"""From a question and random draws to the edits of its passage; none where the layout does not fit."""

PHRASE = re.compile(r"[^\W_]+(?:[-'’][^\W_]+)*(?: [^\W_]+(?:[-'’][^\W_]+)*)?")
NAME = re.compile(r"[A-Z][^\W_]+(?: [A-Z][^\W_]+){0,2}")
EMPHASIS = ("**", "**", "*", "_", "__", "`", "`", "``")
LINKS = (
    "https://example.com/{}", "https://example.org/wiki/{}", "https://docs.example.com/{}.html", "docs/{}.md", "{}.md",
    "#{}", "../{}/README.md", "https://github.com/example/{}", "/wiki/{}",
)  # fmt: skip
BULLETS = ("- ", "* ", "• ", "+ ", "  - ", "    * ")
NUMBERS = ("{}. ", "{}) ", "({}) ", "  {}. ")
MARGINS = ("", "", "", "    ", "> ", "> ", "  ", "# ", " * ", "// ", "| ", "\t")


def markdown(question: Question, draws: Draws) -> list[Group]:
    """Emphasis, links and code marks around two to six phrases; sometimes around an answer."""
    text, golds = question.context, question.answers
    names, others = (
        [found.span() for found in form.finditer(text) if FUNCTION_WORDS.isdisjoint(found.group().lower().split())]
        for form in (NAME, PHRASE)
    )
    wanted = draws.some(draws.some(names, 3) + draws.some(others, 3), 2 + draws.below(5))
    if golds and draws.below(3) == 0:
        wanted.insert(0, (golds[0].start, golds[0].end))
    groups: list[Group] = []
    taken: list[tuple[int, int]] = []
    for begin, past in wanted:
        if begin < past and not any(begin <= there[1] and there[0] <= past for there in taken):
            taken.append((begin, past))
            before, after = _marks(text[begin:past], draws)
            groups.append(((begin, begin, before), (past, past, after)))
    return groups


def _marks(text: str, draws: Draws) -> tuple[str, str]:
    if draws.below(5) < 3:
        mark = draws.pick(EMPHASIS)
        return mark, mark
    slug = "-".join(re.findall(r"[a-z0-9]+", text.lower())) or "page"
    link = draws.pick(LINKS).format(slug)
    return "[", draws.pick((f"]({link})", f"]({link})", f"]({link})", f"][{1 + draws.below(12)}]"))


def as_list(question: Question, draws: Draws) -> list[Group]:
    """The sentences as bullet points or numbered items, the first one sometimes as a line before them."""
    text = question.context
    spans = sentence_spans(text)
    if len(spans) < 2:
        return []
    mark = draws.pick((*BULLETS, *NUMBERS))
    gap, bare, first = draws.pick(("\n", "\n", "\n\n")), draws.below(2), draws.below(2)
    marks = [mark.format(number + 1) for number in range(len(spans))]
    groups: list[Group] = [] if first else [((spans[0][0], spans[0][0], marks[0]),)]
    for number in range(1, len(spans)):
        lead = "\n\n" if first and number == 1 else gap
        groups.append(((spans[number - 1][1], spans[number][0], lead + marks[number - first]),))
    if bare:  # items often end without a full stop
        groups += [((past - 1, past, ""),) for _, past in spans[first:] if text[past - 1] == "."]
    return groups


def heading(question: Question, draws: Draws) -> list[Group]:
    """A heading before the passage, and one amid it."""
    spans = sentence_spans(question.context)
    if not spans:
        return []
    title = question.title.replace("_", " ").strip() if is_article(question.title) else ""
    first = title if title and draws.below(2) else draws.pick(HEADINGS)
    style = draws.below(6)
    groups: list[Group] = [((spans[0][0], spans[0][0], _heading(first, style, 1, draws) + "\n\n"),)]
    if len(spans) > 2:
        i = 1 + draws.below(len(spans) - 1)
        amid = _heading(draws.pick(HEADINGS), style, 2, draws)
        groups.append(((spans[i - 1][1], spans[i][0], f"\n\n{amid}\n\n"),))
    return groups


def _heading(text: str, style: int, level: int, draws: Draws) -> str:
    if style == 0:
        return f"{'#' * (level + draws.below(2))} {text}"
    if style == 1:
        return f"{text}\n{('=' if level == 1 else '-') * len(text)}"
    if style == 2:
        return f"{1 + draws.below(9)}{'.' if level == 1 else f'.{1 + draws.below(9)}'} {text}"
    if style == 3:
        return text.upper()
    return f"{'=' * (level + 1)} {text} {'=' * (level + 1)}" if style == 4 else text


def wrapped(question: Question, draws: Draws) -> list[Group]:
    """Hard line breaks at 60 to 80 columns, with or without a margin."""
    text, width, margin = question.context, 60 + draws.below(21), draws.pick(MARGINS)
    inside = [(gold.start, gold.end) for gold in question.answers]
    gaps = [found.span() for found in re.finditer(r"[^\S\n]+", text.rstrip())]
    free = [gap for gap in gaps if not any(start < gap[1] and gap[0] < past for start, past in inside)]
    groups: list[Group] = [((0, 0, margin),)] if margin and text else []
    line = 0
    for i, (begin, past) in enumerate(free):
        after = free[i + 1][0] if i + 1 < len(free) else len(text)
        if after - line > width - len(margin) and past > line:
            groups.append(((begin, past, "\n" + margin),))
            line = past
    return groups


def code(question: Question, draws: Draws) -> list[Group]:
    """A code block, a table or a command line between two sentences, or before or after all."""
    text = question.context
    spans = sentence_spans(text)
    if not spans:
        return []
    block = re.sub(r"\{(\w+)\}", lambda slot: draws.pick(SLOTS[slot.group(1)]), draws.pick(BLOCKS))
    i = draws.below(len(spans) + 1)
    if i == 0:
        return [((spans[0][0], spans[0][0], f"{block}\n\n"),)]
    if i == len(spans):
        return [((spans[-1][1], spans[-1][1], f"\n\n{block}"),)]
    return [((spans[i - 1][1], spans[i][0], f"\n\n{block}\n\n"),)]


LAYOUTS: dict[str, Layout] = {
    "markdown": markdown, "list": as_list, "heading": heading, "wrapped": wrapped, "code": code,
}  # fmt: skip


def relayout(questions: Sequence[Question], fractions: Mapping[str, float], seed: int = 0) -> list[Question]:
    """The same questions in the same order, a fraction of their passages in each layout, no passage in two.

    fractions: by a layout's name, such as {"list": 0.1}; together at most 1. Fewer are changed where a layout does not
    fit more.
    """
    ways = {name: _laid_out(name, layout, seed) for name, layout in LAYOUTS.items()}
    return rewrite(questions, fractions, "layout", seed, ways)


def _laid_out(name: str, layout: Layout, seed: int) -> Rewriter:
    def changed(question: Question) -> Question | None:
        groups = layout(question, Draws(draw(seed, name, question.id)))
        kept = [group for group in groups if not any(_hits(edit, question.answers) for edit in group)]
        return edited(question, [edit for group in kept for edit in group]) if kept else None

    return changed


def _hits(edit: Edit, golds: Sequence[Gold]) -> bool:
    """Whether an edit changes an answer or stands inside it."""
    begin, past, _ = edit
    return any(begin < gold.end and past > gold.start for gold in golds)


def edited(question: Question, edits: Sequence[Edit]) -> Question:
    """A question after edits of its passage that do not overlap and touch no answer; the answers have moved along.

    What is put in exactly at the beginning of an answer comes before it.
    """
    order = sorted(edits, key=lambda edit: edit[:2])
    parts, done = [], 0
    for begin, past, text in order:
        parts += [question.context[done:begin], text]
        done = past
    context = "".join([*parts, question.context[done:]])
    golds = tuple(
        Gold(gold.text, gold.start + sum(len(text) - past + begin for begin, past, text in order if past <= gold.start))
        for gold in question.answers
    )
    return replace(question, context=context, answers=golds)
