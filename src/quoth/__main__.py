"""`quoth`, and `python -m quoth`: the command line."""

import sys


def main() -> None:
    """Run the command line; Ctrl-C, while it is still being imported too, ends it without a traceback."""
    try:
        from quoth.cli import main as run  # takes a moment, in which Ctrl-C may come

        run()
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
