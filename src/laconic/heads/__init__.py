"""Heads: from layer states to logits, one file per idea."""

from laconic.heads.linear import ClassHead, SpanHead, build_head

__all__ = ["ClassHead", "SpanHead", "build_head"]
