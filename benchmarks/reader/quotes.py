"""Quotes from real documents: sentences as they are, spelled in another way, and with words changed.

    python -m benchmarks.reader.documents --fetch FOLDER     # once; or any folder of documents
    python -m benchmarks.reader.quotes FOLDER [--quotes 200] [--seed 20]

Sentences of 8 to 60 words are drawn from all documents. Each is asked for in these forms:

    exact     as it stands in the text of the document
    spelled   wrapped into lines, words split by hyphens there, the other quotation marks and dashes
    word      one word, neither the first nor the last, is another word of the documents
    number    one number is another, where the sentence has one
    without   one word is left out
    not       "not" is put in

The first two must stand, at the place where the sentence was drawn among others; the others must not, unless the
changed sentence stands too, which is looked up in another way (all words of all documents as one text). `named` is how
often the words that differ are exactly those that were changed. The texts are in memory, as in `quoth mcp` from the
second quote on.
"""

from __future__ import annotations

import argparse
import random
import re
import statistics
import time
from collections.abc import Callable
from functools import partial

from quoth.search import open_collection
from quoth.search.collection import Collection
from quoth.search.sentences import split_sentences
from quoth.serve.quotes import Texts, Verified, verify

Change = tuple[str, str, str]  # the changed sentence, the words of the quote that differ, those of the document
WORD = re.compile(r"[A-Za-z]{3,}")
PLAIN = re.compile(r"[A-Za-z]+")
MARKS = str.maketrans({"'": "’", "’": "'", "“": '"', "”": '"', "–": "-"})
WIDTH = 50


def draw(collection: Collection, count: int, rng: random.Random) -> list[tuple[int, int, int]]:
    """Document, start and end of some sentences; at most five of a document."""
    numbers = list(range(len(collection)))
    rng.shuffle(numbers)
    found: list[tuple[int, int, int]] = []
    for number in numbers:
        text = collection.document(number).text
        good = [span for span in split_sentences(text) if 8 <= len(text[slice(*span)].split()) <= 60]
        good = [span for span in good if len(PLAIN.findall(text[slice(*span)])) >= 8]
        found += [(number, *span) for span in rng.sample(good, min(5, len(good)))]
        if len(found) >= count:
            break
    return found[:count]


def spelled(sentence: str, rng: random.Random) -> str:
    """Wrapped into lines of `WIDTH` characters with hyphens, in other marks."""
    lines, line = [], ""
    for word in sentence.translate(MARKS).split():
        room = WIDTH - len(line) - 2
        if len(word) > room and 3 <= room <= len(word) - 2 and PLAIN.fullmatch(word):
            lines.append(f"{line} {word[:room]}-")
            line = word[room:]
        elif len(word) > room:
            lines.append(line)
            line = word
        else:
            line = f"{line} {word}"
    return "\n".join([*lines, line]).strip()


def changes(sentence: str, words: list[str], rng: random.Random) -> dict[str, Change]:
    """The sentence with one thing changed, by the name of the change."""
    parts = sentence.split(" ")
    inner = [i for i in range(1, len(parts) - 1) if PLAIN.fullmatch(parts[i])]
    found: dict[str, Change] = {}
    if inner:
        i = rng.choice(inner)
        other = rng.choice([word for word in rng.sample(words, 20) if word.lower() != parts[i].lower()])
        found["word"] = " ".join([*parts[:i], other, *parts[i + 1 :]]), other, parts[i]
        found["without"] = " ".join([*parts[:i], *parts[i + 1 :]]), "", parts[i]
        found["not"] = " ".join([*parts[:i], "not", *parts[i:]]), "not", ""
    numbers = [i for i, part in enumerate(parts) if part.isdigit()]
    if numbers:
        i = rng.choice(numbers)
        other = str(int(parts[i]) + rng.choice([-1, 1, 10]))
        found["number"] = " ".join([*parts[:i], other, *parts[i + 1 :]]), other, parts[i]
    return found


def named(found: Verified, change: Change) -> bool:
    """Whether the words that differ are those that were changed, and nothing else."""
    near = found.nearest
    return near is not None and [(one.quote, one.document) for one in near.differences] == [change[1:]]


def _is(stands: bool, found: Verified) -> bool:
    return bool(found.places) == stands


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder")
    parser.add_argument("--quotes", type=int, default=200)
    parser.add_argument("--seed", type=int, default=20)
    options = parser.parse_args()
    rng = random.Random(options.seed)
    collection = open_collection([options.folder])
    kept = Texts(collection)
    texts = [kept[number] for number in range(len(collection))]
    everything = " ".join(" ".join(text.split()) for text in texts)
    words = sorted({word for text in texts for word in WORD.findall(text[:20_000])})
    drawn = draw(collection, options.quotes, rng)
    right: dict[str, list[bool]] = {}
    told: dict[str, list[bool]] = {}
    seconds: dict[str, list[float]] = {}

    def ask(kind: str, quote: str, judge: Callable[[Verified], bool]) -> Verified:
        begun = time.process_time()
        found = verify(quote, collection, kept)
        seconds.setdefault(kind, []).append(time.process_time() - begun)
        right.setdefault(kind, []).append(judge(found))
        if not right[kind][-1]:
            print(f"{kind}: {found.verdict}: {quote!r}", flush=True)
        return found

    for number, start, end in drawn:
        sentence = texts[number][start:end]

        def there(found: Verified, place: tuple[int, int, int] = (number, start, end)) -> bool:
            return found.more or any((one.document, one.start, one.end) == place for one in found.places)

        ask("exact", sentence, lambda found: found.verdict == "exact" and there(found))
        ask("spelled", spelled(sentence, rng), there)
        for kind, change in changes(sentence, words, rng).items():
            stands = " ".join(change[0].split()) in everything
            found = ask(kind, change[0], partial(_is, stands))
            if not stands:
                told.setdefault(kind, []).append(named(found, change))
    characters = sum(map(len, texts))
    print(f"\n{len(collection):,} documents, {characters:,} characters, {len(drawn)} sentences\n")
    print("| form | asked | right | named | median CPU s | longest CPU s |\n|---|---|---|---|---|---|")
    for kind, values in right.items():
        name = f"{sum(told[kind])} of {len(told[kind])}" if kind in told else ""
        middle, longest = statistics.median(seconds[kind]), max(seconds[kind])
        print(f"| {kind} | {len(values)} | {sum(values)} | {name} | {middle:.2f} | {longest:.2f} |")


if __name__ == "__main__":
    main()
