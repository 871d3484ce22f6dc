"""benchmarks.reader.manual_passages: passages of the documentation in source archives, without the texts left out."""

import gzip
import importlib
import io
import sys
import tarfile
from pathlib import Path

import pytest

from quoth.data.plain_text import read_paragraphs

ROOT = Path(__file__).parents[1]
PROSE = "The option is read from the file of settings, and it is used for every request that is sent to the server. "
DOCUMENT = f"""Title of it
===========

.. note::

   {PROSE}See :class:`~tool.Client` and `the manual <https://example.com/>`_.

{PROSE * 3}

* {PROSE}
* {PROSE}

.. [1] gone
"""
FILES = {
    "tool-1.0/PKG-INFO": "Metadata-Version: 2.4\nName: tool\nLicense-Expression: MIT\n",
    "tool-1.0/docs/index.rst": DOCUMENT,
    "tool-1.0/docs/copy.rst": DOCUMENT,
    "tool-1.0/COPYING": "GNU GENERAL PUBLIC LICENSE\n\n" + PROSE.upper() * 4,
    "tool-1.0/tool/_vendor/other.md": PROSE.replace("option", "vendored option") * 4,
    "tool-1.0/tool/code.py": f'def send():\n    """Send it.\n\n    {PROSE}\n    {PROSE * 2}\n    Done.\n    """\n',
    "tool-1.0/tool/broken.py": "def (",
}


@pytest.fixture
def module(monkeypatch):
    monkeypatch.setattr(sys, "path", [str(ROOT), *sys.path])
    return importlib.import_module("benchmarks.reader.manual_passages")


def test_an_archive(module, tmp_path, monkeypatch, capsys):
    with tarfile.open(tmp_path / "tool-1.0.tar.gz", "w:gz") as archive:
        for name, text in FILES.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(text.encode())
            archive.addfile(entry, io.BytesIO(text.encode()))
    out = tmp_path / "manuals.txt.gz"
    arguments = ["--out", str(out), "--folder", str(tmp_path), "tool==1.0"]
    monkeypatch.setattr(sys, "argv", ["manual_passages.py", *arguments])
    module.main()
    passages = gzip.decompress(out.read_bytes()).decode().strip().split("\n\n")
    assert capsys.readouterr().out.startswith(f"{len(passages)} passages")
    assert len(passages) == len(read_paragraphs(out)) == len(set(passages))
    assert all(200 <= len(passage) <= 1200 for passage in passages)
    text = "\n".join(passages)
    assert "See tool.Client and the manual." in text
    assert "Send it." in text
    assert not any(gone in text for gone in ("GNU", PROSE.upper(), "vendored", "===", "note::", "[1]"))
    assert "tool 1.0: MIT;" in (tmp_path / "manuals.packages.txt").read_text()


def test_long_blocks_are_cut(module):
    pieces = list(module.passages("word " * 1000))
    assert max(map(len, pieces)) <= 1200
    assert " ".join(pieces).split() == ["word"] * 1000
