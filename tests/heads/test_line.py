"""Lines: what they may say, the one way to spell them, and what is said of wrong ones."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from quoth import QuothError
from quoth.heads import Argument, build_head, register_step
from quoth.heads.line import WORDS, Branches, Word, parse, spell
from quoth.heads.step import STEPS


def test_a_line_is_read_word_by_word():
    assert parse("last(4) > pool(average) > cnn(NxN, dropout=0.5) > linear") == (
        Word("last", {"count": 4}),
        Word("pool", {"how": "average"}),
        Word("cnn", {"filters": "NxN", "dilation": 1, "dropout": 0.5}),
        Word("linear", {}),
    )


def test_branches_bind_less_than_steps_and_nest():
    inner = Branches((parse("skip"), parse("compress(3) > pool(learned)")))
    assert parse("(compress(5) + (skip + compress(3) > pool(learned)) > skip) > linear") == (
        Branches((parse("compress(5)"), (inner, *parse("skip")))),
        *parse("linear"),
    )


@pytest.mark.parametrize(
    ("written", "spelled"),
    [
        ("linear", "linear"),
        ("  pool( learned )>linear ", "pool(learned) > linear"),
        ("compress(386, shared) > skip() > linear", "compress(386) > skip > linear"),
        ("compress(weights=each,size=64)>linear", "compress(64, each) > linear"),
        ("cnn(1×N, dropout=.25, dilation=2) > linear", "cnn(1xN, dilation=2, dropout=0.25) > linear"),
        ("cnn(1xN, 1, 0.1) > linear", "cnn(1xN) > linear"),
        ("cnn(NxN, dropout=0) > linear", "cnn(NxN, dropout=0) > linear"),
        ("xception(modified)>linear", "xception > linear"),
        ("xception( size = short )>linear", "xception(short) > linear"),
        ("(compress(8)+pool(learned)>compress(4))>linear", "(compress(8) + pool(learned) > compress(4)) > linear"),
    ],
)
def test_one_spelling(written, spelled):
    assert spell(parse(written)) == spelled
    assert parse(spelled) == parse(written)
    head = build_head(written, 6, 3)
    assert head.to_json() == {"kind": "chain", "line": spelled}
    assert build_head(spelled, 6, 3).to_json() == head.to_json()


@pytest.mark.parametrize(
    ("written", "spelled"),
    [
        ("layers(all) > pool(learned) > linear", "pool(learned) > linear"),
        ("last(4) > pool(learned) > linear", "pool(learned) > linear"),
        ("last(3) > attend(dot)", "attend(dot)"),
        ("layer(3) > linear", "linear"),
        ("layers(all) > linear", "layers(all) > linear"),
        ("layers(all) > attend(dot)", "layers(all) > attend(dot)"),
        ("layer(2) > compress(4) > linear", "layer(2) > compress(4) > linear"),
        ("last(2) > attend(dot)", "last(2) > attend(dot)"),
    ],
)
def test_states_that_are_read_anyway_are_not_spelled(written, spelled):
    assert build_head(written, 6, 3).to_json()["line"] == spelled


def values_of(argument):
    if isinstance(argument.kind, tuple):
        return st.sampled_from(argument.kind)
    if argument.kind is int:
        return st.integers(argument.least, 999)
    return st.sampled_from([0.0, 0.1, 0.25, 0.5, 0.125])


words = st.sampled_from(list(WORDS)).flatmap(
    lambda name: st.fixed_dictionaries({key: values_of(a) for key, a in WORDS[name].items()}).map(
        lambda values: Word(name, values)
    )
)
lines = st.recursive(
    st.lists(words, min_size=1, max_size=4).map(tuple),
    lambda inner: st.tuples(st.lists(inner, min_size=2, max_size=3).map(lambda found: Branches(tuple(found))), words),
    max_leaves=6,
)


@given(lines)
def test_what_is_spelled_is_read_again(line):
    assert parse(spell(line)) == line


@given(st.text("pol(learnd)>+ ,=1x.-\n ×", max_size=40))
def test_any_text_is_read_or_refused_in_one_line(text):
    told = ""
    try:
        build_head(text, 6, 3)
    except QuothError as error:
        told = str(error)
    assert "\n" not in told


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("", "a step is missing at the end of ''"),
        ("pool(learned) > ", "a step is missing at the end"),
        ("> linear", "a step is missing before '>'"),
        ("pool(learned) linear", "'linear' has no place in .*joined by >"),
        ("pool(learned)) > linear", r"'\)' has no place"),
        ("pol(learned) > linear", "unknown step 'pol'; did you mean pool"),
        ("compres(386) > linear", "unknown step 'compres'; did you mean compress"),
        ("compress(386 > linear", "parenthesis of .* is not closed"),
        ("(compress(4) + skip > linear", "parenthesis of .* is not closed"),
        ("(compress(4)) > linear", r"\(compress\(4\)\) is one branch alone"),
        ("pool > linear", r"pool needs an argument: pool\(learned or average\)"),
        ("compress > linear", r"compress needs an argument: compress\(a whole number from 1\)"),
        ("cnn(1xN,) > linear", "cnn: dilation must be a whole number from 1, not ''"),
        ("pool(max) > linear", "pool: how must be learned or average, not 'max'"),
        ("compress(0) > linear", "compress: size must be a whole number from 1, not '0'"),
        ("compress(-3) > linear", "compress: size must be a whole number from 1, not '-3'"),
        ("compress(3.5) > linear", "compress: size must be a whole number from 1, not '3.5'"),
        ("compress(64, own) > linear", "compress: weights must be shared or each, not 'own'"),
        ("compress(64, share=each) > linear", "compress has no argument 'share'; it takes size, weights"),
        ("compress(64, size=65) > linear", "compress is given size twice"),
        ("compress(64, each, 3) > linear", r"compress takes 2 argument\(s\); '3' is one too many"),
        ("skip(3) > linear", "skip takes no arguments; '3' is one too many"),
        ("skip(a=3) > linear", "skip has no argument 'a'; it takes none"),
        ("cnn(3x3) > linear", "cnn: filters must be 1xN or NxN, not '3x3'"),
        ("cnn(1xN, dropout=1) > linear", "cnn: dropout must be a part of 1 .*, not '1'"),
        ("cnn(NxN, dilation=2) > linear", r"cnn\(NxN\) takes no dilation"),
        ("xception(tiny) > linear", "xception: size must be modified or short or full, not 'tiny'"),
        ("attend(cross)", "attend: how must be weighted or dot or multiplicative or encoder, not 'cross'"),
        ("layer(4) > linear", r"layer\(4\): this encoder has the states 0 \(embeddings\) to 3"),
        ("last(5) > linear", r"last\(5\): this encoder has the states 0 \(embeddings\) to 3"),
        ("layers(some) > linear", "layers: which must be all, not 'some'"),
        ("pool(learned)", r"a line ends in linear or attend\(…\), not in pool\(learned\)"),
        ("layers(all)", r"a line ends in linear or attend\(…\), not in layers\(all\)"),
        ("(linear + skip)", r"a line ends in linear or attend\(…\), not in \(linear \+ skip\)"),
        ("linear > skip > linear", "linear makes the logits and must stand last"),
        ("(attend(dot) + skip) > linear", r"attend\(dot\) makes the logits and must stand last"),
        ("pool(learned) > layer(2) > linear", r"layer\(2\) says which states are read and must stand first"),
        ("(last(2) + skip) > linear", r"last\(2\) says which states are read and must stand first"),
        ("pool(learned) > pool(average) > linear", "pool joins several layers, but what comes to it is one state only"),
        ("layer(2) > pool(learned) > linear", "pool joins several layers, but"),
        ("skip > pool(learned) > linear", "pool joins several layers, but"),
        (
            "pool(learned) > compress(4, each) > linear",
            "compress with weights for each layer joins several",
        ),
        ("pool(learned) > attend(dot)", "attend joins several layers, but"),
        ("last(1) > attend(dot)", "attend joins several layers, but"),
    ],
)
def test_wrong_lines(line, message):
    with pytest.raises(QuothError, match=message) as error:
        build_head(line, 6, 3)
    assert "\n" not in str(error.value)
    assert str(error.value).startswith("head: ")


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"line": 3}, "chain: line is 3; a text is wanted"),
        ({"line": "linear", "labels": 0}, "labels must be a whole number from 1, not 0"),
        ({"line": "linear", "labels": True}, "chain: labels is True; a whole number is wanted"),
        ({"line": "linear", "pooled": True}, "pooled is for classes only; give labels"),
        ({"line": "linear", "labels": 2, "pooled": 1}, "chain: pooled is 1; true or false is wanted"),
        ({}, "chain: line is missing"),
        ({"line": "linear", "size": 3}, "chain: unknown key size; did you mean line"),
        ({"line": "linear", "layers": 3}, "chain: unknown key layers; did you mean"),
    ],
)
def test_wrong_tables(table, message):
    with pytest.raises(QuothError, match=message) as error:
        build_head({"kind": "chain", **table}, 6, 3)
    assert "\n" not in str(error.value)


def test_a_new_step(monkeypatch):
    """A word that is registered is read, spelled, built and run."""
    monkeypatch.setitem(STEPS, "times", None)
    monkeypatch.setitem(WORDS, "times", None)

    class Times(torch.nn.Module):
        def __init__(self, form, factor):
            super().__init__()
            self.form, self.factor = form, factor

        def forward(self, x, here):
            return x * self.factor

    register_step("times", {"factor": Argument(int, 2)}, Times)
    head, plain = build_head("last(1) > times(factor=3) > linear", 6, 3), build_head("linear", 6, 3)
    assert head.to_json()["line"] == "last(1) > times(factor=3) > linear"
    head.load_state_dict({"steps.1.weight": plain.steps[0].weight, "steps.1.bias": plain.steps[0].bias})
    states = torch.randn(5, 6)
    torch.testing.assert_close(head([states]).start, plain([3 * states]).start)
    with pytest.raises(QuothError, match="times: factor must be a whole number from 1, not 'x'"):
        build_head("times(x) > linear", 6, 3)
