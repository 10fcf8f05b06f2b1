"""Linked libraries in the cache: finds them by objects, weights, flags and what the linker reads; links nothing."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from pathlib import Path

from relaybuild.build.cache.action import Action, ActionBuilder, is_hex_digest
from relaybuild.build.cache.hit import DamagedResult, Hit
from relaybuild.build.cache.journal import Executed, Storing
from relaybuild.build.cache.memo import Inputs
from relaybuild.build.cache.outcome import Parted
from relaybuild.build.cache.store import Cache
from relaybuild.build.elf_room import LAYOUT
from relaybuild.build.files import writing
from relaybuild.build.flags import objection_to_flags
from relaybuild.build.forms import Form
from relaybuild.build.library_spec import Compilers
from relaybuild.build.notes import Notes
from relaybuild.build.relocatable import join_words
from relaybuild.build.variables import invalidating
from relaybuild.build.weights import MAX_WEIGHT_BYTES, WeightBlob, can_write_ahead
from relaybuild.build.workspace import LINK, Workspace
from relaybuild.dataclass import dataclass
from relaybuild.digest import Digest, Hasher

OUTPUT = "library"
"""The name of the one output, and of the action."""

_PLACE = "weights-place"
"""The kind of the notes that say where in a library weights stand."""

_STARTUP_FILES = ("crti.o", "crtbeginS.o", "crtendS.o", "crtn.o", "libgcc.a", "libgcc_eh.a")
_STARTUP_LIBRARIES = ("c",)
_CXX_LIBRARIES = ("stdc++", "m")
_PLACELESS = (".a", ".o")
"""Files of which the linker records no path."""

_MAX_SCRIPT_BYTES = 64 << 10
_SCRIPT_WORD = re.compile(r"[^\s(),]+")
_MAGICS = (b"\x7fELF", b"!<arch>\n", b"!<thin>\n")


@dataclass
class LinkLayer:
    """The library of one build in a cache. `inputs` are the files read by this run."""

    cache: Cache
    workspace: Workspace
    inputs: Inputs
    environ: Mapping[str, str]
    _asked: list[Action] = field(default_factory=list)

    def fetch(self, objects: Mapping[str, Digest], output: Path) -> bool:
        """Put the library of these objects, by the units' names in order, at `output`; whether it was in the cache.

        The same is not asked twice. Raises UserError where the file cannot be written.
        """
        if objection := self._objection():
            self.cache.bypass(LINK, OUTPUT, objection, slot=self._slot)
            return False
        action = self._action(objects)
        if action in self._asked:
            return False
        self._asked.append(action)
        found = self.cache.lookup(action, slot=self._slot)
        if not isinstance(found, Hit):
            return False
        try:
            with writing(output):
                found.place({OUTPUT: output}, self.inputs)
        except DamagedResult:
            return False
        return True

    def keep(self, objects: Mapping[str, Digest], seconds: float, cuts: tuple[int, ...] = ()) -> None:
        """Store the library that was linked, in parts that begin at `cuts`; what it was linked with must not have
        changed meanwhile. Raises OSError where the library cannot be read.
        """
        if objection := self._objection():
            event = Executed(LINK, OUTPUT, self._slot, "", seconds, Storing.BYPASSED, objection)
            self.cache.journal.executed.append(event)
            return
        contents = {OUTPUT: Parted(self.workspace.library, cuts)}
        self._note_place()
        self.cache.store(self._action(objects), contents, slot=self._slot, seconds=seconds, inputs=self.inputs)

    def expected_place(self) -> int | None:
        """Where in the library the weights will probably stand: where they did when one of its name was linked."""
        weights = self.workspace.spec.weights
        if weights is None or not can_write_ahead(weights, self.workspace.weights):
            return None
        found = self._place_note
        return int(found) if found.isdigit() and int(found) < MAX_WEIGHT_BYTES else None

    @property
    def _place_note(self) -> bytes:
        return Notes(self.cache).read(_PLACE, self._place_name) or b""

    @property
    def _place_name(self) -> str:
        return Hasher("weights-place.1").field("slot", self._slot).digest().hex

    def _note_place(self) -> None:
        weights = self.workspace.spec.weights
        if weights is not None and can_write_ahead(weights, self.workspace.weights):
            place = self.workspace.library.stat().st_size - weights.size
            Notes(self.cache).write(_PLACE, self._place_name, str(place).encode())

    @property
    def _slot(self) -> str:
        return self.workspace.spec.name

    def _objection(self) -> str:
        compilers, spec = self.workspace.compilers, self.workspace.spec
        if objection := compilers.c.objection or (compilers.cxx.objection if compilers.cxx is not None else ""):
            return objection
        if spec.form.is_relocatable:
            return objection_to_flags(compilers.c.compiler_command[1:])
        return objection_to_flags((*compilers.link_command[1:], *spec.link_flags, *spec.link_files))

    def _action(self, objects: Mapping[str, Digest]) -> Action:
        spec, compilers = self.workspace.spec, self.workspace.compilers
        builder = ActionBuilder(LINK, OUTPUT).output(OUTPUT)
        for name, digest in objects.items():
            builder.input(f"objects/{name}", digest)
        builder.option("objects", tuple(objects))
        builder.input("toolchain/cc", compilers.c.digest)
        if compilers.cxx is not None:
            builder.input("toolchain/cxx", compilers.cxx.digest)
        if spec.weights is not None:
            builder.input("weights", _weights_digest(spec.weights))
            builder.option("weights", "assembled" if self.workspace.weights.sources else LAYOUT)
        builder.option("form", spec.form.value).option("public", spec.public)
        if compilers.objcopy is not None:
            return self._joining_action(builder, compilers.objcopy)
        builder.option("command", (*compilers.link_command[1:], *compilers.c.ldflags))
        libraries = _Libraries(self.workspace.directory, _library_folders(self.workspace, self.environ), self.inputs)
        builder.option("flags", libraries.take("flags", spec.link_flags))
        builder.option("files", libraries.take("files", spec.link_files))
        builder.option("libraries", spec.link_libs)
        libraries.take("libraries", [f"-l{name}" for name in (*spec.link_libs, *_implied(compilers))])
        for name in _STARTUP_FILES:
            libraries.take_startup_file(name)
        for name, digest in libraries.digests.items():
            builder.input(name, digest)
        for name, value in invalidating(self.environ).items():
            builder.environment(name, value)
        return builder.build()

    def _joining_action(self, builder: ActionBuilder, objcopy: Path) -> Action:
        """The action that makes one object, which no file of the system has a part in."""
        spec, compilers = self.workspace.spec, self.workspace.compilers
        builder.option("command", join_words(compilers.c, compilers.cxx is not None)[1:])
        if spec.form is Form.STATIC:
            builder.option("member", spec.name)
        builder.input("toolchain/objcopy", self.inputs.digest(objcopy))
        for name, value in invalidating(self.environ).items():
            builder.environment(name, value)
        return builder.build()


def _weights_digest(weights: WeightBlob) -> Digest:
    if is_hex_digest(weights.digest):
        return Digest(weights.digest, weights.size)
    return Hasher("weights.1").field("digest", weights.digest).field("size", weights.size).digest()


def _implied(compilers: Compilers) -> tuple[str, ...]:
    """Libraries that a compiler links without being asked."""
    return (*_STARTUP_LIBRARIES, *(_CXX_LIBRARIES if compilers.cxx is not None else ()))


def _library_folders(workspace: Workspace, environ: Mapping[str, str]) -> list[str]:
    """Where libraries are looked for, in order."""
    spec, directory = workspace.spec, str(workspace.directory)
    named = [word[2:] for word in (*spec.link_flags, *spec.link_files) if word.startswith("-L") and len(word) > 2]
    from_environment = environ.get("LIBRARY_PATH", "").split(os.pathsep)
    folders = (*named, *filter(None, from_environment), *workspace.compilers.c.library_dirs)
    return [os.path.join(directory, folder) for folder in folders]


@dataclass
class _Libraries:
    """Gathers the contents of what a linker reads, by names without places."""

    directory: Path
    folders: Sequence[str]
    inputs: Inputs
    digests: dict[str, Digest] = field(default_factory=dict)

    def take(self, group: str, words: Iterable[str]) -> tuple[str, ...]:
        """Take the files that words of a command name; the words, without the places of files that leave no trace."""
        shown = []
        for number, word in enumerate(words):
            for path in self._files_of(word):
                self._take_file(f"link/{group}/{number:03}", path)
            is_placeless = word.endswith(_PLACELESS) and not word.startswith("-")
            shown.append(os.path.basename(word) if is_placeless else word)
        return tuple(shown)

    def take_startup_file(self, name: str) -> None:
        """Take a file that every link begins or ends with, if it is where libraries are."""
        if path := self._first_in_folders(name):
            self._take_file("link/startup", path)

    def _files_of(self, word: str) -> Iterator[str]:
        if word.startswith("-l"):
            name = word[2:]
            names = (name[1:],) if name.startswith(":") else (f"lib{name}.so", f"lib{name}.a", f"lib{name}.dylib")
            # The first folder that has either decides, but flags may ask for archives alone.
            yield from filter(None, map(self._first_in_folders, names))
            return
        # A file may be all of a word, or follow a flag: -Wl,--version-script=FILE.
        for part in dict.fromkeys((word, *re.split("[,=]", word))):
            path = os.path.join(self.directory, part)
            if part and os.path.isfile(path):
                yield path

    def _first_in_folders(self, name: str) -> str | None:
        return next(filter(os.path.isfile, (os.path.join(folder, name) for folder in self.folders)), None)

    def _take_file(self, prefix: str, path: str, depth: int = 0) -> None:
        """Take a file, and if it is a linker script the files that it names."""
        name = f"{prefix}/{os.path.basename(path)}"
        try:
            digest = self.inputs.digest(Path(path))
            script = _script(path, digest.size)
        except OSError:
            return
        if self.digests.setdefault(name, digest) != digest:
            self.digests[f"{prefix}/{len(self.digests)}-{os.path.basename(path)}"] = digest
        for word in _SCRIPT_WORD.findall(script) if depth < 3 else ():
            for named in self._files_of(word) if word.startswith(("/", "-l")) else ():
                self._take_file(f"{name}.names", named, depth + 1)


def _script(path: str, size: int) -> str:
    """The text of a linker script; empty for any other file. Raises OSError."""
    if size > _MAX_SCRIPT_BYTES:
        return ""
    data = Path(path).read_bytes()
    return "" if data.startswith(_MAGICS) or b"\0" in data else data.decode(errors="replace")
