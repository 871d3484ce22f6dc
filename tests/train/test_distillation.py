"""The loss of distillation against loops written by hand."""

import copy

import pytest
import torch

from prune.shapes import make_batch, make_model
from quoth.encoder.shape import LayerShape, Shape
from quoth.prune import cut
from quoth.prune.baselines import drop_layers
from quoth.prune.gates import gated
from quoth.tasks import GlueTask, Pretraining, SpanTask
from quoth.train.distillation import Distillation, DistillationLoss, View
from quoth.windows.packed import Masked, Taught
from train.material import CPU

SHAPE = Shape(23, 16, 2, 6, 6, (LayerShape(2, 3, 4, 5), LayerShape(3, 2, 2, 7)))


SPANS = SpanTask(None, [], None)
CLASSES = GlueTask("MNLI", ("x",) * 3, None)
TEXT = Pretraining(None, None)


def kl(theirs, ours, temperature):
    p, q = (torch.softmax(logits.double() / temperature, 0) for logits in (theirs, ours))
    return sum(float(a * (a.log() - b.log())) for a, b in zip(p, q)) * temperature**2


@pytest.mark.parametrize("temperature", [1.0, 2.5])
def test_spans(temperature):
    packed = make_batch(SHAPE)
    torch.manual_seed(0)
    ours, theirs = (tuple(torch.randn(2, packed.tokens)) for _ in range(2))
    total, begin = 0.0, 0
    for length in packed.lengths:
        here = slice(begin, begin + length)
        total += sum(kl(b[here], a[here], temperature) for a, b in zip(ours, theirs)) / 2
        begin += length
    assert float(SPANS.distillation_loss(ours, theirs, packed, temperature)) == pytest.approx(total, rel=1e-5)


def test_classes_and_scores():
    packed = make_batch(SHAPE)
    torch.manual_seed(0)
    ours, theirs = torch.randn(4, 3), torch.randn(4, 3)
    wanted = sum(kl(b, a, 2.0) for a, b in zip(ours, theirs))
    assert float(CLASSES.distillation_loss(ours, theirs, packed, 2.0)) == pytest.approx(wanted, rel=1e-5)
    apart = float((ours[:, :1] - theirs[:, :1]).square().sum())
    assert float(CLASSES.distillation_loss(ours[:, :1], theirs[:, :1], packed, 2.0)) == pytest.approx(apart, rel=1e-5)


def test_mlm_and_nsp():
    plain = make_batch(SHAPE)
    places, targets = torch.tensor([1, 4, 9]), torch.tensor([3, -100, 5])
    packed = Masked(plain.ids, plain.positions, plain.types, plain.starts, plain.lengths, places, targets, 0.7)
    torch.manual_seed(0)
    ours, theirs = torch.randn(3, 23), torch.randn(3, 23)
    nsp = torch.randn(2, 4, 2)
    words = 0.7 * sum(kl(theirs[i], ours[i], 1.0) for i in (0, 2))
    wanted = words + sum(kl(b, a, 1.0) for a, b in zip(*nsp))
    found = TEXT.distillation_loss((ours, nsp[0]), (theirs, nsp[1]), packed, 1.0)
    assert float(found) == pytest.approx(wanted, rel=1e-5)
    alone = TEXT.distillation_loss((ours, None), (theirs, None), packed, 1.0)
    assert float(alone) == pytest.approx(words, rel=1e-5)


def test_states_of_a_cut_model_are_compared_at_the_kept_units():
    teacher, packed = make_model(SHAPE), make_batch(SHAPE)
    keep = {"h": torch.tensor([True, False, True, True, False, True])}
    view = View.whole(SHAPE).after(keep)
    student = make_model(cut(teacher, keep).encoder.shape, seed=1)
    labels = torch.zeros(len(packed.lengths), 2, dtype=torch.long)
    weights = DistillationLoss(task_weight=0.5, logits_weight=0.0, states_weight=3.0)
    distillation = Distillation(SPANS, weights, CPU, teacher, view)
    with torch.no_grad():
        found = float(distillation(student, packed, labels))
        ours, theirs = (model.encoder(packed, range(3)) for model in (student, teacher))
        total = 0.0
        for a, b in zip(ours, theirs):
            part = sum(float((a[:, i] - b[:, j]).square().sum()) for i, j in enumerate((0, 2, 3, 5)))
            total += part / a.numel() / 3
        task = float(SPANS.loss(student(packed), packed, labels))
    assert found == pytest.approx(0.5 * task + 3.0 * len(packed.lengths) * total, rel=1e-4)


