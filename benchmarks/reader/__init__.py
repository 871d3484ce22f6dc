"""Readers: answers, abstention, size and speed."""
