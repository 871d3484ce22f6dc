"""A process that dies at a chosen call of the system, as if it were killed there."""

import os

CALLS = (
    "rename", "replace", "mkdir", "rmdir", "unlink", "chmod", "open", "close", "fsync", "scandir", "listdir", "stat",
    "lstat",
)  # fmt: skip


def die_at(limit: int) -> None:
    """End this process, without any cleaning up, at its call number `limit` of any of these; 0 is never."""
    from quoth import folders

    calls = 0

    def counted(real):
        def call(*arguments, **options):
            nonlocal calls
            calls += 1
            if calls == limit:
                os._exit(9)
            return real(*arguments, **options)

        return call

    for name in CALLS:
        setattr(os, name, counted(getattr(os, name)))
    folders._exchange = counted(folders._exchange)
