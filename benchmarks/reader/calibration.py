"""What a calibration is worth: F1, risk and coverage, reliability.

    python -m benchmarks.reader.calibration DATA … [--model READER] [--tune 0.5] [--ablation]

For each dataset, with probabilities by fits that have not seen the question's article (cross-fitted):

- F1 at the reader's stored threshold on the raw margin, at the best threshold of this very set, and by the calibration
- the area under risk and coverage and the share of right answers among the 80 % most certain, of margin and calibration
- a reliability table of ten bins of equal mass, and the expected calibration error

`--tune` is the share of the articles of each set, in their order, that variants are chosen on: all is told for these,
for the rest and for all. `--ablation` tries other features (fitted and told on the tuning articles alone, then on all),
and leaves each set out of the fit in turn.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.race import markdown
from quoth import Reader
from quoth.answer import best_threshold
from quoth.answer.confidence import RIGHT
from quoth.answer.features import NAMES, OF_LOGITS, factors
from quoth.data import read
from quoth.score.calibrate import FEATURES, PRODUCTS, Sample, cross_fit, fit_confidence, quality, reliability, sample

MAIN = ("margin", "log_probability", "question_mark", "overlap")
VARIANTS = {
    "margin": ("margin",),
    "margin, question mark": ("margin", "question_mark"),
    "all of the logits": OF_LOGITS,
    "all of the logits, question mark (until now)": (*OF_LOGITS, "question_mark"),
    "all": NAMES,
    "margin, probability, question mark, overlap, and five products": (*MAIN, *PRODUCTS),
    "**all, and five products**": FEATURES,
}


def columns(one: Sample, names: Sequence[str]) -> Sample:
    """The same sample with these features alone, which may be products of its own."""

    def column(name: str) -> np.ndarray:
        return np.asarray(np.prod([one.values[:, one.features.index(factor)] for factor in factors(name)], axis=0))

    values = np.stack([column(name) for name in names], axis=1)
    return Sample(one.name, tuple(names), values, one.outcome, one.f1, one.has_answer, one.article)


def at_margin(one: Sample, threshold: float | None) -> float:
    """F1 if questions whose null - best is above the threshold are not answered; None: at the best one."""
    behind = -one.values[:, one.features.index("margin")]
    none = (~one.has_answer).astype(float)
    if threshold is None:
        return 100 * best_threshold(one.f1, none, behind).score
    return 100 * float(np.where(behind > threshold, none, one.f1).mean())


def score_table(samples: Sequence[Sample], parts: Sequence[np.ndarray], threshold: float) -> str:
    """One row for each set and part."""
    rows = []
    for one, tuned, p in zip(samples, parts, cross_fit([columns(s, FEATURES) for s in samples])):
        for name, here in (("tuning", tuned), ("rest", ~tuned), ("all", np.ones(len(one), bool))):
            part, found = one.part(here), quality(columns(one, FEATURES).part(here), p[here])
            rows.append(
                [
                    one.name,
                    name,
                    f"{len(part):,}",
                    f"{at_margin(part, threshold):.1f}",
                    f"{at_margin(part, None):.1f}",
                    f"**{found['f1']:.1f}**",
                    f"{found['HasAns_f1']:.1f}",
                    f"{found['NoAns_f1']:.1f}",
                    f"{found['raw']['area_under_risk_coverage']:.3f} → {found['area_under_risk_coverage']:.3f}",
                    f"{100 * found['raw']['accuracy_at_80']:.1f} → {100 * found['accuracy_at_80']:.1f}",
                    f"{found['expected_calibration_error']:.3f}",
                ]
            )
    heads = ["set", "articles", "questions", "F1, stored threshold", "F1, best threshold of the set", "F1, calibrated"]
    heads += ["with an answer", "without", "AURC, margin → calibrated", "right at 80 %", "ECE"]
    return markdown(heads, rows)


def reliability_table(samples: Sequence[Sample]) -> str:
    """Ten bins of equal mass for each set: mean probability / share that is right."""
    rows = []
    for one, p in zip(samples, cross_fit([columns(s, FEATURES) for s in samples])):
        bins = reliability(p[:, RIGHT], (one.outcome == RIGHT).astype(float))
        rows.append([one.name, *(f"{mean:.2f} / {share:.2f}" for _, mean, share in bins)])
    return markdown(["set", *map(str, range(1, 11))], rows)


def ablation_table(samples: Sequence[Sample], parts: Sequence[np.ndarray]) -> str:
    """Variants: F1 of each set on the tuning articles, on all, and with the set left out of the fit."""
    rows = []
    for name, names in VARIANTS.items():
        every = [columns(one, names) for one in samples]
        tuning = [one.part(mask) for one, mask in zip(every, parts)]
        cells = [name]
        for group in (tuning, every):
            found = [quality(one, p) for one, p in zip(group, cross_fit(group))]
            f1 = [facts["f1"] for facts in found]
            area = np.mean([facts["area_under_risk_coverage"] for facts in found])
            cells += [" ".join(f"{score:.1f}" for score in f1), f"{np.mean(f1):.2f}", f"{area:.4f}"]
        left = []
        for i, one in enumerate(every):
            fitted = fit_confidence([other for j, other in enumerate(every) if j != i])
            left.append(quality(one, fitted.probabilities(one.values))["f1"])
        rows.append([*cells, " ".join(f"{score:.1f}" for score in left)])
    heads = ["features", "F1, tuning", "mean", "AURC", "F1, all", "mean", "AURC", "F1, set left out of the fit"]
    return markdown(heads, rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="+", help="SQuAD 2.0 files of several articles")
    parser.add_argument("--model", default="embedded", help="a reader; the embedded one")
    parser.add_argument("--tune", type=float, default=0.5, help="the share of the articles that variants are chosen on")
    parser.add_argument("--ablation", action="store_true", help="other features, and each set left out")
    options = parser.parse_args()
    reader = Reader.load(options.model)
    datasets = [read(path) for path in options.data]
    names = [Path(path).name.split(".")[0] for path in options.data]
    samples = [sample(reader, d.questions, name, NAMES) for d, name in zip(datasets, names)]
    parts = [one.article < round(options.tune * (one.article.max() + 1)) for one in samples]
    threshold = reader.abstention.threshold
    print(score_table(samples, parts, threshold), "\n")
    print(reliability_table(samples), "\n")
    if options.ablation:
        print(ablation_table(samples, parts), "\n")


if __name__ == "__main__":
    main()
