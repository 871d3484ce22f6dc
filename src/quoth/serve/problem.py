"""`Problem`: what a request is refused with, as `{"error": {"code", "message"}}`."""

from __future__ import annotations

import json
from http import HTTPStatus

from fastapi import HTTPException

from quoth.errors import one_line

LONGEST = 500  # characters of a message


class Problem(HTTPException):
    """A status, a code that does not change, and one sentence. retry: seconds after which to come again."""

    def __init__(self, status: int, code: str, message: str, retry: int | None = None) -> None:
        super().__init__(status, one_line(message)[:LONGEST])
        self.code = code
        self.headers: dict[str, str] = {} if retry is None else {"Retry-After": str(retry)}
        if status == HTTPStatus.UNAUTHORIZED:
            self.headers["WWW-Authenticate"] = "Bearer"

    def body(self) -> bytes:
        """What is sent."""
        return json.dumps({"error": {"code": self.code, "message": self.detail}}).encode()
