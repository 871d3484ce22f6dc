"""What `/openapi.json` tells: examples, which a test sends, the errors of each route, and the whole document."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from quoth.serve.schemas import Error, result_schemas

CONTEXT = "The repair of the north pier cost 310,000 euros. It took a year."
ASK: dict[str, Any] = {
    "context": {
        "summary": "One question over a text",
        "value": {"question": "What did the repair cost?", "context": CONTEXT},
    },
    "folder": {"summary": "One question over the folder", "value": {"question": "Who is the harbour master?"}},
    "questions": {
        "summary": "Several questions over a text, the three best answers of each",
        "value": {"question": ["What did the repair cost?", "How long did it take?"], "context": CONTEXT, "top": 3},
    },
    "list": {
        "summary": "Several questions, each with a text of its own",
        "value": [
            {"question": "What did the repair cost?", "context": CONTEXT},
            {"question": "Who wrote it?", "context": ["Plutarch wrote it.", "Nobody knows who read it."], "all": True},
        ],
    },
}
_ONE = {"$ref": "#/components/schemas/AskResult"}
RESULT: dict[str, Any] = {"anyOf": [_ONE, {"type": "array", "items": _ONE}]}


def errors(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The statuses of a route, beside those of all routes."""
    told = {
        401: "The token is missing or wrong.",
        403: "Another host, or a page of another site.",
        404: "There is no such thing.",
        408: "The body did not come in time.",
        413: "The request is too large.",
        415: "The body is not JSON.",
        422: "What is wrong with which field.",
        429: "Too many questions wait; come again after `Retry-After` seconds.",
        503: "Not now; come again after `Retry-After` seconds.",
    }
    return {status: {"model": Error, "description": told[status]} for status in (401, 403, *statuses)}


def document(app: FastAPI, token: bool) -> dict[str, Any]:
    """The OpenAPI document. The schema of a result is that of `quoth ask --json`."""
    schema = get_openapi(
        title=app.title,
        version=app.version,
        summary="Short answers in the words of your documents",
        routes=app.routes,
    )
    schema["components"]["schemas"].update(result_schemas())
    if token:
        schema["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        for path, methods in schema["paths"].items():
            if path.startswith("/v1/") or path == "/metrics":
                for operation in methods.values():
                    operation["security"] = [{"token": []}]
    return schema
