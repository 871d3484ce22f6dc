"""`quoth serve`: answers over HTTP, and a page to ask on."""

from __future__ import annotations

import ipaddress
import math
import os
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from quoth.cli.common import Device, Model, Precision
from quoth.cli.screen import say
from quoth.data.source import read_source
from quoth.errors import QuothError

TOKEN = "QUOTH_TOKEN"
DAY = 86_400.0  # seconds
LEAST = 16  # characters of a token: one that is shorter can be guessed


def serve(
    folder: Annotated[
        Path | None, typer.Argument(metavar="[FOLDER]", help="The documents to answer from; left out, none.")
    ] = None,
    model: Model = None,
    host: Annotated[str, typer.Option(help="Listen here; 0.0.0.0 is everywhere.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Listen at this port; 0 takes a free one.", min=0, max=65535)] = 8000,
    token_file: Annotated[
        Path | None,
        typer.Option(help=f"A file with the token that requests must bring; or the environment variable {TOKEN}."),
    ] = None,
    no_auth: Annotated[
        bool, typer.Option("--no-auth", help="Answer everybody, beyond this machine too, without a token.")
    ] = False,
    index: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Keep the index of the folder here, not in the cache folder.")
    ] = None,
    refresh: Annotated[
        float, typer.Option(help="Look for changed documents every so many seconds.", min=0.1, max=DAY)
    ] = 10.0,
    queue: Annotated[int, typer.Option(help="Accept at most so many questions at a time.", min=1, max=100_000)] = 256,
    timeout: Annotated[float, typer.Option(help="Give a question at most so many seconds.", min=0.1, max=DAY)] = 30.0,
    max_body: Annotated[int, typer.Option(help="Take at most so many bytes of a request.", min=1000)] = 4_000_000,
    batch_tokens: Annotated[
        int | None,
        typer.Option(help="Read at most so many tokens of all requests together; by default 1024 a core.", min=512),
    ] = None,
    device: Device = None,
    precision: Precision = None,
) -> None:
    """Answer questions over HTTP, from the documents of a folder or texts in the requests; / is a page to ask on."""
    if folder is not None and not folder.is_dir():
        why = "is a file; serve a folder" if folder.exists() else "no such folder"
        raise QuothError(f"{folder}: {why}")
    if index is not None and folder is None:
        raise QuothError(f"{index}: an index is of a folder; name one, or leave out --index")
    for name, seconds in (("--refresh", refresh), ("--timeout", timeout)):
        if math.isnan(seconds):
            raise QuothError(f"{name} {seconds}: give seconds")
    token = token_of(token_file, host, no_auth)
    local = is_loopback(host)
    parts = _parts()
    settings = parts.Settings(
        token=token,
        hosts=parts.LOOPBACK if local and not token else (),
        refresh=refresh,
        queue=queue,
        timeout=timeout,
        max_body=max_body,
        batch_tokens=batch_tokens,
    )
    settings = replace(settings, max_questions=min(settings.max_questions, queue))
    service = parts.Service(settings, parts.Model(model, device, precision), folder, index)
    parts.log_to_stderr()
    sock = parts.bind(host, port)
    shown = f"[{host}]" if ":" in host else host
    address = f"http://{shown}:{sock.getsockname()[1]}"
    say(f"quoth: loading; the page will be at {address}")
    parts.serve(service, sock, lambda: say(f"quoth: ready at {address}; Ctrl-C ends"))


def token_of(file: Path | None, host: str, no_auth: bool) -> str:
    """The token that requests must bring, "" for none; beyond this machine there must be one, or --no-auth."""
    token = _read_token(file)
    if token and no_auth:
        raise QuothError("--no-auth and a token: choose one")
    if not token and not no_auth and not is_loopback(host):
        raise QuothError(
            f"--host {host}: others could ask; set a token with {TOKEN}=… or --token-file, or say --no-auth"
        )
    return token


def _read_token(file: Path | None) -> str:
    """The token of a file or of the environment; "" if there is none."""
    token = read_source(file).strip() if file is not None else os.environ.get(TOKEN, "").strip()
    name = str(file) if file is not None else TOKEN
    if file is None and not token:
        return ""
    if len(token) < LEAST or not token.isascii() or not token.isprintable() or " " in token:
        raise QuothError(f"{name}: a token has at least {LEAST} letters, digits or signs, and no spaces")
    return token


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a host."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _parts() -> Any:
    """What the server is made of; FastAPI and uvicorn are optional."""
    try:
        from quoth.serve import parts
    except ImportError as error:
        raise QuothError(f"quoth serve needs {error.name}; pip install 'quoth[serve]'") from None
    return parts
