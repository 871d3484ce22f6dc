"""From the order of words of a question to that of a statement: "did the mill burn" → "the mill burned".

A small table of verbs, and caution in place of a parser: where no verb of the table is found where one may stand, there
is no result.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from quoth.augment.base import word_set

IRREGULAR = """
be/was/been become/became/become begin/began/begun beat/beat/beaten bear/bore/borne bind/bound/bound bite/bit/bitten
blow/blew/blown break/broke/broken bring/brought/brought build/built/built buy/bought/bought catch/caught/caught
choose/chose/chosen come/came/come cost/cost/cost cut/cut/cut deal/dealt/dealt do/did/done draw/drew/drawn
drink/drank/drunk drive/drove/driven eat/ate/eaten fall/fell/fallen feed/fed/fed feel/felt/felt fight/fought/fought
find/found/found fly/flew/flown forbid/forbade/forbidden get/got/gotten give/gave/given go/went/gone grow/grew/grown
hang/hung/hung have/had/had hear/heard/heard hide/hid/hidden hit/hit/hit hold/held/held keep/kept/kept know/knew/known
lead/led/led learn/learned/learned leave/left/left lend/lent/lent let/let/let lose/lost/lost make/made/made
mean/meant/meant meet/met/met oversee/oversaw/overseen overthrow/overthrew/overthrown pay/paid/paid put/put/put
quit/quit/quit read/read/read rebuild/rebuilt/rebuilt ride/rode/ridden rise/rose/risen run/ran/run say/said/said
see/saw/seen seek/sought/sought sell/sold/sold send/sent/sent set/set/set shoot/shot/shot show/showed/shown
shut/shut/shut sing/sang/sung sink/sank/sunk sit/sat/sat sleep/slept/slept speak/spoke/spoken spend/spent/spent
split/split/split spread/spread/spread stand/stood/stood steal/stole/stolen strike/struck/struck swim/swam/swum
take/took/taken teach/taught/taught tear/tore/torn tell/told/told think/thought/thought throw/threw/thrown
understand/understood/understood undergo/underwent/undergone wear/wore/worn win/won/won withdraw/withdrew/withdrawn
write/wrote/written
"""
REGULAR = """
abandon abdicate absorb accept accommodate accompany accomplish accuse achieve acknowledge acquire add admit adopt
advertise advise advocate affect agree allow analyze announce apologize appear appoint approve argue arise arrive ask
aspire assassinate assign assist assume attain attempt attend attract avoid ban believe belong border burn capture carry
cause cease celebrate challenge change characterize claim classify close collaborate collapse collect colonize combine
commemorate commit communicate compare compete complete compose comprise condemn conduct confirm connect conquer
consider consist construct contain continue contract contribute control convert convey correspond cover create
criticize debut decide declare decline decrease dedicate defeat defend define deliver demand demonstrate denote deny
depart depend derive describe designate destroy determine develop devote die differ direct discontinue discover
discourage discuss dismiss display dissolve distinguish divide dominate donate earn elect eliminate emerge emphasize
employ enable encourage end endorse enforce engage enhance enjoy enlist enroll ensure enter eradicate escape establish
estimate evolve examine exceed exchange exclude exist expand expect experience explain explore export express extend
face fail favor finance finish flee focus follow form formulate found fulfill function fund gain gather generate govern
graduate grant handle happen help hire host hope identify ignore illustrate implement import improve include
incorporate increase indicate influence inherit inspire install intend introduce invade invent invest investigate
invite involve join judge justify kill lack land last launch legalize limit link listen live locate look love maintain
manage marry measure melt mention merge migrate miss monitor move name need negotiate note observe obtain occupy occur
offer open operate oppose order organize originate outlaw own participate partner pass perform persuade plan play
possess predict prefer premiere prepare present preserve prevent proclaim produce prohibit promise promote pronounce
propose protect prove provide publish purchase pursue reach realize receive reclaim recognize recommend record recover
recruit reduce refer refuse regain register regulate reign reject relate release relocate rely remain remove rename
reopen replace report represent request require resemble reside resign resist respond restore restrict result retain
retire return reveal revise rule satisfy save score secure seize separate serve settle share sign solve specify spell
sponsor star start state stay stop store strengthen study submit succeed suffer suggest supply support suppress
surrender surround survive sustain symbolize target terminate test testify tour train transfer transform translate
travel treat try turn unify unite use vanish vary view visit vote wait want watch weigh wish withstand work add-on
archive boot cache call compile compute configure copy default delete disable edit execute fetch format guarantee
ignore initialize inspect invoke iterate license load log look match override overwrite parse print process protect
raise render reset resolve restart scan search skip store trigger update upgrade upload validate warn wrap
"""
DOUBLED = "ban stop plan admit commit occur prefer refer scan skip submit transfer trap log wrap star format"
# As often nouns: only taken for verbs after a name, a pronoun or a plural.
NOUNS = word_set("""
attempt ban border cause challenge change claim contract control cost cover cut deal debut decline decrease defeat
default demand display draw drive end estimate exchange experience export face fall favor feed feel fight finance focus
form format found function fund gain grant help hit hold hope host import increase influence judge lack land last
launch lead leave license limit link live load log look love match mean measure name need note offer open order own
partner pass plan play premiere present print process produce promise prompt purchase raise reach read record release
report request reset result return reign rise rule run save score search secure separate set share show sign sleep
split sponsor spread stand star start state stay stop store strike study supply support target test tour train transfer
transform travel treat try turn update upgrade use view visit vote wait watch wear win wish work wrap close complete
direct perform
""")
PRONOUNS = word_set("he she it they we you i people one someone this that these those")
BEFORE_NOUN = word_set("""
a an the his her its their our your my of in on at to for from by with and or as into about than this these those no
any some all most many more first second third last new old two three four other another each every which what whose
main major early late former original same own during between against under over through after before
""")
RELATIVE = word_set("that which who whose where when if what how")
ADVERBS = word_set("""
first originally officially initially finally also still now not actually usually often generally typically commonly
currently formally eventually recently primarily mainly ever never once later most best always sometimes last
""")
BE = word_set("was were is are")
HAVE = word_set("has have had")
MODAL = word_set("can could will would should may might must")
DO = word_set("did does do")
AUXILIARIES = BE | HAVE | MODAL | DO
PARTICIPLE = re.compile(r"[a-z]{2,}(?:[^e]ed|[^aeiou]ied|eed)|re[a-z]+ed")
NO_PARTICIPLE = word_set("need speed seed feed breed hundred red bed indeed sacred exceed united")
SECOND = re.compile(r"\b(?:and|but|or)(?: not| then| also)? (?:[a-z]+)\b")  # perhaps another verb to inflect


def _tables() -> tuple[dict[str, str], frozenset[str]]:
    past, participles = {}, set()
    for entry in IRREGULAR.split():
        base, simple, participle = entry.split("/")
        past[base] = simple
        participles.add(participle)
    for base in REGULAR.split():
        past.setdefault(base, _regular_past(base))
    past |= {base: f"{base}{base[-1]}ed" for base in word_set(DOUBLED)}
    past |= {"arise": "arose", "flee": "fled", "withstand": "withstood", "reset": "reset", "override": "overrode"}
    return past, frozenset(participles | {"based", "born", "known", "shown", "arisen", "proven"})


def _regular_past(base: str) -> str:
    if base.endswith("e"):
        return base + "d"
    return base[:-1] + "ied" if base.endswith("y") and base[-2] not in "aeiou" else base + "ed"


PAST, PARTICIPLES = _tables()
PAST_FORMS = frozenset(PAST.values()) - {"read", "cut", "cost", "hit", "put", "set", "let", "found", "split", "spread"}


def third(base: str) -> str:
    """The form for he, she and it: "carry" → "carries"."""
    if base in ("be", "have", "do", "go"):
        return {"be": "is", "have": "has", "do": "does", "go": "goes"}[base]
    if base.endswith("y") and base[-2] not in "aeiou":
        return base[:-1] + "ies"
    return base + ("es" if base.endswith(("s", "x", "z", "ch", "sh")) else "s")


THIRD_FORMS = frozenset(third(base) for base in PAST if base not in NOUNS)
BASES = {past: ("did", base) for base, past in PAST.items()} | {third(base): ("does", base) for base in PAST}


def is_participle(word: str) -> bool:
    """Whether a word may be a past participle."""
    return word in PARTICIPLES or (bool(PARTICIPLE.fullmatch(word)) and word not in NO_PARTICIPLE)


def statement(auxiliary: str, rest: str) -> str | None:
    """What a question says after its question word, in the order of a statement, or None where it is unclear.

    ("did", "the mill burn in 1742") → "the mill burned in 1742"; ("was", "it built") → "it was built"
    """
    words, auxiliary = rest.split(), auxiliary.lower()
    wanted = "base" if auxiliary in DO | MODAL else "participle"
    for i in range(1, len(words)):
        if not _fits(words, i, wanted, auxiliary):
            continue
        first = i
        while first > 1 and (words[first - 1].lower() in ADVERBS or words[first - 1].endswith("ly")):
            first -= 1
        subject, adverbs, verb, after = words[:first], words[first:i], words[i], words[i + 1 :]
        if subject[0].lower() in ADVERBS or not AUXILIARIES.isdisjoint(subject) or subject[-1] == "be":
            return None
        adjective = words[0].islower() and not words[0].endswith("s") and words[0] not in BEFORE_NOUN | PRONOUNS
        if adjective and subject[1:2] and subject[1] in ("from", "to", "for", "with"):  # "absent from music played"
            return None
        if subject[-1].lower() in BEFORE_NOUN or subject[-1].endswith(("'s", "’s", ",")):
            return None
        if auxiliary in DO and ("not" in adverbs or SECOND.search(" ".join(after))):
            return None
        if wanted == "participle" and after and is_participle(after[-1]):
            return None
        if auxiliary == "did":
            head = [*adverbs, PAST[verb]]
        elif auxiliary == "does":
            head = [*adverbs, third(verb)]
        else:
            head = [*adverbs, verb] if auxiliary == "do" else [auxiliary, *adverbs, verb]
        return " ".join([*subject, *head, *after])
    return None


def _fits(words: list[str], i: int, wanted: str, auxiliary: str) -> bool:
    word, before = words[i].strip(","), words[i - 1].lower()
    if word != words[i] or before in BEFORE_NOUN - PRONOUNS - ADVERBS or before.endswith(("'s", "’s", "s'", ",")):
        return False
    if wanted == "participle":
        ing = auxiliary in BE and word.endswith("ing") and len(word) > 5 and i + 1 < len(words)
        return is_participle(word) or (ing and words[i - 1][0].isupper())
    if word not in PAST:
        return False
    plain = before.endswith("s") or words[i - 1][0].isupper() or before in PRONOUNS or before in ADVERBS
    return word not in NOUNS or plain or i == len(words) - 1 or words[i + 1].lower() in BEFORE_NOUN


def inverted(words: Sequence[str]) -> tuple[str, list[str]] | None:
    """The opposite of `statement`: the auxiliary of a clause, and its other words; None where it is unclear.

    "the mill burned in 1742" → ("did", "the mill burn in 1742")
    """
    for i in range(1, len(words)):
        word, before = words[i], words[i - 1].lower()
        if before in RELATIVE | AUXILIARIES:
            return None
        if word in BE | HAVE | MODAL:
            return word, [*words[:i], *words[i + 1 :]]
        unclear = before in BEFORE_NOUN - PRONOUNS
        unclear |= words[i + 1 : i + 2] == ["by"] or word == "used" or (i == 1 and before in ADVERBS)
        sure = word in PAST_FORMS or words[i + 1 : i + 2] == [] or words[i + 1].lower() in BEFORE_NOUN
        if word in BASES and not unclear and (sure or BASES[word][1] not in NOUNS):
            auxiliary, base = BASES[word]
            return auxiliary, [*words[:i], base, *words[i + 1 :]]
    return None
