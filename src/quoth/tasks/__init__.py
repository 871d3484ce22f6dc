"""Tasks: examples, batches, losses and evaluation of answer spans, classes and pre-training."""
