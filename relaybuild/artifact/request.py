"""What is asked of a compilation, as one value; compiles nothing."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from relaybuild.build.forms import Form
from relaybuild.dataclass import dataclass
from relaybuild.errors import UserError
from relaybuild.identifier import c_identifier
from relaybuild.target import Target

if TYPE_CHECKING:
    from onnx import ModelProto

    from relaybuild.ir.module import IRModule
    from relaybuild.passes.infra import PassContext

DEFAULT_OPT_LEVEL = 3
MAX_THREADS = 1024
MAX_OPT_LEVEL = 4


@dataclass(frozen=True)
class PassSettings:
    """What a PassContext says of the passes that run, without being one.

    `is_observed`: something watches the passes, and wants to see them run. `is_precise` is what `config` or the default
    of its key says of `Request.precise`.
    """

    required: tuple[str, ...] = ()
    disabled: tuple[str, ...] = ()
    config: Mapping[str, Any] = field(default_factory=dict)
    fallback_device: str = "cpu"
    is_observed: bool = False
    is_precise: bool = False

    @classmethod
    def of(cls, context: PassContext) -> PassSettings:
        """Those of a context."""
        from relaybuild.passes.infra import PRECISE

        return cls(
            tuple(context.required_pass),
            tuple(context.disabled_pass),
            dict(context.config),
            context.fallback_device,
            bool(context.instruments) or context.rewrites.limit is not None,
            bool(context.get_config(PRECISE.name)),
        )


@dataclass(frozen=True)
class Request:
    """The arguments of `compile`, checked and with their defaults filled in, but for where files are written.

    `context` is the PassContext that was entered, if any; `passes` says what is in it. `soname` is the name under which
    a loader looks for the library on behalf of who was linked to it; empty: the name of the file linked to.
    """

    model: str | Path | ModelProto | IRModule
    name: str
    target: Target
    shapes: Mapping[str, Sequence[int]] | None = None
    threads: int = 0
    opt_level: int = DEFAULT_OPT_LEVEL
    precise: bool = False
    soname: str = ""
    config: str | Path | Mapping[str, object] | None = None
    flags: Mapping[str, object] = field(default_factory=dict)
    cc: str | None = None
    form: Form = Form.SHARED
    passes: PassSettings = field(default_factory=PassSettings)
    context: PassContext | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.threads <= MAX_THREADS:
            raise UserError(f"'threads' is {self.threads}, expected 0 (the machine's processors) to {MAX_THREADS}")
        if not 0 <= self.opt_level <= MAX_OPT_LEVEL:
            raise UserError(f"'opt_level' is {self.opt_level}, expected 0 to {MAX_OPT_LEVEL}")
        # a linker is given it between commas, and a name with a slash would be a path
        if not re.fullmatch(r"[^\s,/]*", self.soname):
            raise UserError(f"'soname' is '{self.soname}', expected the name of a file, without spaces and commas")

    @property
    def symbol(self) -> str:
        """What the names of the library's functions begin with."""
        return c_identifier(self.name)


def default_name(model: object) -> str:
    """The name of a model that is given none: its file's, without suffix."""
    return Path(model).stem if isinstance(model, (str, Path)) else "model"


def entered_context() -> PassContext | None:
    """The PassContext entered in this thread; the passes are not imported to be asked."""
    contexts = sys.modules.get("relaybuild.passes._context")
    context: PassContext | None = contexts.PassContext.entered() if contexts is not None else None
    return context
