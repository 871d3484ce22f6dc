"""Deployment: `quoth.deploy.export` writes a model as ONNX (torch and onnx), `OnnxRunner` runs it without torch."""

from quoth.deploy.onnx_runner import OnnxRunner

__all__ = ["OnnxRunner"]
