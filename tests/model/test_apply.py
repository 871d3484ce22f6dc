"""What is trained: the paper's counts, tables of settings, and the tensors that one step of training moves."""

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given, settings

from quoth import QuothError
from quoth.encoder.encoder import Encoder
from quoth.encoder.shape import Shape
from quoth.heads.linear import ClassHead, SpanHead
from quoth.model import apply
from quoth.model.loading import load
from quoth.model.model import Model
from quoth.model.tuned import merge, trained
from quoth.tune import TUNINGS, build_tuning, inserted
from quoth.tune.adapters import Adapters
from quoth.tune.freeze import BitFit, Freeze, Full
from quoth.tune.lora import LoRA

BERT_BASE_CASED = Shape.uniform(layers=12, hidden=768, heads=12, vocab=28996)
ALL_TARGETS = ("query", "key", "value", "output", "up", "down")


def counted(tuning):
    with torch.device("meta"):
        model = Model(Encoder(BERT_BASE_CASED), SpanHead(768), pooler=True)
    apply(model, tuning)
    assert model.base is None
    assert all(value.is_meta for value in model.parameters())
    return sum(value.numel() for value in model.parameters() if value.requires_grad)


class TestCounts:
    """FACTS.md §1: the trainable parameters of BERT-base cased, tables 1 and 2 of Hulburd."""

    @pytest.mark.parametrize(
        ("tuning", "count"),
        [
            (Freeze(0), 39_938),
            (Freeze(1), 7_124_738),
            (Freeze(3), 21_294_338),
            (Freeze(6), 42_548_738),
            (Full(), 108_311_810),
            (Adapters(64, layers="full"), 110_691_074),
            (Adapters(64), 2_419_202),
            (Adapters(768), 28_388_354),
        ],
    )
    def test_of_the_paper(self, tuning, count):
        assert counted(tuning) == count

    def test_of_the_others(self):
        head, layer = 1538, 7_087_872
        assert counted(Freeze(0, "above")) == head
        assert counted(Freeze(6, "above")) == head + 6 * layer
        assert counted(Adapters(64, norms="above")) == head + 24 * (2 * 768 * 64 + 768 + 64)
        assert counted(LoRA()) == head + 24 * 8 * (768 + 768)  # Hu et al.: query and value, rank 8: 294,912
        assert counted(LoRA(targets=ALL_TARGETS, rank=2)) == head + 12 * 2 * (4 * 1536 + 2 * (768 + 3072))
        # Ben Zaken et al.: q, k, v, output, two LayerNorms, down: 768 each, up: 3072; and the embeddings' LayerNorm
        assert counted(BitFit()) == head + 12 * (7 * 768 + 3072) + 768


