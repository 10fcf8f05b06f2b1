"""Remembers what a probe found out about a tool, and proves that it still holds without running anything.

A record names its witnesses: every program that had a say, the libraries it loads, and the scripts around it, by
content; where symbolic links lead; what a word on the PATH stands for; and files that must not be there. If one of them
is not what it was, the record is void. A script that computes what it runs cannot be followed, and is never recorded.
It does not know what the facts mean.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any

from relaybuild.build.cache.memo import Inputs
from relaybuild.build.cache.store import Cache
from relaybuild.build.flags import objection_to_flags
from relaybuild.build.moment import Moment
from relaybuild.build.notes import Notes
from relaybuild.build.process import run_together
from relaybuild.build.variables import invalidating
from relaybuild.build.which import which
from relaybuild.dataclass import dataclass
from relaybuild.digest import Hasher
from relaybuild.errors import ToolError

_KIND = "tool"
_MAX_SCRIPT_BYTES = 10_000
_MAX_DEPTH = 5

LAUNCHERS = frozenset(("ccache", "sccache", "distcc", "icecc", "buildcache"))
"""Programs that are put before a compiler's command, by the stems of their names."""

_SHELL = rb"#!\s*(?:/\S*/)?(?:env\s+)?(?:/\S*/)?(?:ba|da|a)?sh\b"
_OWN_ARGUMENTS = r"\$(?:[@*#0-9]|\{1\+\"\$@\"\})"
_DECIDING = r"[`$&|<>{}!\[]|\b(?:if|while|until|test|eval|trap|read)\b"
"""What lets a script run one program or another by more than its arguments and the files that it names."""
_WORD = r"[^\s'\"();|&<>=,{}]+"
_LOADED = r"(?:=>\s+|^\s+)(/\S+)\s+\(0x"


class ToolRecords:
    """The records of tools in a cache; without a cache there are none. Never raises."""

    def __init__(self, cache: Cache | None, environ: Mapping[str, str]) -> None:
        """`environ` is what the tools see: its PATH, and what changes their outputs."""
        self._cache = cache
        self._notes = Notes(cache)
        self._inputs = cache.inputs() if cache is not None and self._notes.are_kept else None
        self._environ = environ

    def recall(self, kind: str, command: Sequence[str]) -> Mapping[str, Any] | None:
        """The facts about a command (absolute paths), if all that they rest on is what it was."""
        if self._cache is not None:
            self._cache.settle()
        payload = self._notes.read(_KIND, self._name(kind, command)) if self._inputs is not None else None
        if payload is None or self._inputs is None:
            return None
        try:
            record = json.loads(payload)
            witnesses = Witnesses(**{name: dict(record["witnesses"][name]) for name in ("files", "links", "words")})
            facts = record["facts"]
        except (ValueError, KeyError, TypeError):
            return None
        is_valid = isinstance(facts, dict) and witnesses.hold(self._inputs, self._environ)
        return facts if is_valid else None

    def remember(
        self,
        kind: str,
        command: Sequence[str],
        facts: Mapping[str, Any],
        programs: Iterable[str],
        files: Iterable[str] = (),
        *,
        since: Moment,
    ) -> None:
        """Keep facts about a command, which rest on `programs` (paths, or words of the PATH) and on whether and with
        what content `files` exist. Nothing is kept where a program cannot be followed, or has changed `since`.

        What they rest on is found out beside the run.
        """
        if self._cache is not None and self._inputs is not None:
            # of the variables as they are now
            name, inputs = self._name(kind, command), self._inputs
            self._cache.aside(lambda: self._gather(name, facts, programs, files, since, inputs))

    def followed(self, program: str) -> tuple[bool, tuple[str, ...]]:
        """(whether it is known what a program does, as far as it is a script, its content and that of what it runs)."""
        witnesses = Witnesses()
        inputs = self._inputs if self._inputs is not None else Inputs(None)
        try:
            is_known = _Gatherer(witnesses, inputs, self._environ).follow(program)
        except OSError:
            is_known = False
        return is_known, tuple(content or "" for content in witnesses.files.values())

    def _gather(
        self,
        name: str,
        facts: Mapping[str, Any],
        programs: Iterable[str],
        files: Iterable[str],
        since: Moment,
        inputs: Inputs,
    ) -> None:
        witnesses = Witnesses()
        try:
            gatherer = _Gatherer(witnesses, inputs, self._environ)
            if not all(map(gatherer.follow, programs)):
                return
            for path in (*gatherer.loaded(), *files):
                witnesses.files[path] = content_of(path, inputs)
        except OSError:
            return
        if any(content and since.is_before_change_of(path) for path, content in witnesses.files.items()):
            return
        record = {"facts": facts, "witnesses": {name: getattr(witnesses, name) for name in ("files", "links", "words")}}
        self._notes.write(_KIND, name, json.dumps(record, sort_keys=True).encode())

    def _name(self, kind: str, command: Sequence[str]) -> str:
        hasher = Hasher("tool-record.4").field("kind", kind).field("command", tuple(command))
        hasher.field("environment", tuple(sorted(invalidating(self._environ).items())))
        return hasher.digest().hex


