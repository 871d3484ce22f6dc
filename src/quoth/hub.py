"""The files of a model on this machine, by its folder, its hub id or the word `embedded`.

Only what is needed is downloaded, safetensors before `.bin`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from quoth.embedded import embedded_folder, is_embedded
from quoth.errors import QuothError
from quoth.files import read_json
from quoth.folders import TOKENIZER_FILES, recover

DESCRIPTIONS = ("quoth.json", "config.json")
DELTA = "delta.safetensors"  # only what was trained; quoth.json names the base that the rest comes from
ONNX = "model.onnx"  # what `quoth export` writes; a folder may have it alone, or beside its weights
ONNX_DATA = "model.onnx.data"  # its large tensors
WEIGHTS = (
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
    DELTA,
    ONNX,
)

Fetch = Callable[[str], Path | None]


@dataclass(frozen=True)
class ModelFiles:
    """A model's files on this machine: its description (quoth.json or config.json), weights and tokenizer.

    The weights of a delta folder are its delta alone, not those of its base; those of an ensemble are those of all
    its `members`, which a single model does not have.
    """

    source: str
    description: Path
    weights: tuple[Path, ...]
    tokenizer: tuple[Path, ...]
    members: tuple[ModelFiles, ...] = ()


def find_model(source: str | Path | None) -> ModelFiles:
    """Find a model's files in a folder, or by hub id in the cache or on the hub.

    None, or the word "embedded" where no folder has that name, is the reader that ships with Quoth.
    """
    place = str(embedded_folder() if is_embedded(source) else source)
    return _find(place, _fetch(place))


def find_description(source: str) -> Path:
    """Find a model's quoth.json or config.json, of a hub id too, without its weights."""
    return _description(source, _fetch(source))


def has_weights(source: str) -> bool:
    """Whether a model's weights are on this machine."""
    return any((Path(source) / name).is_file() for name in WEIGHTS) if Path(source).is_dir() else _complete(source)


def _fetch(place: str) -> Fetch:
    try:
        recover(Path(place))
        local = Path(place).is_dir()
    except OSError as error:  # a name that no folder can have, or one that may not be looked at
        raise QuothError(f"{place}: cannot be read ({error.strerror})") from None
    return _from_folder(Path(place)) if local else _from_hub(place)


def _description(source: str, fetch: Fetch) -> Path:
    found = next((path for name in DESCRIPTIONS if (path := fetch(name))), None)
    if found is None:
        raise QuothError(f"{source}: has neither quoth.json nor config.json, so it is not a model")
    return found


def _find(source: str, fetch: Fetch) -> ModelFiles:
    description = _description(source, fetch)
    tokenizer = tuple(path for name in TOKENIZER_FILES if (path := fetch(name)))
    members = _members(description, fetch)
    weights = tuple(path for member in members for path in member.weights) or _weights(source, fetch)
    return ModelFiles(source, description, weights, tokenizer, members)


def _members(description: Path, fetch: Fetch) -> tuple[ModelFiles, ...]:
    """The members of an ensemble, each a folder below the ensemble's own; of a single model none."""
    value = read_json(description) if description.name == "quoth.json" else None
    if not isinstance(value, dict) or "ensemble" not in value:
        return ()
    names = value["ensemble"].get("members") if isinstance(value["ensemble"], dict) else None
    if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
        raise QuothError(f"{description}: ensemble must be an object with how and members, a list of folders")
    for name in names:
        if not _inside(name):
            raise QuothError(f"{description}: member {name!r} does not lie inside the folder of the ensemble")

    def below(name: str) -> Fetch:
        return lambda file: fetch(f"{name}/{file}")

    found = tuple(_find(str(description.parent / name), below(name)) for name in names)
    for member in found:
        if member.members:
            raise QuothError(f"{member.source}: is an ensemble itself, which cannot be a member of another")
    return found


def _weights(source: str, fetch: Fetch) -> tuple[Path, ...]:
    for name in WEIGHTS:
        path = fetch(name)
        if path is None:
            continue
        if name == ONNX:
            return tuple(file for file in (path, fetch(ONNX_DATA)) if file)
        if not name.endswith(".index.json"):
            return (path,)
        shards = _shards(path)
        found = [(shard, fetch(shard)) for shard in shards]
        for shard, file in found:
            if file is None:
                raise QuothError(f"{source}: {shard} is missing, which {name} names")
        return tuple(file for _, file in found if file)
    raise QuothError(f"{source}: has no weights; looked for {', '.join(WEIGHTS)}")


def _shards(index: Path) -> list[str]:
    """The files that the index of a model in several files names, all of them beside it."""
    value = read_json(index)
    table = value.get("weight_map") if isinstance(value, dict) else None
    if not isinstance(table, dict) or not table or not all(isinstance(name, str) for name in table.values()):
        raise QuothError(f"{index}: weight_map must be an object that names the file of each tensor")
    names = sorted(set(table.values()))
    for name in names:
        if not _inside(name):
            raise QuothError(f"{index}: {name!r} does not lie inside the folder of the model")
    return names


def _inside(name: str) -> bool:
    """Whether a relative path stays inside the folder that it starts from, and leads to something other than it."""
    parts = PurePosixPath(name.replace("\\", "/")).parts
    return bool(parts) and not PurePosixPath(name).is_absolute() and ".." not in parts and ":" not in parts[0]


def _from_folder(folder: Path) -> Fetch:
    def fetch(name: str) -> Path | None:
        path = folder / name
        try:
            return path if path.is_file() else None
        except OSError:  # a name that no file can have, such as one of thousands of characters
            return None

    return fetch


def _from_hub(source: str) -> Fetch:
    from huggingface_hub import errors, hf_hub_download  # here, since it takes long to import

    if source.startswith((".", "/", "~")) or source.count("/") > 1 or source.endswith(".json"):
        raise QuothError(f"{source}: no such file or folder")

    try:
        alone = _complete(source)  # then the hub is not asked at all: no waiting where there is no network
    except errors.HFValidationError:
        raise QuothError(f"{source}: neither a folder nor a hub id") from None

    def fetch(name: str) -> Path | None:
        nonlocal alone
        cached = _cached(source, name)
        if cached or alone:
            return cached
        try:
            return Path(hf_hub_download(source, name))
        except errors.LocalEntryNotFoundError:
            if _cached(source, *DESCRIPTIONS):
                alone = True  # having waited for the hub once is enough
                return None
            raise QuothError(
                f"{source}: no such folder, and the hub cannot be reached or is switched off; "
                "give a folder, or download the model first"
            ) from None
        except errors.EntryNotFoundError:
            return None
        except errors.RepositoryNotFoundError:
            raise QuothError(f"{source}: no such folder, and no such model on the hub (or it is private)") from None
        except (errors.HfHubHTTPError, OSError, json.JSONDecodeError) as error:
            raise QuothError(f"{source}: {name} could not be fetched from the hub ({error})") from None

    return fetch


def _complete(source: str) -> bool:
    """Whether the cache holds all that a model needs: a description, weights and a tokenizer."""
    needed = (DESCRIPTIONS, WEIGHTS, ("tokenizer.json", "vocab.txt"))
    return all(_cached(source, *names) for names in needed)


def _cached(source: str, *names: str) -> Path | None:
    """The first of these files that the cache holds."""
    from huggingface_hub import try_to_load_from_cache  # here, since it takes long to import

    found = (try_to_load_from_cache(source, name) for name in names)
    return next((Path(path) for path in found if isinstance(path, str)), None)
