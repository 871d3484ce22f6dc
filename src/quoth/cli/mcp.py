"""`quoth mcp`: the documents of a folder as tools for agents."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from quoth.answer import Reader
from quoth.cli.common import Device, Model, Precision
from quoth.cli.screen import say
from quoth.cli.serve import TOKEN, is_loopback, token_of
from quoth.errors import QuothError


def mcp(
    folder: Annotated[str, typer.Argument(metavar="[FOLDER]", help="The documents to serve.")] = ".",
    model: Model = None,
    http: Annotated[
        bool, typer.Option("--http", help="Serve over HTTP, at /mcp; by default over standard input and output.")
    ] = False,
    host: Annotated[str, typer.Option(help="With --http: listen here; 0.0.0.0 is everywhere.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(help="With --http: listen at this port; 0 takes a free one.", min=0, max=65535)
    ] = 8001,
    token_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help=f"With --http: the token that requests must bring; or the environment variable {TOKEN}.",
        ),
    ] = None,
    no_auth: Annotated[
        bool, typer.Option("--no-auth", help="With --http: answer everybody, beyond this machine too.")
    ] = False,
    index: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Keep the index of the folder here, not in the cache folder.")
    ] = None,
    device: Device = None,
    precision: Precision = None,
) -> None:
    """Serve the documents of a folder to agents: the Model Context Protocol, over standard input and output or HTTP.

    Tools: ask, find_passages, verify_quote. Resources: the documents.
    """
    token = _token(http, host, token_file, no_auth)
    parts = _parts()
    documents = parts.Folder(folder, index)
    server = parts.make_server(parts.Backend(documents, lambda: Reader.load(model, device=device, precision=precision)))
    if not http:
        parts.run_stdio(server)
        return
    sock = parts.bind(host, port)
    shown = f"[{host}]" if ":" in host else host
    address = f"http://{shown}:{sock.getsockname()[1]}/mcp"
    say(f"quoth: ready at {address}{'' if token else ', without a token'}; Ctrl-C ends")
    hosts = parts.LOOPBACK if is_loopback(host) and not token else ()
    parts.run_http(parts.make_app(server, token, hosts), sock)


def _token(http: bool, host: str, file: Path | None, no_auth: bool) -> str:
    """The token that is asked for, "" for none; beyond this machine there must be one, or --no-auth."""
    if not http:
        if file is not None or no_auth:
            raise QuothError("--token-file and --no-auth are for --http")
        return ""
    return token_of(file, host, no_auth)


def _parts() -> Any:
    """What the server is made of; the package mcp is optional."""
    try:
        from quoth.serve import mcp_parts
    except ImportError as error:
        raise QuothError(f"quoth mcp needs {error.name}; pip install 'quoth[mcp]'") from None
    return mcp_parts
