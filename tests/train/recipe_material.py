"""What tests of recipes are made of: the smallest one, and one with every key."""

LEAST = {"model": "m", "data": {"train": "t.json"}}
EVERY_KEY = """
model = "bert-base-cased"
teachers = ["large", "runs/other/model"]
seed = 7

[data]
train = ["a.json", "rajpurkar/squad_v2:train"]
evaluate = "b.json"
task = "span"
fraction = 0.1
held_out = 0.0
whole_words = false
max_length = 320
step = 100
max_query_length = 48
negatives = { moved = 0.1, negation = 0.25 }
unlabelled = { lookalike = 2, edited = 6, new = 0.5, cloze = 0.25, passages = "books.txt" }
styles = { no_mark = 0.3, lower = 0.1 }
layouts = { list = 0.2 }

[tuning]
kind = "adapters"
size = 64

[head]
kind = "cacnn"
width = 3

[optimisation]
epochs = 1.5
learning_rate = 3e-4
batch_size = 8
gradient_accumulation_steps = 2
schedule = "cosine"
restarts = 2
warmup_ratio = 0.05
weight_decay = 0.02
max_grad_norm = 0.5
adam_beta1 = 0.8
adam_beta2 = 0.99
adam_epsilon = 1e-6
dropout = 0.2
precision = "bf16"
compile = "off"

[frozen]
at = [0, 0.3, 1.5]
evaluate = [0.01, 2]
cache_gb = 0
epochs = 2
learning_rate = 2e-3
batch_tokens = 4096
schedule = "linear"
warmup_ratio = 0.1
weight_decay = 0.01
max_grad_norm = 0
adam_beta1 = 0.85
adam_beta2 = 0.98
adam_epsilon = 1e-7
compile = "off"

[frozen.heads]
lp = "pool(learned) > linear"
[frozen.heads."LP + compress"]
head = "pool(learned) > compress(64) > linear"
learning_rate = 1e-4
schedule = "cosine"
restarts = 1
[frozen.heads.cnn]
kind = "cacnn"
width = 3

[distillation]
task_weight = 0.5
logits_weight = 2
temperature = 1.5
cache_folder = "logits"
cache_gb = 1

[evaluation]
at = [0.1, 0.2, 1]
snapshots = [1.5]
max_answer_tokens = 20

[checkpoints]
seconds = 60
"""


def text(path, content):
    path.write_text(content, encoding="utf-8")
    return path
