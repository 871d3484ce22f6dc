"""How fast: contenders take turns in one run."""
