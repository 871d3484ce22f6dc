"""Which calls a reader takes, beside the question-answering pipeline of the real transformers 4.57, which is fetched.

It is put into a folder of its own in the user's cache, by pip, once; torch and all else come from this environment.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import transformers

from answer import pipeline_calls
from answer.pipeline_calls import CALLS, outcomes
from quoth import QuothError, Reader

pytestmark = pytest.mark.slow

WANTED = (
    *("transformers==4.57.6", "huggingface-hub==0.36.2", "tokenizers==0.22.2"),
    *("requests", "charset-normalizer", "idna", "urllib3", "certifi"),
)
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "quoth-tests"

DIFFERENCES = {  # and why
    "a dict with one more key": "an id beside question and context does no harm: it is taken",
    "tuples": "several questions in a tuple are as clear as in a list: they are taken",
    "max_seq_len=0": "a window of no tokens: there it read the whole text at once, beyond what a model can take",
    "an unknown argument": "there it was ignored, and so was a setting with a wrong name: it is refused",
    "dict and keywords": "there the keywords were ignored: it is refused",
}


@pytest.fixture(scope="module")
def old_transformers():
    """The folder of transformers 4.57; skipped, with a reason, where pip cannot fetch it."""
    place = CACHE / f"transformers-4.57.6-py{sys.version_info.major}.{sys.version_info.minor}"
    if not (place / "complete").exists():
        shutil.rmtree(place, ignore_errors=True)
        command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "-q", "--no-deps"]
        done = subprocess.run([*command, "--target", place, *WANTED], capture_output=True, text=True, timeout=600)
        if done.returncode:
            reason = (done.stderr.strip().splitlines() or ["no message"])[-1]
            print(f"left out: pip cannot fetch transformers 4.57 ({reason})")
            pytest.skip(f"pip cannot fetch transformers 4.57 ({reason})")
        (place / "complete").touch()
    return place


@pytest.fixture(scope="module")
def model(minilm, tmp_path_factory):
    """A tiny model of Hugging Face's layout that both read."""
    folder = tmp_path_factory.mktemp("model")
    config = transformers.BertConfig(
        vocab_size=30522, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16
    )
    transformers.BertForQuestionAnswering(config).save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.txt"):
        if (minilm / name).exists():
            shutil.copyfile(minilm / name, folder / name)
    return folder


@pytest.fixture(scope="module")
def theirs(old_transformers, model):
    environment = {**os.environ, "PYTHONPATH": str(old_transformers), "HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, pipeline_calls.__file__, str(model)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    report = json.loads(done.stdout.splitlines()[-1])
    assert report["version"].startswith("4.57.")
    return report["outcomes"]


@pytest.fixture(scope="module")
def mine(model):
    """Whatever is refused is a `QuothError`; anything else would be raised here."""
    return outcomes(Reader.load(model, device="cpu"), QuothError)


@pytest.mark.parametrize("name", CALLS)
def test_both_take_it_alike_or_both_refuse_it(theirs, mine, name):
    if name in DIFFERENCES:
        assert mine[name] != theirs[name], "no longer a difference"
        return
    assert mine[name] == theirs[name], CALLS[name]
