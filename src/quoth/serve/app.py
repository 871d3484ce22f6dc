"""The routes: docs/serve.md describes them, and `/openapi.json`."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Annotated, Any

from fastapi import Body, FastAPI, Path, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from starlette.exceptions import HTTPException

from quoth._version import __version__
from quoth.answer.find import READ
from quoth.answer.result import Form
from quoth.errors import QuothError
from quoth.serve.openapi import ASK, RESULT, document, errors
from quoth.serve.page_files import FIRST, page_files
from quoth.serve.problem import Problem
from quoth.serve.schemas import (
    AskBody,
    AskRequest,
    DocumentList,
    DocumentText,
    Health,
    PassageText,
    SentFile,
)
from quoth.serve.service import Question, Service, Texts, Ticket

LATE = 1.0  # seconds that an answer may come after its time, before it is given up
INNER = (
    "list[",
    "function-",
    "constrained-",
    "AskRequest",
)  # of the place of an error: which of several types was tried
CODES = {404: "not_found", 405: "method_not_allowed"}
DocumentId = Annotated[str, Path(min_length=1, max_length=100, examples=["d3f1c0a9b2e4d5f60718293a4"])]


def make_app(service: Service) -> FastAPI:
    """The routes of a server."""
    app = FastAPI(title="Quoth", version=__version__, docs_url=None, redoc_url=None, openapi_url=None)
    app.router.redirect_slashes = False
    _add_questions(app, service)
    _add_documents(app, service)
    _add_operation(app, service)
    _add_page(app)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _refused)
    schema = document(app, bool(service.settings.token))

    @app.get("/openapi.json", include_in_schema=False)
    async def openapi() -> Response:
        return json_response(schema)

    return app


def _add_questions(app: FastAPI, service: Service) -> None:
    @app.post(
        "/v1/ask",
        summary="Ask questions",
        tags=["questions"],
        openapi_extra={"requestBody": {"content": {"application/json": {"examples": ASK}}}},
        responses={
            200: {
                "description": "The result, or a list of results in the order of the questions.",
                "content": {"application/json": {"schema": RESULT}},
            },
            **errors(404, 408, 413, 415, 422, 429, 503),
        },
    )
    async def ask(request: Request, body: Annotated[AskBody, Body()]) -> Response:
        """Answer one question or several, over given texts, one document, or the whole folder."""
        many = isinstance(body, list) or isinstance(body.question, list)
        questions = [one for part in (body if isinstance(body, list) else [body]) for one in _questions(part)]
        most = service.settings.max_questions
        if len(questions) > most:
            raise Problem(413, "too_large", f"{len(questions)} questions; at most {most} are taken at a time")
        ticket = Ticket(time.monotonic() + service.settings.timeout)
        found = await _results(request, service.ask(questions, ticket), ticket)
        return json_response(found if many else found[0])


def _questions(part: AskRequest) -> list[Question]:
    kind = "all" if part.all else "sentences" if part.sentences else "top"
    form = Form(kind, part.top, part.min_score, READ)  # type: ignore[arg-type]
    context: Texts | str | None = part.document
    if part.context is not None:
        context = Texts([part.context] if isinstance(part.context, str) else part.context)
    asked = [part.question] if isinstance(part.question, str) else part.question
    return [Question(one, form, context) for one in asked]


async def _results(request: Request, asked: Sequence[Future[dict[str, Any]]], ticket: Ticket) -> list[dict[str, Any]]:
    """The results in order; given up as soon as the client is gone, one fails, or it is too late."""
    waited = [asyncio.wrap_future(one) for one in asked]
    gone = asyncio.ensure_future(_gone(request))
    try:
        together = asyncio.gather(*waited)
        late = ticket.end + LATE - time.monotonic()
        both: set[asyncio.Future[Any]] = {together, gone}
        await asyncio.wait(both, timeout=late, return_when=asyncio.FIRST_COMPLETED)
        if together.done():
            return together.result()
        together.cancel()
        raise Problem(503, "timeout", "no answer in time", retry=5)
    except QuothError as error:
        raise Problem(422, "invalid", str(error)) from None
    finally:
        ticket.left.set()
        gone.cancel()
        for one in asked:  # those that have not begun are counted as done by the service
            one.cancel()


async def _gone(request: Request) -> None:
    """Wait until the client is gone."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _add_documents(app: FastAPI, service: Service) -> None:
    library = service.library

    async def work(call: Callable[..., Any], *given: Any) -> Any:
        if not service.ready:
            raise Problem(503, "starting", "the server is starting; ask again in a moment", retry=2)
        try:
            return await asyncio.get_running_loop().run_in_executor(service.pool, call, *given)
        except QuothError as error:
            raise Problem(503, "unavailable", str(error), retry=2) from None

    @app.get(
        "/v1/documents",
        summary="List documents",
        tags=["documents"],
        response_model=DocumentList,
        responses=errors(422, 503),
    )
    async def documents(
        search: Annotated[str, Query(max_length=200, description="Only names that have this.")] = "",
        limit: Annotated[int, Query(ge=1, le=200)] = 50,
        after: Annotated[str | None, Query(max_length=5000, description="`next` of the response before.")] = None,
    ) -> Response:
        """The documents of the folder, by name."""
        return json_response(await work(library.listed, search, limit, after))

    @app.get(
        "/v1/documents/{id}",
        summary="Read a document",
        tags=["documents"],
        response_model=DocumentText,
        responses=errors(404, 422, 503),
    )
    async def one_document(id: DocumentId) -> Response:
        """The extracted text of a document, with its headings and where its pages begin."""
        return json_response(await work(library.text, id))

    @app.get(
        "/v1/documents/{id}/pages/{page}.png",
        summary="See a page",
        tags=["documents"],
        response_class=Response,
        responses={200: {"description": "The page.", "content": {"image/png": {}}}, **errors(404, 422, 503)},
    )
    async def page(
        id: DocumentId,
        page: Annotated[int, Path(ge=1, le=20_000, examples=[1])],
        width: Annotated[int, Query(ge=50, le=2000, description="In pixels.")] = 1000,
    ) -> Response:
        """A page of a PDF, as an image."""
        return Response(await work(library.page, id, page, width), media_type="image/png")

    @app.get(
        "/v1/passages/{id}",
        summary="Read a passage",
        tags=["documents"],
        response_model=PassageText,
        responses=errors(404, 422, 503),
    )
    async def passage(
        id: Annotated[str, Path(min_length=1, max_length=200, examples=["d3f1c0a9b2e4d5f60718293a4:0-400"])],
    ) -> Response:
        """A part of a document. Its id is `DOCUMENT:START-END`, in characters of the text."""
        return json_response(await work(library.passage, id))

    @app.post(
        "/v1/files",
        summary="Send a file",
        tags=["documents"],
        status_code=201,
        response_model=SentFile,
        openapi_extra={
            "requestBody": {
                "required": True,
                "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
            }
        },
        responses=errors(408, 413, 422, 429, 503),
    )
    async def files(
        request: Request,
        name: Annotated[str, Query(min_length=1, max_length=500, description="Of the file.", examples=["a.pdf"])],
    ) -> Response:
        """Read a file, and keep it in memory for a while. Its id is `document` of a question."""
        return json_response(await work(library.send, name, await request.body()), status=201)


