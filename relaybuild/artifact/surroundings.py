"""The system's headers and libraries that a library was made with, as part of its key; compiles nothing.

Which files those are is known when the library is made. They are noted under everything else that is in the key, and
under the place in the project for the next library that comes up there; a key names the files that are noted.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping, Sequence

from relaybuild.artifact import facts
from relaybuild.build.cache.action import Action, ActionBuilder
from relaybuild.build.cache.memo import FileState, Inputs
from relaybuild.build.cache.store import Cache
from relaybuild.digest import Digest, Hasher

SearchPath = Sequence[str]
"""Folders in the order in which a tool looks for files in them."""


def noted(cache: Cache, base: Action, slot: str) -> list[str]:
    """The files that a library with this key, or else the last one of its place, was made with."""
    for of, travels in ((_name_of(base), True), (_name_of_place(slot), False)):
        found = facts.recall(cache, of, travels=travels)
        if isinstance(found, list) and all(isinstance(path, str) and "\0" not in path for path in found):
            return found
    return []


def note(cache: Cache, base: Action, slot: str, files: Sequence[str]) -> None:
    """Write down the files that a library was made with."""
    facts.remember(cache, _name_of(base), list(files), travels=True)
    facts.remember(cache, _name_of_place(slot), list(files))


def within(paths: Iterable[str], searched: Iterable[SearchPath]) -> list[str]:
    """Those of some files that lie where tools look for files, sorted."""
    folders = tuple(f"{os.path.normpath(folder)}{os.sep}" for folders in searched for folder in folders)
    names = {os.path.normpath(path) for path in paths}
    return sorted(name for name in names if name.startswith(folders))


def add_noted(builder: ActionBuilder, files: Sequence[str], searched: Sequence[SearchPath], cache: Cache) -> None:
    """Make files part of a key by content, and so files that would be taken in the stead of one of them.

    Files that are gone are left out, which is another key, too. While none has changed, no file is read, and one record
    says what their digests are.
    """
    states = {path: state for path in files if (state := _state(path)) is not None}
    text = "".join([f"{path}\0{a} {b} {c} {d} {e}\0" for path, (a, b, c, d, e) in states.items()])
    of = Hasher("surroundings-state.1").field("files", text).digest()
    known = facts.recall(cache, of)
    if known is None:
        inputs = cache.inputs()
        digests = list(map(inputs.digest, states))
        now = time.time()
        if not any(state.is_racy(now) for state in states.values()) and not inputs.changed():
            facts.remember(cache, of, [[digest.hex, digest.size] for digest in digests])
    else:
        digests = [Digest(text, size) for text, size in known]
    _add(builder, dict(zip(states, digests)), searched)


def add_read(builder: ActionBuilder, files: Sequence[str], searched: Sequence[SearchPath], inputs: Inputs) -> None:
    """The same for files that were read just now: `inputs` will tell if they are changed. Raises OSError."""
    _add(builder, {path: inputs.digest(path) for path in files}, searched)


def _add(builder: ActionBuilder, digests: Mapping[str, Digest], searched: Sequence[SearchPath]) -> None:
    present = [[f"{os.path.normpath(each)}{os.sep}" for each in folders if os.path.isdir(each)] for folders in searched]
    shadows: set[str] = set()
    for path, digest in digests.items():
        builder.input(f"system{path}", digest)
        for folders in present:
            shadows.update(_shadows(path, folders))
    builder.option("shadows", tuple(sorted(shadows)))


def _shadows(path: str, folders: Sequence[str]) -> Iterable[str]:
    """Files of the same name below folders that are searched before the one that a file is in."""
    for number, folder in enumerate(folders):
        if path.startswith(folder):
            name = path[len(folder) :]
            return [each + name for each in folders[:number] if os.path.exists(each + name)]
    return ()


def _state(path: str) -> FileState | None:
    try:
        return FileState.of(path)
    except OSError:
        return None


def _name_of(base: Action) -> Digest:
    return Hasher("surroundings.1").field("action", base.encode()).digest()


def _name_of_place(slot: str) -> Digest:
    return Hasher("surroundings-of-place.1").field("slot", slot).digest()
