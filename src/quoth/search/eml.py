"""E-mail (.eml): subject, sender, recipients, date, then the body: plain text if there is any, else HTML.

A place counts the characters of a part: "headers", decoded, one header a line; or "body", the decoded text or HTML.
Attachments are named in a note, and not read.
"""

from __future__ import annotations

import email
from contextlib import suppress
from email.errors import MessageError
from email.header import decode_header, make_header
from email.message import Message

import numpy as np

from quoth.search.builder import Builder
from quoth.search.document import Document, Edit, Runs, edited, line_starts
from quoth.search.failure import NoTextError
from quoth.search.html import html_text
from quoth.search.text import join_edits

HEADERS = ("Subject", "From", "To", "Date")
PARTS = 1000


def read_eml(data: bytes, name: str) -> Document:
    """A message."""
    try:
        message = email.message_from_bytes(data)
    except (MessageError, ValueError, LookupError) as error:
        raise NoTextError(f"{name}: is a damaged message ({error})") from None
    if not any(message[header] for header in ("From", "Date", "Subject", "Received", "Message-ID")):
        raise NoTextError(f"{name}: is not an e-mail message (it has no header)")
    head = "\n".join(f"{header}: {value}" for header in HEADERS if (value := _header(message, header)))
    body, is_html, attached = _body(message, name)
    title = _header(message, "Subject")
    source = f"{head}\n\n"
    lines = np.concatenate([line_starts(source), line_starts(body) + len(source)]).astype(np.int32)
    parts = (("headers", 0), ("body", len(source)))
    notes = tuple(f"{name}: attachment {one}" for one in attached)
    text, runs = _html(source, body) if is_html else _plain(source, body)
    return Document(name, text, title, (), runs, lines, parts, notes=notes)


def _html(head: str, body: str) -> tuple[str, Runs]:
    found = Builder()
    found.put(head.rstrip(), 0, len(head.rstrip()), exact=True)
    found.gap("\n\n")
    found.begin = len(head)
    html_text(body, found)
    return found.text, found.runs.made()


def _plain(head: str, body: str) -> tuple[str, Runs | None]:
    source = head + body
    edits: list[Edit] = list(join_edits(source, len(head), len(source)))
    return edited(source, edits)


def _header(message: Message, name: str) -> str:
    """The words of a header; as they stand if they cannot be decoded."""
    raw = str(message.get(name, ""))
    with suppress(LookupError, ValueError, MessageError):
        raw = str(make_header(decode_header(raw)))
    return " ".join(raw.split())


def _body(message: Message, name: str) -> tuple[str, bool, list[str]]:
    """The text of a message, whether it is HTML, and the names of the attachments."""
    plain: list[str] = []
    html: list[str] = []
    attached: list[str] = []
    for number, part in enumerate(message.walk()):
        if number > PARTS:
            raise NoTextError(f"{name}: has more than {PARTS:,} parts")
        if part.is_multipart():
            continue
        kind = part.get_content_type()
        if part.get_content_disposition() == "attachment" or not kind.startswith("text/"):
            attached.append(_attachment(part, kind))
        elif kind == "text/plain":
            plain.append(_decoded(part))
        elif kind == "text/html":
            html.append(_decoded(part))
    text = "\n\n".join(one for one in plain if one.strip())
    return (text, False, attached) if text or not html else ("\n".join(html), True, attached)


def _attachment(part: Message, kind: str) -> str:
    try:
        return " ".join((part.get_filename() or kind).split())
    except (LookupError, ValueError, TypeError):
        return kind


def _decoded(part: Message) -> str:
    data = part.get_payload(decode=True)
    if not isinstance(data, bytes):
        return ""
    try:
        return data.decode(part.get_content_charset() or "utf-8", "replace").replace("\0", "")
    except (LookupError, ValueError):
        return data.decode("utf-8", "replace").replace("\0", "")
