"""Runners: span logits of packed batches by torch, onnxruntime or transformers; ensembles of them."""
