"""Calls of a question-answering pipeline, as expressions with `ask` for it; and what an `ask` makes of each.

Run as a program, by an interpreter that has transformers 4.57: `pipeline_calls.py MODEL` prints the outcomes as JSON.
"""

import json
import sys
import warnings
from collections import OrderedDict
from types import SimpleNamespace

Q, C = "Who built the mill?", "The old mill was built by Hale in 1742. It stood on the river."
D = {"question": Q, "context": C}
LONG = C * 40

CALLS = {
    # in which ways questions are given
    "keywords": "ask(question=Q, context=C)",
    "two texts": "ask(Q, C)",
    "a dict": "ask(D)",
    "a list of dicts": "ask([D, D])",
    "a list of one dict": "ask([D])",
    "a tuple of dicts": "ask((D, D))",
    "several dicts": "ask(D, D)",
    "three dicts": "ask(D, D, D)",
    "a generator": "list(ask(d for d in [D, D]))",
    "a generator of one": "list(ask(d for d in [D]))",
    "map": "ask(map(dict, [D, D]))",
    "an ordered dict": "ask(OrderedDict(D))",
    "data": "ask(data=[D, D])",
    "X": "ask(X=[D, D])",
    "data, one dict": "ask(data=D)",
    "lists": "ask(question=[Q, Q], context=[C, C])",
    "lists of one": "ask(question=[Q], context=[C])",
    "many questions of one context": "ask(question=[Q, Q], context=C)",
    "a long context": "ask(question=Q, context=LONG)",
    # settings
    "top_k=3": "ask(question=Q, context=C, top_k=3)",
    "topk=3": "ask(question=Q, context=C, topk=3)",
    "top_k=None": "ask(question=Q, context=C, top_k=None)",
    "top_k=3 of two": "ask([D, D], top_k=3)",
    "a dict and top_k": "ask(D, top_k=2)",
    "batch_size": "ask([D, D], batch_size=8)",
    "num_workers": "ask([D, D], num_workers=0)",
    "handle_impossible_answer": "ask(question=Q, context=C, handle_impossible_answer=True)",
    "handle_impossible_answer=None": "ask(question=Q, context=C, handle_impossible_answer=None)",
    "handle_impossible_answer=1": "ask(question=Q, context=C, handle_impossible_answer=1)",
    "align_to_words=False": "ask(question=Q, context=C, align_to_words=False)",
    "align_to_words=None": "ask(question=Q, context=C, align_to_words=None)",
    "max_answer_len=3": "ask(question=Q, context=C, max_answer_len=3)",
    "max_answer_len=None": "ask(question=Q, context=C, max_answer_len=None)",
    "max_seq_len": "ask(question=Q, context=LONG, max_seq_len=64, doc_stride=16)",
    "max_seq_len=None": "ask(question=Q, context=C, max_seq_len=None, doc_stride=None, max_question_len=None)",
    "max_question_len": "ask(question=Q, context=C, max_question_len=4)",
    "padding": "ask(question=Q, context=C, padding='longest')",
    "all together": "ask([D, D], top_k=2, doc_stride=16, max_answer_len=5, max_seq_len=64, align_to_words=False)",
    # mistakes
    "nothing": "ask()",
    "None": "ask(None)",
    "a number": "ask(3)",
    "one text": "ask(Q)",
    "three texts": "ask(Q, C, C)",
    "a list of texts": "ask([Q, C])",
    "an empty list": "ask([])",
    "a list of numbers": "ask([1, 2])",
    "a dict without context": "ask({'question': Q})",
    "a dict of another key": "ask({'question': Q, 'text': C})",
    "a dict with one more key": "ask({**D, 'id': 'x'})",
    "question alone": "ask(question=Q)",
    "context alone": "ask(context=C)",
    "question=3": "ask(question=3, context=C)",
    "context=3": "ask(question=Q, context=3)",
    "question=None": "ask(question=None, context=C)",
    "bytes": "ask(question=Q.encode(), context=C)",
    "an empty question": "ask(question='', context=C)",
    "an empty context": "ask(question=Q, context='')",
    "one question of many contexts": "ask(question=Q, context=[C, C])",
    "lists of other lengths": "ask(question=[Q, Q], context=[C])",
    "empty lists": "ask(question=[], context=[])",
    "a list with None": "ask(question=[Q, None], context=C)",
    "tuples": "ask(question=(Q, Q), context=(C, C))",
    "top_k=0": "ask(question=Q, context=C, top_k=0)",
    "top_k=-1": "ask(question=Q, context=C, top_k=-1)",
    "top_k='3'": "ask(question=Q, context=C, top_k='3')",
    "top_k=1.5": "ask(question=Q, context=C, top_k=1.5)",
    "max_answer_len=0": "ask(question=Q, context=C, max_answer_len=0)",
    "max_answer_len='3'": "ask(question=Q, context=C, max_answer_len='3')",
    "doc_stride above max_seq_len": "ask(question=Q, context=LONG, max_seq_len=64, doc_stride=65)",
    "doc_stride='x'": "ask(question=Q, context=LONG, doc_stride='x')",
    "max_seq_len='x'": "ask(question=Q, context=C, max_seq_len='x')",
    "max_seq_len=0": "ask(question=Q, context=C, max_seq_len=0)",
    "max_seq_len=5": "ask(question=Q, context=C, max_seq_len=5)",
    "an unknown argument": "ask(question=Q, context=C, threshold=1)",
    "dict and keywords": "ask(D, question=Q, context=C)",
    "batch_size=0": "ask([D, D], batch_size=0)",
}


def outcomes(ask, refusal=Exception):
    """Of each call: None if it is refused, else the form of its result: "dict", or a list of forms."""
    names = {"Q": Q, "C": C, "D": D, "LONG": LONG, "OrderedDict": OrderedDict, "ask": ask}
    found = {}
    for name, call in CALLS.items():
        try:
            found[name] = form(eval(call, dict(names)))
        except refusal:
            found[name] = None
    return found


def form(result):
    """What a user's code would see: a dict of these four keys, or a list of such things."""
    if isinstance(result, dict):
        assert set(result) == {"score", "start", "end", "answer"}
        return "dict"
    if isinstance(result, str):
        return "text"
    return [form(one) for one in result]


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    from transformers import __version__, logging, pipeline

    logging.set_verbosity_error()
    ask = pipeline("question-answering", model=sys.argv[1], device="cpu")
    report = SimpleNamespace(version=__version__, outcomes=outcomes(ask))
    print(json.dumps(vars(report)))
