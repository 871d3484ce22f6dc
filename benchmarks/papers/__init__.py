"""The tables and figures of four papers."""
