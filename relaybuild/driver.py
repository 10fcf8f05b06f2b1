"""Compiles a model to a library, or finds it compiled; knows no operator, no backend and no stage by itself.

What a request depends on is looked up as a whole first. Only where that is not found are the stages imported, and with
them numpy, onnx and the IR.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from relaybuild.artifact import outcome
from relaybuild.artifact.outcome import STAGES as STAGES
from relaybuild.artifact.request import DEFAULT_OPT_LEVEL, PassSettings, Request, default_name, entered_context
from relaybuild.build.cache.hit import DamagedResult
from relaybuild.build.cache.store import Cache, open_cache
from relaybuild.build.cache_config import CacheFlags, chosen_settings
from relaybuild.build.files import check_replaceable, publish, writing
from relaybuild.build.forms import Form, form_named
from relaybuild.build.toolchain import Toolchain, probe
from relaybuild.events import Event as Event
from relaybuild.job import Job, import_stages
from relaybuild.target import Target, chosen

if TYPE_CHECKING:
    from onnx import ModelProto

    from relaybuild.ir.module import IRModule


class Artifact:
    """A compiled model in one of its forms, and what is known of it.

    `name` is the model's. `summary` has the keys artifact, size, seconds, executed, cached, misses, kernels, regions,
    arena_bytes, weight_bytes, and link: of a static library or an object, the words that programs are linked with in
    addition. Where everything was found in the cache, nothing was executed, and the library is copied to a file when
    its `path` is asked for.
    """

    def __init__(self, job: Job) -> None:
        """See `compile`."""
        self._job = job
        self.name = job.request.name
        self._content = job.content()
        self.summary = self._summary()
        self._keep_folder()

    @property
    def form(self) -> Form:
        """What it is: a library of either kind, or an object."""
        return self._job.request.form

    @property
    def toolchain(self) -> Toolchain:
        """The compiler that made it, or would have."""
        return self._job.toolchain

    @property
    def header(self) -> str:
        """The text of a C header for the library."""
        return self._content.header

    @property
    def warnings(self) -> tuple[str, ...]:
        """What passes warned of, when the library was made."""
        return tuple(self._content.facts["warnings"])

    @property
    def path(self) -> Path:
        """The library: in a temporary folder, which goes with this object, unless `save_temps` was given."""
        if self._content.path is None:
            import tempfile

            folder = Path(tempfile.mkdtemp(prefix="relaybuild-"))
            self._remove_at_end(folder)
            path = folder / f"{self._job.request.symbol}{self.form.suffix}"
            if self._place(path):
                self._content = replace(self._content, path=path)
                self.summary["artifact"] = str(path)
        assert self._content.path is not None
        return self._content.path

    @property
    def module(self) -> IRModule:
        """The program after passes and partitioning; where the library came from the cache, so do they, or else
        they run now."""
        if self._content.module is None:
            self._content = replace(self._content, module=self._job.program())
        assert self._content.module is not None
        return self._content.module

    def export_library(self, path: str | Path, *, move: bool = False) -> None:
        """Put the library at `path`, complete or not at all; a file that is this library already is left alone.

        A form that is a folder becomes one, complete or not at all; one that was made before is brought up to date:
        what is as it should be is left alone, and files of relaybuild's that are no longer made go.

        With `move` there is no copy but that one, where the artifact's own file is temporary. Raises UserError where
        it cannot be written, for the name of another form (`.so` for an archive), and for a folder with files of others
        that relaybuild did not make.
        """
        output = Path(path)
        self.form.check_name(output)
        check_replaceable(output)
        if self.form.is_folder:
            from relaybuild.build.bundle import unpack

            self.summary["size"] = unpack(self.path, output)
            self.summary["artifact"] = str(output)
            return
        if self._content.path is not None or not self._place(output):
            is_moved = move and self._content.is_temporary
            publish(self.path, output, keep_source=not is_moved)
            if is_moved:
                self._content = replace(self._content, path=output, is_temporary=False)
        self.summary["artifact"] = str(output)
        self.summary["size"] = output.stat().st_size

    def _place(self, path: Path) -> bool:
        """Copy the library out of the cache; False if it turned out damaged there, and was compiled again."""
        cache, hit = self._job.cache, self._content.hit
        assert hit is not None
        try:
            with writing(path):
                hit.place({"library": path}, known=cache.inputs())
            return True
        except DamagedResult:
            self._content = self._job.content()
            self.summary = self._summary()
            self._keep_folder()
            return self._content.path is None and self._place(path)
        finally:
            cache.flush()

    def _summary(self) -> dict[str, Any]:
        content = self._content
        artifact = "" if content.path is None else str(content.path)
        return {
            "artifact": artifact,
            "size": content.size,
            **outcome.summary(content.facts, content.steps, self._job.cache.journal),
        }

    def _keep_folder(self) -> None:
        """Remove the temporary folder of the library with this object."""
        if self._content.path is not None and self._content.is_temporary:
            self._remove_at_end(self._content.path.parent)

    def _remove_at_end(self, folder: Path) -> None:
        import shutil

        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)

    def __repr__(self) -> str:
        place = self._content.path or "in the cache"
        return f"<Artifact '{self.name}': {place}>"


def compile(
    model: str | Path | ModelProto | IRModule,
    *,
    shapes: Mapping[str, Sequence[int]] | None = None,
    target: str | Target | None = None,
    threads: int | None = None,
    opt_level: int | None = None,
    config: str | Path | Mapping[str, object] | None = None,
    flags: Mapping[str, object] | None = None,
    cache_dir: str | Path | Literal[False] | None = None,
    name: str | None = None,
    cc: str | None = None,
    jobs: int | None = None,
    save_temps: str | Path | None = None,
    precise: bool = False,
    soname: str = "",
    form: str | Form = Form.SHARED,
    on_event: Callable[[Event], None] | None = None,
) -> Artifact:
    """Compile a model (a path to `.onnx` or `.relay`, a ModelProto, or an IRModule) to a library.

    `shapes` gives the shape of inputs by name, `target` a name as for `--target` (default: the one entered by `with`,
    else the level of this machine), `threads` the library's default number of threads (default: the processors it
    finds when it runs). `opt_level` 0 disables fusion and all optional passes; the default is the entered
    PassContext's, else 3. `precise` rules out Winograd's convolution and its like. `soname` is the name under which a
    loader looks for the library on behalf of a program that was linked to it. `config`, the path of a
    `config.cmake` or a dict of its flags, and `flags`, which win over it, switch on backends. An entered PassContext
    also says which passes are disabled, required, and observed.

    `form` says what it becomes: `shared`, a library to be loaded; `static`, an archive, or `object`, to be linked into
    programs, of whose symbols only the model's own functions are seen; `project`, a folder with a CMake project, or
    `sources`, one with C alone. A folder's `path` is a file that keeps it; `export_library` makes the folder.

    What was compiled before is taken from the cache, whatever the process was that did it: `cache_dir` is its folder
    (default: `$RELAYBUILD_CACHE_DIR`, else what pyproject.toml says, else the user's cache folder; False: nothing is
    looked up or kept). A remote cache is used where the environment or pyproject.toml names one.
    `summary["misses"]` says what was not found, and why. With `save_temps`, a folder for the generated sources, and
    under a context that observes passes, the stages run in any case.

    Raises UserError for what is wrong with model or options, ToolError where a compiler fails.
    """
    request = make_request(
        model,
        shapes=shapes,
        target=target,
        threads=threads,
        opt_level=opt_level,
        config=config,
        flags=flags,
        name=name,
        cc=cc,
        precise=precise,
        soname=soname,
        form=form,
    )
    with open_cache(chosen_settings(CacheFlags(cache_dir))) as cache:
        return compile_request(request, cache, jobs=jobs, save_temps=save_temps, on_event=on_event)


def make_request(
    model: str | Path | ModelProto | IRModule,
    *,
    shapes: Mapping[str, Sequence[int]] | None = None,
    target: str | Target | None = None,
    threads: int | None = None,
    opt_level: int | None = None,
    config: str | Path | Mapping[str, object] | None = None,
    flags: Mapping[str, object] | None = None,
    name: str | None = None,
    cc: str | None = None,
    precise: bool = False,
    soname: str = "",
    form: str | Form = Form.SHARED,
) -> Request:
    """The request that arguments of `compile` make, under the PassContext and the target that are entered."""
    context = entered_context()
    passes = PassSettings.of(context) if context is not None else PassSettings()
    default_level = context.opt_level if context is not None else DEFAULT_OPT_LEVEL
    return Request(
        model,
        name or default_name(model),
        chosen(target),
        shapes,
        threads or 0,
        default_level if opt_level is None else opt_level,
        precise or passes.is_precise,
        soname,
        config,
        dict(flags or {}),
        cc,
        form_named(form),
        passes,
        context,
    )


def compile_request(
    request: Request,
    cache: Cache,
    *,
    jobs: int | None = None,
    save_temps: str | Path | None = None,
    on_event: Callable[[Event], None] | None = None,
    must_hit: bool = False,
) -> Artifact:
    """Find a request's artifact in an open cache, or make it and keep it there.

    With `must_hit` it is never made: raises UserError, which says why it was not found.
    """
    has_tried: list[bool] = []

    def meanwhile() -> None:
        # where the compiler is not known, the library will have to be made
        has_tried.append(True)
        import_stages()

    toolchain = probe(request.cc, cache=cache, meanwhile=None if must_hit else meanwhile)
    folder = Path(save_temps) if save_temps is not None else None
    is_new = bool(has_tried) and cache.settings.remote is None
    return Artifact(Job(request, cache, toolchain, jobs, folder, on_event, must_hit, is_new))
