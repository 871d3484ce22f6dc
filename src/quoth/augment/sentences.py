"""Where the sentences of a passage begin and end, by simple rules."""

from __future__ import annotations

import re

END = re.compile(r"[.!?][\"”’')\]]*\s+(?=[\"“‘'(\[]*[A-Z0-9])|\n\s*\n\s*")
ABBREVIATION = re.compile(  # a full stop after these does not end a sentence
    r"(?:\b(?:[A-Za-z]|Mr|Mrs|Ms|Dr|St|Mt|Jr|Sr|Prof|Gen|Col|Lt|Capt|Sgt|Rev|Hon|No|Nos|Vol|vs|etc|cf|ca|approx|Inc|Ltd|Co|"
    r"Corp|Fig|Sec|pp|ed|eds|e\.g|i\.e|a\.m|p\.m|U\.S|U\.K|Jan|Feb|Mar|Apr|Jun|Jul|Aug|Sept?|Oct|Nov|Dec))\.$"
)
LONGEST = 8  # characters of an abbreviation


def sentence_spans(text: str) -> list[tuple[int, int]]:
    """The first character of each sentence and that past its last one; between them there is only white space."""
    spans, begin = [], len(text) - len(text.lstrip())
    for found in END.finditer(text):
        past, stop = found.start() + len(found.group().rstrip()), found.start() + 1
        if past <= begin or (text[stop - 1] == "." and ABBREVIATION.search(text, max(begin, stop - LONGEST), stop)):
            continue
        spans.append((begin, past))
        begin = found.end()
    last = len(text.rstrip())
    return [*spans, (begin, last)] if last > begin else spans
