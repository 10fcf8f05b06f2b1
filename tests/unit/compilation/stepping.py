"""What the tests of steps share: runs with one cache, each as of a new process, and what they executed."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from relaybuild.artifact.request import Request
from relaybuild.build.cache.journal import Journal, Storing
from relaybuild.build.cache.settings import CacheSettings
from relaybuild.build.cache.store import open_cache
from relaybuild.compilation.actions import Actions
from relaybuild.compilation.imports import Imported, OnnxFile, import_step
from relaybuild.compilation.known import Known
from relaybuild.compilation.programs import Program
from relaybuild.compilation.slots import Weights
from relaybuild.ir.module import IRModule
from relaybuild.ir.structural import weight_slots
from relaybuild.target import chosen


def request_of(model: Any, **options: Any) -> Request:
    """A request for the target `c`."""
    return Request(model, "model", chosen("c"), **options)


@dataclass
class Run:
    """One run: its steps and what they know, and the model that they begin with."""

    actions: Actions
    known: Known
    model: Imported

    @property
    def program(self) -> Program:
        return self.model.program


@dataclass
class Site:
    """A cache, and the journal of the last run with it."""

    folder: Path
    journal: Journal = field(default_factory=Journal)

    @contextlib.contextmanager
    def run(self, model: Path | IRModule, **options: Any) -> Iterator[Run]:
        """A run over an ONNX file, which is imported in it, or over a module."""
        request = request_of(model, **options)
        with open_cache(CacheSettings(self.folder)) as cache:
            self.journal = cache.journal
            file = OnnxFile.read(model)
            weights = file.weights() if file is not None else Weights()
            if isinstance(model, IRModule):
                weights = Weights.of(weight_slots(model))
            actions = Actions(cache, weights, "model")
            known = Known.of(request, actions)
            assert not known.objection
            if isinstance(model, IRModule):
                imported = Imported(Program(weights, module=model), (), (), {})
            else:
                imported = import_step(request, file, actions, known)
            yield Run(actions, known, imported)

    def executed(self, layer: str) -> list[str]:
        """The slots, behind the layer's name, of what the last run executed of a layer."""
        heads = (f"model/{layer}/", f"model/{layer}")
        found = [event.slot for event in self.journal.executed if event.layer == layer]
        return [slot.removeprefix(heads[0]).removeprefix(heads[1]) for slot in found]

    def stored(self, layer: str) -> list[Storing]:
        """What became of what was executed."""
        return [event.storing for event in self.journal.executed if event.layer == layer]

    def changes(self, layer: str) -> set[str]:
        """The components that made the last run miss something of a layer."""
        events = [event for event in self.journal.looked if event.layer == layer and event.reason is not None]
        return {change.component for event in events for change in event.changes}
