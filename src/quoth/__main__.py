"""`python -m quoth` is the same as `quoth`."""

from quoth.cli import main

if __name__ == "__main__":
    main()
