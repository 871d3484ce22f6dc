"""The Python examples of README and docs: their import lines work, and links between pages lead somewhere."""

import re
from pathlib import Path
from unittest.mock import patch

import pytest

from quoth.encoder import Encoder, Shape
from quoth.heads import KINDS, build_head
from quoth.model import apply
from quoth.model.model import Model
from quoth.tune import TUNINGS, build_tuning
from quoth.windows import pack

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
IMPORT = re.compile(r"^(?:from quoth[\w.]* import (?:\([^)]*\)|.*)|import quoth.*)$", re.MULTILINE)
LINK = re.compile(r"\]\(([^)#:]*)(#[^)]*)?\)")
FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
IMPORTS = [
    (page.relative_to(ROOT).as_posix(), line)
    for page in PAGES
    for block in BLOCK.findall(page.read_text(encoding="utf-8"))
    for line in IMPORT.findall(block)
]


@pytest.mark.parametrize(("page", "line"), IMPORTS)
def test_an_import_of_the_docs_works(page, line):
    exec(line, {})  # an ImportError names what is gone


def test_there_are_imports_to_test():
    pages = {page for page, _ in IMPORTS}
    assert {"README.md", "docs/train.md", "docs/prune.md", "docs/answer.md", "docs/extend.md"} <= pages


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_python_examples_are_valid(page):
    for block in BLOCK.findall(page.read_text(encoding="utf-8")):
        compile(block.replace("…", "..."), page.name, "exec")


def test_the_head_and_the_tuning_method_of_the_docs_work():
    blocks = BLOCK.findall((ROOT / "docs/extend.md").read_text(encoding="utf-8"))
    with patch.dict(KINDS), patch.dict(TUNINGS):
        for block in blocks:
            exec(block, {})
        head = build_head({"kind": "mine", "dropout": 0.1}, 16, 2)
        assert head.to_json() == {"kind": "mine", "dropout": 0.1}
        model = Model(Encoder(Shape.uniform(layers=2, hidden=16, heads=2, vocab=50)), head)
        apply(model, build_tuning({"kind": "norms"}))
    # five LayerNorms, and the head
    assert sum(value.numel() for value in model.parameters() if value.requires_grad) == 5 * 2 * 16 + 2 * 17
    start, end = model(pack([[1, 2, 3], [4, 5]]).to("cpu"))
    assert start.shape == end.shape == (5,)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    text = FENCED.sub("", page.read_text(encoding="utf-8"))
    for file, anchor in LINK.findall(text):
        target = page.parent / file if file else page
        assert target.exists(), f"{page.name}: {file}"
        if anchor:
            titles = re.findall(r"^#+ (.*)$", target.read_text(encoding="utf-8"), re.MULTILINE)
            assert anchor[1:] in {_anchor(title) for title in titles}, f"{page.name}: {file}{anchor}"


def test_every_page_is_in_the_index():
    index = (ROOT / "docs/README.md").read_text(encoding="utf-8")
    assert all(f"({page.name})" in index for page in (ROOT / "docs").glob("*.md") if page.name != "README.md")


def _anchor(title):
    """The anchor that GitHub makes of a title."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