@dataclass(frozen=True)
class Witnesses:
    """What facts rest on: contents of files (None: absent), where links lead, which file a word on the PATH is."""

    files: dict[str, str | None] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)
    words: dict[str, str | None] = field(default_factory=dict)

    def hold(self, inputs: Inputs, environ: Mapping[str, str]) -> bool:
        """Whether all is as it was."""
        search = environ.get("PATH")
        return (
            all(which(word, path=search) == path for word, path in self.words.items())
            and all(os.path.realpath(path) == target for path, target in self.links.items())
            and all(content_of(path, inputs) == content for path, content in self.files.items())
        )


def content_of(path: str, inputs: Inputs) -> str | None:
    """The SHA-256 of a file; None if there is none that can be read.

    A build id would be known sooner, but whoever alters a program leaves it as it is.
    """
    try:
        return inputs.digest(path).hex
    except OSError:
        return None


class _Gatherer:
    """Follows programs to all that decides what they do."""

    def __init__(self, witnesses: Witnesses, inputs: Inputs, environ: Mapping[str, str]) -> None:
        self._witnesses = witnesses
        self._inputs = inputs
        self._environ = environ
        self._binaries: list[str] = []

    def follow(self, program: str, depth: int = 0) -> bool:
        """Gather a program's witnesses; False if it cannot be known what it does."""
        path = self._resolved(program)
        if path is None or depth > _MAX_DEPTH:
            return False
        if path in self._witnesses.files:
            return True
        self._witnesses.files[path] = content_of(path, self._inputs)
        self._witnesses.links[path] = os.path.realpath(path)
        # A launcher under a compiler's name looks for the compiler in ways of its own.
        if Path(self._witnesses.links[path]).stem in LAUNCHERS:
            return False
        with open(path, "rb") as file:
            head = file.read(_MAX_SCRIPT_BYTES + 1)
        if head.startswith(b"#!"):
            return self._follow_script(head, depth)
        self._binaries.append(path)
        return True

    def loaded(self) -> Iterator[str]:
        """The shared libraries that the binaries load, as far as `ldd` tells."""
        ldd = which("ldd", path=self._environ.get("PATH"))
        if ldd is None or not self._binaries:
            return
        try:
            (result,) = run_together([(ldd, *self._binaries)], environ=self._environ)
        except ToolError:
            return
        yield from dict.fromkeys(re.findall(_LOADED, result.output, re.MULTILINE))

    def _resolved(self, program: str) -> str | None:
        if os.path.isabs(program):
            return program if os.path.isfile(program) else None
        path = which(program, path=self._environ.get("PATH"))
        self._witnesses.words[program] = path
        return path

    def _follow_script(self, text: bytes, depth: int) -> bool:
        """Take every word of a script that is a program for one that it runs."""
        if len(text) > _MAX_SCRIPT_BYTES or not re.match(_SHELL, text):
            return False
        lines = text.decode(errors="replace").splitlines()[1:]
        body = re.sub(_OWN_ARGUMENTS, "", "\n".join(line for line in lines if not line.lstrip().startswith("#")))
        words = list(dict.fromkeys(re.findall(_WORD, body)))
        if re.search(_DECIDING, body) or objection_to_flags(words):
            return False
        for word in words:
            if "/" in word and (not word.startswith("/") or any(mark in word for mark in "*?[~")):
                return False
            if self._is_program(word) and not self.follow(word, depth + 1):
                return False
        return True

    def _is_program(self, word: str) -> bool:
        if word.startswith("/"):
            if os.path.isfile(word) and not os.access(word, os.X_OK):
                self._witnesses.files[word] = content_of(word, self._inputs)
            elif not os.path.exists(word):
                self._witnesses.files[word] = None
            return os.path.isfile(word) and os.access(word, os.X_OK)
        return self._resolved(word) is not None