class TestTables:
    @pytest.mark.parametrize(
        ("table", "tuning"),
        [
            ({"kind": "full"}, Full()),
            ({"kind": "freeze", "layers": 3}, Freeze(3)),
            ({"kind": "freeze", "layers": 6, "norms": "above"}, Freeze(6, "above")),
            ({"kind": "adapters", "size": 64, "layers": "full"}, Adapters(64, "full")),
            ({"kind": "lora", "targets": ["value", "query"], "alpha": 16}, LoRA()),
            ({"kind": "lora", "targets": "query"}, LoRA(targets=("query",))),
            ({"kind": "bitfit"}, BitFit()),
        ],
    )
    def test_are_built(self, table, tuning):
        assert build_tuning(table) == tuning

    @pytest.mark.parametrize(
        ("table", "line"),
        [
            ({}, "kind None is unknown .known: .*freeze, .*bitfit, .*adapters, .*lora"),
            ({"kind": ["full"]}, "is unknown"),
            ({"kind": "adaptor"}, "kind 'adaptor' is unknown; did you mean adapters"),
            ({"kind": "freeze"}, "tuning: freeze: layers is missing"),
            ({"kind": "freeze", "layer": 3}, "tuning: freeze: unknown key layer; did you mean layers"),
            ({"kind": "full", "layers": 3}, "tuning: full has no settings; leave out layers"),
            ({"kind": "freeze", "layers": -1}, "layers is -1; it must be a whole number of at least 0"),
            ({"kind": "freeze", "layers": True}, "layers is True"),
            ({"kind": "freeze", "layers": 1.5}, "layers is 1.5"),
            ({"kind": "freeze", "layers": 1, "norms": "below"}, "norms is 'below'; one of all, above is wanted"),
            ({"kind": "adapters", "size": 0}, "size is 0; it must be a whole number of at least 1"),
            ({"kind": "adapters", "size": 8, "layers": "most"}, "layers is 'most'; a whole number or \"full\""),
            ({"kind": "adapters", "size": 8, "layers": None}, "layers is None"),
            ({"kind": "lora", "rank": 0}, "rank is 0"),
            ({"kind": "lora", "alpha": 0}, "alpha is 0.0; it must be a positive number"),
            ({"kind": "lora", "alpha": float("nan")}, "alpha is nan"),
            ({"kind": "lora", "dropout": 1}, "dropout is 1.0; it must be a number from 0 to below 1"),
            ({"kind": "lora", "targets": 3}, "targets is 3; a text is wanted"),
            ({"kind": "lora", "targets": []}, "targets is empty; a list of query"),
            ({"kind": "lora", "targets": ["query", "pooler"]}, "a target is 'pooler'; one of query, key"),
        ],
    )
    def test_that_are_wrong(self, table, line):
        with pytest.raises(QuothError, match=line) as caught:
            build_tuning(table)
        assert "\n" not in str(caught.value)

    @given(st.data())
    @settings(max_examples=60, deadline=None)
    def test_come_back(self, data):
        """Any tuning is what its own table builds."""
        norms = st.sampled_from(["all", "above"])
        sizes = st.integers(1, 4096)
        some = data.draw(
            st.one_of(
                st.builds(Full),
                st.builds(BitFit),
                st.builds(Freeze, st.integers(0, 99), norms),
                st.builds(Adapters, sizes, st.one_of(st.just("full"), st.integers(0, 99)), norms),
                st.builds(
                    LoRA,
                    sizes,
                    st.floats(0.01, 1e4),
                    st.floats(0, 0.99),
                    st.lists(st.sampled_from(ALL_TARGETS), min_size=1).map(tuple),
                ),
            )
        )
        assert build_tuning(some.to_json()) == some
        assert TUNINGS[some.kind] is type(some)


class TestRefusals:
    def model(self, tied=False):
        with torch.device("meta"):
            return Model(Encoder(Shape.uniform(layers=4, hidden=8, heads=2, vocab=11, tied=tied)), SpanHead(8))

    @pytest.mark.parametrize("tuning", [Freeze(5), Adapters(2, layers=5)])
    def test_more_layers_than_there_are(self, tuning):
        model = self.model()
        with pytest.raises(QuothError, match="layers is 5, but this encoder has 4 layers; choose 0 to 4"):
            apply(model, tuning)
        assert inserted(model.encoder) is None
        assert model.tuning is None

    @pytest.mark.parametrize("tuning", [Freeze(1), Adapters(2, layers=3)])
    def test_some_of_the_layers_of_a_tied_encoder(self, tuning):
        with pytest.raises(QuothError, match="4 layers of this encoder share their weights; choose 0 or 4"):
            apply(self.model(tied=True), tuning)

    @pytest.mark.parametrize(("first", "found"), [(Adapters(2), "adapters"), (LoRA(2), "LoRA")])
    @pytest.mark.parametrize("second", [Adapters(3), LoRA(3), Freeze(1), Full()])
    def test_a_second_tuning_over_inserted_modules(self, first, found, second):
        model = apply(self.model(), first)
        with pytest.raises(QuothError, match=f"has {found} already, so {second.kind} cannot be applied"):
            apply(model, second)
        assert model.tuning == first
        assert apply(model, first) is model  # the same one goes on

    def test_merging_nothing(self):
        with pytest.raises(QuothError, match="no LoRA to merge"):
            merge(self.model())


TIED = {"albert": (Freeze(0), Freeze(3), Freeze(3, "above"), Adapters(4), Adapters(4, layers=3), LoRA(2), BitFit())}
PLAIN = (
    Freeze(0),
    Freeze(2),
    Freeze(3),
    Freeze(0, "above"),
    Freeze(1, "above"),
    Adapters(4),
    Adapters(4, norms="above"),
    Adapters(4, layers=1),
    Adapters(4, layers=2, norms="above"),
    LoRA(2),
    LoRA(2, targets=ALL_TARGETS),
    BitFit(),
)


