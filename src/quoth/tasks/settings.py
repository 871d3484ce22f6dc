"""`[data]` of a recipe: which examples, and how they become windows."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from quoth.config import check_value


@dataclass(frozen=True)
class Negatives:
    """Unanswerable questions made from the training data; each number is a fraction of its questions.

    moved: a question asked of another passage of the same article
    lookalike: a question asked of the passage that shares the most words with its own, of any article
    entity: a question with another name, year or number in it
    negation: a question with a word replaced by its opposite, or negated
    """

    moved: float = 0.0
    lookalike: float = 0.0
    entity: float = 0.0
    negation: float = 0.0

    def __post_init__(self) -> None:
        """Refuse what is no fraction."""
        for name, part in asdict(self).items():
            check_value(0 <= part <= 1, f"data.negatives.{name}", part, "a fraction of the questions, from 0 to 1")


@dataclass(frozen=True)
class Styles:
    """Training questions rewritten as people write them; each number is a fraction of them, together at most 1.

    no_mark: without the question mark; keywords: as typed into a search box; imperative: as an order ("Name the …");
    lower: in lower case
    """

    no_mark: float = 0.0
    keywords: float = 0.0
    imperative: float = 0.0
    lower: float = 0.0

    def __post_init__(self) -> None:
        """Refuse what is no fraction."""
        _check_fractions("data.styles", asdict(self))


@dataclass(frozen=True)
class Layouts:
    """Training questions whose passages are laid out as users have them; each number is a fraction of the questions.

    markdown: emphasis, links, code marks; list: sentences as items; heading: headings before and amid the passage;
    wrapped: hard line breaks, with a margin or without; code: a code block, table or command line between sentences
    """

    markdown: float = 0.0
    list: float = 0.0
    heading: float = 0.0
    wrapped: float = 0.0
    code: float = 0.0

    def __post_init__(self) -> None:
        """Refuse what is no fraction."""
        _check_fractions("data.layouts", asdict(self))


def _check_fractions(key: str, parts: dict[str, float]) -> None:
    for name, part in parts.items():
        check_value(0 <= part <= 1, f"{key}.{name}", part, "a fraction of the questions, from 0 to 1")
    total = sum(parts.values())
    check_value(total <= 1 + 1e-9, key, parts, f"fractions that together are at most 1, not {total:g}")


MOST = 100.0  # pairs of a kind for each question


@dataclass(frozen=True)
class Unlabelled:
    """Pairs of question and passage without a label: a student learns from what its teacher says of them, alone.

    moved, lookalike, edited, new, cloze: how many pairs for each training question, such as 0.5 or 3
    - moved: the question asked of other passages of its article, drawn by the seed
    - lookalike: asked of the passages that share the most words with it and with its own passage, of any article
    - edited: asked of its own passage, with other names and numbers, and sentences left out, moved or added
    - new: asked of the paragraphs of `passages` that share the most words with it
    - cloze: new questions, made from sentences of `passages`, each asked of its own paragraph
    passages: files of plain text, .txt or .txt.gz; questions: sources as `data.train`, whose answers are not looked at
    """

    moved: float = 0.0
    lookalike: float = 0.0
    edited: float = 0.0
    new: float = 0.0
    cloze: float = 0.0
    passages: tuple[str, ...] = ()
    questions: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse numbers that no pairs can be made of."""
        for name, part in self.parts.items():
            check_value(0 <= part <= MOST, f"data.unlabelled.{name}", part, f"from 0 to {MOST:g} pairs a question")
        used = bool(self.new or self.cloze)
        name, part = ("cloze", self.cloze) if self.cloze else ("new", self.new)
        wanted = "above 0 with data.unlabelled.passages, and only there (or data.unlabelled.cloze, or both)"
        if used:
            wanted = "0 without data.unlabelled.passages, files of plain text"
        check_value(used == bool(self.passages), f"data.unlabelled.{name}", part, wanted)

    @property
    def parts(self) -> dict[str, float]:
        """How many pairs of each kind are to be made for each training question."""
        kinds = ("moved", "lookalike", "edited", "new", "cloze")
        return {kind: getattr(self, kind) for kind in kinds}

    @property
    def wanted(self) -> bool:
        """Whether there are any."""
        return any(self.parts.values()) or bool(self.questions)


@dataclass(frozen=True)
class Data:
    """Which examples, and how they become windows.

    task: one of `quoth.tasks.TASKS`: "span", find the answer; "answerable", is there an answer; "glue", classify
    sentences of GLUE's tables; "pretrain", MLM and NSP on plain text
    train: files or hub datasets (`name:split`), one or a list; evaluate: one, or "" for none
    fraction: of the training examples, drawn by the seed; a smaller fraction is a subset of a larger one
    held_out: of plain text, the fraction of the paragraphs to evaluate on, drawn by the seed, where `evaluate` is ""
    whole_words: of plain text, mask words as a whole instead of tokens
    max_length, step, max_query_length: of the windows, as in `quoth.windows.make_windows`
    negatives: unanswerable questions to add to those of train, drawn by the seed from what `fraction` leaves
    unlabelled: pairs that are learnt from a teacher alone
    styles, layouts: of the questions and of the passages of all of these, drawn by the seed
    """

    train: tuple[str, ...]
    evaluate: str = ""
    task: str = "span"
    fraction: float = 1.0
    held_out: float = 0.0
    whole_words: bool = False
    max_length: int = 384
    step: int = 128
    max_query_length: int = 64
    negatives: Negatives = Negatives()
    unlabelled: Unlabelled = Unlabelled()
    styles: Styles = Styles()
    layouts: Layouts = Layouts()

    def __post_init__(self) -> None:
        """Refuse values that no examples can be made of."""
        check_value(bool(self.train), "data.train", self.train, "name at least one file or hub dataset")
        check_value(0 < self.fraction <= 1, "data.fraction", self.fraction, "above 0, at most 1")
        check_value(0 <= self.held_out < 1, "data.held_out", self.held_out, "at least 0, below 1")
        both = bool(self.held_out and self.evaluate)
        check_value(not both, "data.held_out", self.held_out, "0 where data.evaluate names a text")

    def window_settings(self) -> dict[str, int]:
        """What a model folder states of its windows."""
        return {"max_length": self.max_length, "step": self.step, "max_query_length": self.max_query_length}
