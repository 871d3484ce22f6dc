"""Experiments: what is made of several runs, such as the embedded reader."""