class TestOneStep:
    """After a step of AdamW exactly the tensors that should be trained are other ones."""

    def moved(self, model, step, steps=1):
        before = {name: value.detach().clone() for name, value in model.named_parameters()}
        step(model, steps)
        return {name for name, value in model.named_parameters() if not torch.equal(value, before[name])}

    @pytest.mark.parametrize("tuning", PLAIN, ids=str)
    def test_bert(self, tuning, tune, step):
        model = tune("bert", tuning, steps=0)
        names = set(trained(model))
        assert not any(name.startswith("pooler.") for name in names)
        if isinstance(tuning, LoRA):  # B = 0 hides A at first
            b = {name for name in names if not name.endswith("lora_a")}
            assert self.moved(model, step) == b
        assert self.moved(model, step) == names

    @pytest.mark.parametrize("tuning", TIED["albert"], ids=str)
    def test_albert(self, tuning, tune, step):
        model = tune("albert", tuning, steps=0)
        steps = 2 if isinstance(tuning, LoRA) else 1
        assert self.moved(model, step, steps) == set(trained(model))

    @pytest.mark.parametrize("tuning", [Full(), Adapters(4, layers="full")], ids=str)
    def test_full_moves_the_pooler_only_for_a_head_that_reads_it(self, tuning, tune, step):
        model = tune("bert", tuning, steps=0)
        everything = {name for name, _ in model.named_parameters()}
        assert set(trained(model)) == everything
        assert self.moved(model, step) == everything - {"pooler.weight", "pooler.bias"}
        model = tune("bert", tuning, steps=0, head="class")
        assert self.moved(model, step) == {name for name, _ in model.named_parameters()}

    def test_the_names_themselves(self, tune):
        """Written out for one small encoder."""
        norms = {"encoder.embeddings.norm"} | {
            f"encoder.layers.{i}.{norm}" for i in range(3) for norm in ("attention_norm", "ffn_norm")
        }
        norms = {f"{norm}.{part}" for norm in norms for part in ("weight", "bias")}
        head = {"head.linear.weight", "head.linear.bias"}
        linears = ("attention.query", "attention.key", "attention.value", "attention.output", "up", "down")
        last = {f"encoder.layers.2.{linear}.{part}" for linear in linears for part in ("weight", "bias")}
        adapters = {
            f"encoder.layers.{i}.{place}_adapter.{tensor}"
            for i in range(3)
            for place in ("attention", "ffn")
            for tensor in ("down.weight", "down.bias", "up.weight", "up.bias")
        }
        assert set(trained(tune("bert", Freeze(0), 0))) == norms | head
        assert set(trained(tune("bert", Freeze(1), 0))) == norms | head | last
        above = {name for name in norms if ".layers.2." in name}
        assert set(trained(tune("bert", Freeze(1, "above"), 0))) == above | head | last
        assert set(trained(tune("bert", Adapters(4), 0))) == norms | head | adapters
        assert set(trained(tune("bert", Adapters(4, norms="above"), 0))) == head | adapters
        lora = {f"encoder.layers.{i}.attention.key.lora_{x}" for i in range(3) for x in "ab"}
        assert set(trained(tune("bert", LoRA(targets=("key",)), 0))) == lora | head


class TestPooler:
    def test_of_the_base_stays_frozen(self, tune):
        model = tune("bert", Freeze(1), 0, head="class")
        assert model.base.pooler
        assert "pooler.weight" not in trained(model)

    def test_that_the_base_lacks_is_trained_with_the_head_that_reads_it(self, bases):
        model = load(bases / "electra")
        model = Model(model.encoder, ClassHead(24, 2, pooled=True), family="electra", pooler=True, origin=model.origin)
        assert {"pooler.weight", "pooler.bias"} <= set(trained(apply(model, LoRA())))
        model = load(bases / "electra")
        model = Model(model.encoder, SpanHead(24), family="electra", pooler=True, origin=model.origin)
        assert not {"pooler.weight", "pooler.bias"} & set(trained(apply(model, LoRA())))


class TestGraph:
    """What is frozen below everything that is trained builds no graph."""

    def graph(self, tuning, tune, packed):
        model = tune("bert", tuning, 0)
        return [state.requires_grad for state in model.encoder(packed, (0, 1, 2, 3))]

    @pytest.mark.parametrize(
        ("tuning", "expected"),
        [
            (Freeze(0), [True] * 4),
            (Freeze(1), [True] * 4),
            (Freeze(0, "above"), [False] * 4),
            (Freeze(1, "above"), [False, False, False, True]),
            (Freeze(2, "above"), [False, False, True, True]),
            (Adapters(4, norms="above"), [False, True, True, True]),
            (LoRA(), [False, True, True, True]),
        ],
        ids=str,
    )
    def test_reaches_down_to(self, tuning, expected, tune, packed):
        assert self.graph(tuning, tune, packed) == expected
