"""Members of zip archives (.docx, .epub), with limits: a small archive may hold more than the memory does."""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Callable
from xml.parsers import expat

from quoth.search.failure import NoTextError

MEMBERS = 20_000
MEMBER = 64 << 20  # bytes of a member, unpacked
TOTAL = 256 << 20  # bytes of all that are read, unpacked
RATIO = 200  # how many times as large as packed; XML is seldom above 30
SMALL = 1 << 20  # what unpacks to less may have any ratio


class Archive:
    """A zip archive whose members are read one by one, within limits. Archives inside it are never opened."""

    def __init__(self, data: bytes, name: str) -> None:
        self.name = name
        self.read_so_far = 0
        try:
            self.file = zipfile.ZipFile(io.BytesIO(data))
        except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError, OverflowError) as error:
            raise NoTextError(f"{name}: is a damaged archive ({error})") from None
        if len(self.file.infolist()) > MEMBERS:
            raise NoTextError(f"{name}: holds more than {MEMBERS:,} files")

    def read(self, member: str) -> bytes | None:
        """The bytes of a member; None if there is none of that name."""
        try:
            info = self.file.getinfo(member)
        except KeyError:
            return None
        if info.flag_bits & 1:
            raise NoTextError(f"{self.name}: is encrypted; remove its password first")
        if info.file_size > SMALL and info.file_size > RATIO * max(1, info.compress_size):
            raise NoTextError(f"{self.name}: {member} inflates more than {RATIO} times; it is taken for a zip bomb")
        most = min(MEMBER, TOTAL - self.read_so_far)
        try:
            with self.file.open(info) as file:
                data = file.read(most + 1)
        except (
            zipfile.BadZipFile,
            zlib.error,
            OSError,
            EOFError,
            NotImplementedError,
            ValueError,
            RuntimeError,
        ) as error:
            raise NoTextError(f"{self.name}: {member} is damaged ({error})") from None
        if len(data) > most:
            raise NoTextError(f"{self.name}: {member} unpacks to more than {most:,} bytes")
        self.read_so_far += len(data)
        return data


def parse_xml(
    data: bytes,
    label: str,
    start: Callable[[str, dict[str, str]], None],
    end: Callable[[str], None],
    text: Callable[[str, int], None] | None = None,
) -> None:
    """Call `start`, `end` and `text` for the elements and characters of XML. `text` is told the byte where they begin.

    Names are without their namespace. Document types are refused: entities that inflate are declared in them.
    """

    def refuse(*_: object) -> None:
        raise NoTextError(f"{label}: declares a document type, which Quoth does not read")

    parser = expat.ParserCreate(namespace_separator="\n")
    parser.buffer_text = False
    parser.StartElementHandler = lambda name, attributes: start(
        name.rsplit("\n", 1)[-1], {key.rsplit("\n", 1)[-1]: value for key, value in attributes.items()}
    )
    parser.EndElementHandler = lambda name: end(name.rsplit("\n", 1)[-1])
    if text is not None:
        parser.CharacterDataHandler = lambda characters: text(characters, parser.CurrentByteIndex)
    parser.EntityDeclHandler = refuse
    parser.StartDoctypeDeclHandler = refuse
    try:
        parser.Parse(data, True)
    except expat.ExpatError as error:
        raise NoTextError(f"{label}: is damaged ({error})") from None
    except LookupError:
        raise NoTextError(f"{label}: has an encoding that is not known") from None