def test_a_second_cut_counts_from_the_first_model():
    view = View.whole(SHAPE).after({"h": torch.tensor([1, 0, 1, 1, 0, 1]).bool()})
    view = view.after({"h": torch.tensor([0, 1, 1, 0]).bool()})
    assert view.units.tolist() == [2, 3]
    assert view.after({"f0": torch.ones(5).bool()}) is view


def test_the_loss_of_the_unpruned_model_against_itself_is_zero():
    teacher, packed = make_model(SHAPE), make_batch(SHAPE)
    distillation = Distillation(SPANS, DistillationLoss(states_weight=1.0), CPU, copy.deepcopy(teacher))
    with torch.no_grad():
        assert float(distillation(teacher, packed, torch.zeros(4, 2)).abs()) < 1e-6


def test_a_gated_model_is_compared_with_the_states_as_they_are():
    """Gates of h multiply matrices, not states."""
    teacher, packed = make_model(SHAPE), make_batch(SHAPE)
    gate = torch.linspace(0.5, 2.0, 6, dtype=torch.float64)
    distillation = Distillation(SPANS, DistillationLoss(0, 0, 1.0), CPU, copy.deepcopy(teacher))
    with torch.no_grad():
        theirs = teacher.encoder(packed, range(3))
        with gated(teacher, {"h": gate}):
            ours = teacher.encoder(packed, range(3))
            found = float(distillation(teacher, packed, torch.zeros(4, 2)))
    wanted = sum(float((a - b).square().mean()) for a, b in zip(ours, theirs)) / 3 * 4
    assert found == pytest.approx(wanted, rel=1e-5)


def test_fewer_layers_go_with_evenly_spaced_ones():
    """With one layer of two: embeddings with embeddings, last with last."""
    teacher, packed = make_model(SHAPE), make_batch(SHAPE)
    student = drop_layers(teacher, 1)
    with torch.no_grad():
        distillation = Distillation(SPANS, DistillationLoss(0, 0, 1.0), CPU, teacher)
        found = float(distillation(student, packed, torch.zeros(4, 2)))
        ours, theirs = student.encoder(packed, (0, 1)), teacher.encoder(packed, (0, 2))
    wanted = sum(float((a - b).square().mean()) for a, b in zip(ours, theirs)) / 2 * 4
    assert found == pytest.approx(wanted, rel=1e-5)


def test_logits_that_come_with_the_batch_and_states_of_a_model_beside():
    """The logits of one teacher, kept before, and the states of another one; its own logits do not count."""
    beside, student, packed = make_model(SHAPE), make_model(SHAPE, seed=1), make_batch(SHAPE)
    kept = torch.randn(2, len(packed.ids))
    taught = Taught(**vars(packed), teacher=kept)
    labels = torch.zeros(len(packed.lengths), 2, dtype=torch.long)
    weights = DistillationLoss(task_weight=0.0, logits_weight=2.0, states_weight=3.0)
    with torch.no_grad():
        found = float(Distillation(SPANS, weights, CPU, beside)(student, taught, labels))
        logits = float(SPANS.distillation_loss(student(packed), tuple(kept), packed, 1.0))
        ours, theirs = (model.encoder(packed, range(3)) for model in (student, beside))
    states = sum(float((a - b).square().mean()) for a, b in zip(ours, theirs)) / 3
    assert found == pytest.approx(2.0 * logits + 3.0 * len(packed.lengths) * states, rel=1e-4)


@pytest.mark.parametrize(
    ("weights", "name"),
    [((1, 0, 0), "task"), ((0, 1, 0), "distillation"), ((0, 0, 1), "distillation"), ((1, 0, 2), "both")],
)
def test_what_results_call_a_loss(weights, name):
    assert DistillationLoss(*weights).name == name
