"""What identifies a model by content: the digests of its files, or of the object that it is; interprets no model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from relaybuild.artifact import facts
from relaybuild.build.cache.memo import Inputs
from relaybuild.build.cache.store import Cache
from relaybuild.digest import Digest, Hasher, digest_bytes

if TYPE_CHECKING:
    from relaybuild.ir.module import IRModule

RELAY_SUFFIX = ".relay"
"""What the name of a file ends in that is a program in the text format."""

# The key of the entry of a tensor that names the file which its data is in.
_LOCATION = b"location"


class NoIdentity(Exception):
    """A model cannot be told from others, as the message says; it is compiled without being looked up."""


def model_inputs(model: object, cache: Cache, inputs: Inputs) -> dict[str, Digest]:
    """Digests of all that a model consists of, by a name that says nothing of where it lies.

    Raises NoIdentity, also for files that cannot be read: who compiles them says what is wrong.
    """
    if isinstance(model, (str, Path)):
        return _file_inputs(Path(model), cache, inputs)
    return {"module": _object_digest(model)}


def _file_inputs(path: Path, cache: Cache, inputs: Inputs) -> dict[str, Digest]:
    try:
        digest = inputs.digest(path)
        if path.suffix == RELAY_SUFFIX:
            # equal bytes under another kind of name have another meaning
            return {"model": Hasher("program.1").field("file", digest).digest()}
        found = {"model": digest}
        for name in _external_files(path, digest, cache):
            found[f"data/{digest_bytes(name.encode()).short()}"] = inputs.digest(path.parent / name)
    except (OSError, ValueError) as error:
        raise NoIdentity(f"the model cannot be read: {error}") from None
    return found


def _external_files(path: Path, digest: Digest, cache: Cache) -> Sequence[str]:
    """The files, relative to a model's folder, in which its tensors have their data; raises OSError, NoIdentity."""
    of = Hasher("external-data.1").field("model", digest).digest()
    known = facts.recall(cache, of)
    if known is None:
        known = sorted(set(_locations(path))) if _mentions_files(path) else []
        facts.remember(cache, of, known)
    return [str(name) for name in known]


def _mentions_files(path: Path) -> bool:
    """Whether a model's bytes, but for its large tensors', have the word; raises OSError."""
    from relaybuild.frontend.onnx.mapped import map_file
    from relaybuild.frontend.onnx.wire import WireError, strip_model

    try:
        return _LOCATION in strip_model(map_file(path)).message
    except WireError:
        # no model; who compiles it says what is wrong
        return False


def _locations(path: Path) -> Iterator[str]:
    from relaybuild.frontend.onnx.external import external_files

    try:
        yield from external_files(path)
    except Exception as error:
        raise NoIdentity(f"the files that the model names are not known: {error}") from None


def _object_digest(model: Any) -> Digest:
    """The digest of a ModelProto or an IRModule."""
    if type(model).__module__.partition(".")[0] == "onnx":
        data: bytes = model.SerializeToString(deterministic=True)
        return digest_bytes(data)
    return _module_digest(model)


def _module_digest(module: IRModule) -> Digest:
    """The digest of a module's whole text, weights by content, spans included: they stand in messages and maps."""
    from relaybuild.errors import RelayBuildError
    from relaybuild.ir.module import IRModule
    from relaybuild.ir.printer import print_module

    if type(module) is not IRModule:
        raise NoIdentity(f"a model of type '{type(module).__name__}' has no text that says all of it")
    try:
        text = print_module(module, weights="digest", show_spans=True)
    except RelayBuildError as error:
        raise NoIdentity(f"the module has no text: {error}") from None
    return Hasher("module-text.1").field("text", text).digest()