def _add_operation(app: FastAPI, service: Service) -> None:
    @app.get(
        "/health",
        summary="Whether the server runs",
        tags=["operation"],
        response_model=Health,
        responses=errors(),
    )
    async def health() -> Response:
        """The process runs. It may still be loading the model."""
        return json_response({"status": "ok", "version": __version__})

    @app.get(
        "/ready",
        summary="Whether questions are answered",
        tags=["operation"],
        response_model=Health,
        responses=errors(503),
    )
    async def ready() -> Response:
        """The model is loaded, the folder is indexed, and the server is not stopping."""
        if not service.ready or service.leaving:
            code = "stopping" if service.leaving else "starting"
            raise Problem(503, code, f"the server is {code}", retry=2)
        return json_response({"status": "ok", "version": __version__})

    @app.get(
        "/metrics",
        summary="Counters for Prometheus",
        tags=["operation"],
        response_class=Response,
        responses={200: {"description": "In Prometheus' format.", "content": {"text/plain": {}}}, **errors()},
    )
    async def metrics() -> Response:
        """Requests, questions, batches, worker processes, documents."""
        return Response(service.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")


def _add_page(app: FastAPI) -> None:
    kept = page_files()

    @app.get("/", include_in_schema=False)
    async def first() -> Response:
        return file(FIRST)

    @app.get("/page/{name}", include_in_schema=False)
    async def file_of_page(name: str) -> Response:
        return file(name)

    def file(name: str) -> Response:
        if name not in kept:
            raise Problem(404, "not_found", "there is no such file")
        return Response(kept[name].data, media_type=kept[name].kind)


def json_response(value: Any, status: int = 200) -> Response:
    """JSON in ASCII: half of a surrogate pair in a document is escaped, as all that is not ASCII."""
    return Response(json.dumps(value, separators=(",", ":")), status, media_type="application/json")


async def _invalid(request: Request, error: Exception) -> Response:
    """What does not fit the schema: the place and what is wrong there, of the error that lies deepest."""
    assert isinstance(error, RequestValidationError)
    if request.url.path == "/v1/ask" and not _is_json(request):
        return await _refused(request, Problem(415, "not_json", "send the body as application/json"))
    worst = max(error.errors(), key=lambda one: len(one["loc"]))
    if worst["type"] == "json_invalid":
        return await _refused(request, Problem(422, "invalid", "the body is not valid JSON"))
    place = ".".join(str(part) for part in worst["loc"] if not str(part).startswith(INNER))
    return await _refused(request, Problem(422, "invalid", f"{place}: {worst['msg']}"))


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == 400:  # FastAPI's word for JSON that is too deeply nested, or has a number of 5,000 digits
        error = Problem(422, "invalid", "the body is not JSON that can be read")
    if not isinstance(error, Problem):
        code = CODES.get(error.status_code, "bad_request")
        headers = error.headers
        error = Problem(error.status_code, code, str(error.detail).lower())
        error.headers.update(headers or {})
    return Response(error.body(), error.status_code, error.headers, "application/json")


def _is_json(request: Request) -> bool:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower() == "application/json"
