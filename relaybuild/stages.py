"""From a model to a library, stage by stage; knows no operator and no backend by name, and no cache of whole artifacts.

Importing this imports numpy and the IR, which a run that finds everything in the cache does without.
"""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from relaybuild.artifact.outcome import Steps
from relaybuild.artifact.request import Request, default_name
from relaybuild.backends.generation import Region
from relaybuild.backends.selection import Selection, select
from relaybuild.backends.sources import RegionSources, possible_libraries, region_sources
from relaybuild.build.cache.store import Cache
from relaybuild.build.cxx import probe_cxx
from relaybuild.build.forms import Form
from relaybuild.build.head_start import HeadStart, head_start
from relaybuild.build.library import BuildReport, LibrarySpec, Unit, WeightBlob, build_library, link_words
from relaybuild.build.toolchain import PORTABLE_KERNEL_CFLAGS, Toolchain
from relaybuild.compilation.actions import Actions
from relaybuild.compilation.codegens import CodeGenerator, HostCode
from relaybuild.compilation.imports import Imported, OnnxFile, import_step
from relaybuild.compilation.known import Known
from relaybuild.compilation.partitions import Cut, Partitioned, partition_step
from relaybuild.compilation.passes import PassRunner
from relaybuild.compilation.programs import Program
from relaybuild.compilation.slots import Weights
from relaybuild.compilation.sources import read_model
from relaybuild.compilation.weights import library_weights
from relaybuild.dataclass import dataclass
from relaybuild.events import Event
from relaybuild.identifier import c_identifier
from relaybuild.ir.infer import infer_types
from relaybuild.ir.module import IRModule
from relaybuild.ir.types import TensorType
from relaybuild.lower.sources import include_dir as kernel_include_dir
from relaybuild.partition.backend import CodegenOptions, GeneratedCode
from relaybuild.passes.infra import PRECISE, PassContext
from relaybuild.passes.pipelines import default_pipeline
from relaybuild.runtime.header import public_functions, standalone_header
from relaybuild.runtime.sources import cxx_sources, include_dir, model_sources
from relaybuild.runtime.spec import TensorSpec
from relaybuild.target import Target, chosen

if TYPE_CHECKING:
    from onnx import ModelProto

    from relaybuild.partition.report import Report


@dataclass(frozen=True)
class Workplace:
    """How a request is carried out, which does not change what becomes of it.

    The library is made in `folder`, and what it was made from stays there with `keep`. `cache_dir` is where what CMake
    found is kept (None: the default folder). At most `jobs` compilers run at a time.
    """

    toolchain: Toolchain
    cache: Cache | None
    folder: Path
    cache_dir: Path | None = None
    jobs: int | None = None
    keep: bool = False
    on_event: Callable[[Event], None] | None = None


@dataclass(frozen=True)
class Made:
    """What the stages made of a request: the library at `path`, its header, facts for the summary, what ran, and the
    program after partitioning, if anybody needed it."""

    path: Path
    header: str
    facts: Mapping[str, Any]
    steps: Steps
    module: IRModule | None


@dataclass(frozen=True)
class _Front:
    """What comes before code is generated: the model as it was read and as it was cut, for which backends, under which
    context, and the steps by which it was made."""

    source: Imported
    cut: Partitioned
    selection: Selection
    context: PassContext
    actions: Actions
    known: Known


@dataclass
class _Clock:
    """Times stages and tells who listens."""

    on_event: Callable[[Event], None] | None = None
    seconds: dict[str, float] = field(default_factory=dict)

    @contextlib.contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Run a stage; nothing is said of one that fails."""
        self.tell(Event(name))
        start = time.perf_counter()
        yield
        self.seconds[name] = time.perf_counter() - start
        self.tell(Event(name, seconds=self.seconds[name]))

    def tell(self, event: Event) -> None:
        if self.on_event is not None:
            self.on_event(event)


def make(request: Request, work: Workplace, begun: HeadStart | None = None) -> Made:
    """Run all stages, or find what they would make; raises what `driver.compile` does.

    What was `begun` for the request is taken over.
    """
    if begun is not None:
        return _make(request, work, begun)
    with begin(request, work) as head:
        return _make(request, work, head)


def _make(request: Request, work: Workplace, head: HeadStart | None) -> Made:
    clock = _Clock(work.on_event)
    front = _front(request, work.cache, work.cache_dir, clock)
    actions, known = front.actions, front.known
    with clock.stage("codegen"):
        kernel_flags = _kernel_flags(request, work.toolchain)
        options = _codegen_options(request, front.source, kernel_flags)
        generator = CodeGenerator(actions, options, known)
        regions = generator.regions(front.cut, front.selection)
        host = generator.host(front.cut)
        weights = library_weights(host, actions, known)
    brought = region_sources(regions, front.selection, options.flags, kernel_flags)
    spec = _library(request, options, host.code, weights, brought)
    path = work.folder / f"{options.symbol}{request.form.suffix}"
    header = _header(options, host, _shown_link_words(spec))
    executed, cached = actions.counts()
    whole = Counter(actions.whole)
    if request.form.is_folder:
        with clock.stage("link"):
            _emit(request, options, host, (spec, header, brought), path)
    else:
        built = _build(spec, work, path, clock, head)
        executed, cached = {**executed, **built.executed}, {**cached, **built.cached}
        whole += Counter(built.executed) + Counter(built.cached)
    facts = _facts(host.code, regions, front.context, link_words(spec))
    steps = Steps(executed, cached, dict(clock.seconds), whole)
    return Made(path, header, facts, steps, front.cut.program.in_memory)


def program(request: Request, cache: Cache | None, cache_dir: Path | None) -> IRModule:
    """The module of a request after passes and partitioning, of steps that are looked up in a cache."""
    return _front(request, cache, cache_dir, _Clock()).cut.program.module


def _front(request: Request, cache: Cache | None, cache_dir: Path | None, clock: _Clock) -> _Front:
    context = _pass_context(request)
    selection = _selection(request, cache_dir)
    file = OnnxFile.read(request.model) if cache is not None else None
    actions = Actions(cache, file.weights() if file is not None else Weights(), request.name)
    if cache is not None and actions.has_cache:
        # whoever writes them asks for all
        cache.aside(actions.weights.digest_mapped)
    known = Known.of(request, actions)
    with clock.stage("import"):
        source = import_step(request, file, actions, known)
    with clock.stage("pass"):
        program = _after_passes(request, source.program, context, actions, known)
    with clock.stage("partition"), context:
        cut = _cut(request, program, context, selection, actions, known)
    return _Front(source, cut, selection, context, actions, known)


def _after_passes(request: Request, program: Program, context: PassContext, actions: Actions, known: Known) -> Program:
    runner = PassRunner(actions, context, known)
    if request.passes.is_observed:
        return runner.run_observed(default_pipeline(), program, "the passes are observed")
    return runner.run(default_pipeline(), program)


def _cut(
    request: Request, program: Program, context: PassContext, selection: Selection, actions: Actions, known: Known
) -> Partitioned:
    cut = Cut(selection, request.name, request.target, context, request.passes.is_observed)
    return partition_step(program, cut, actions, known)


def partition_report(
    model: str | Path | ModelProto | IRModule,
    *,
    shapes: Mapping[str, Sequence[int]] | None = None,
    config: str | Path | Mapping[str, object] | None = None,
    flags: Mapping[str, object] | None = None,
    target: str | Target | None = None,
    name: str | None = None,
) -> Report:
    """How `driver.compile` would partition a model, with the same arguments; raises as that does."""
    from relaybuild.partition.report import report

    selection = select(config, flags)
    machine = chosen(target)
    title = name or default_name(model)
    context = PassContext.entered() or PassContext(opt_level=3)
    module = default_pipeline()(read_model(model, shapes).module, context)
    with machine, context:
        return report(infer_types(module), selection.tags, mod_name=c_identifier(title))


def link_bound(
    config: str | Path | Mapping[str, object] | None, flags: Mapping[str, object], cache_dir: Path | None
) -> tuple[str, ...]:
    """What a linker may need beside a static library of any model that is compiled with a configuration."""
    needed = link_words(LibrarySpec("any", (), form=Form.STATIC))
    return (*possible_libraries(select(config, flags, cache_dir=cache_dir)), *needed)


def _selection(request: Request, cache_dir: Path | None) -> Selection:
    return select(request.config, request.flags, cache_dir=cache_dir)


def _pass_context(request: Request) -> PassContext:
    """The context entered, or a new one, at the level of the request and as precise as it."""
    settings = request.passes
    context = request.context or PassContext(
        request.opt_level,
        settings.required,
        settings.disabled,
        config=settings.config,
        fallback_device=settings.fallback_device,
    )
    return context.derived(opt_level=request.opt_level, config={PRECISE.name: request.precise})


def _kernel_flags(request: Request, toolchain: Toolchain) -> tuple[str, ...]:
    """Who compiles sources does it with another compiler, perhaps of another family."""
    return PORTABLE_KERNEL_CFLAGS if request.form.is_folder else toolchain.kernel_cflags


def _codegen_options(request: Request, source: Imported, kernel_flags: tuple[str, ...]) -> CodegenOptions:
    options = CodegenOptions(
        request.name,
        request.symbol,
        request.target,
        (*kernel_flags, *request.target.cflags),
        source.inputs,
        source.outputs,
        request.threads,
        request.opt_level,
        request.precise,
        {"source": dict(source.provenance), "opt_level": request.opt_level, "precise": request.precise},
    )
    parts = request.target.parts if request.target.levels else ()
    levels = tuple(replace(options, target=part, flags=(*kernel_flags, *part.cflags)) for part in parts)
    return replace(options, levels=levels)


def _library(
    request: Request, options: CodegenOptions, code: GeneratedCode, weights: WeightBlob | None, regions: RegionSources
) -> LibrarySpec:
    common = _common_part(options.symbol)
    units = [Unit(unit.name, unit.text, tuple(unit.compiler_flags(options.flags))) for unit in code.units]
    units = [*units, *common.units, *regions.units]
    if request.form is not Form.SHARED:
        # the C++ runtime is that of the program which it is linked into
        own_runtime = {path.stem for path in cxx_sources()}
        units = [unit for unit in units if unit.name not in own_runtime]
    return replace(
        common,
        units=tuple(units),
        weights=weights,
        link_flags=(f"-Wl,-soname,{request.soname}",) if request.soname else (),
        link_files=regions.link_files,
        form=request.form,
        public=public_functions(options.symbol),
    )


def _common_part(symbol: str) -> LibrarySpec:
    """What the libraries of all models have in common."""
    units = tuple(Unit(path.stem, path.read_text(encoding="utf-8")) for path in model_sources())
    return LibrarySpec(symbol, units, (include_dir(), kernel_include_dir()))


@contextlib.contextmanager
def begin(request: Request, work: Workplace) -> Iterator[HeadStart | None]:
    """Compile what is known of the library before its model is, except where all is to stand in one build directory.

    What `make` has not taken over ends with the block.
    """
    if work.keep or request.form.is_folder:
        yield None
        return
    spec, folder = _common_part(request.symbol), work.folder / "head"
    with head_start(spec, work.toolchain, folder, jobs=work.jobs, cache=work.cache) as head:
        yield head


def _build(spec: LibrarySpec, work: Workplace, path: Path, clock: _Clock, head: HeadStart | None) -> BuildReport:
    clock.tell(Event("object", 0, len(spec.units)))
    needs_cxx = any(unit.language == "c++" for unit in spec.units)
    built = build_library(
        spec,
        work.toolchain,
        work.folder / "build",
        path,
        jobs=work.jobs,
        on_progress=lambda done, total: clock.tell(Event("object", done, total)),
        keep=work.keep,
        cxx=probe_cxx(work.toolchain, cache=work.cache) if needs_cxx else None,
        cache=work.cache,
        head=head,
    )
    clock.seconds["object"] = sum(built.seconds.get(step, 0.0) for step in ("write", "object"))
    clock.seconds["link"] = sum(built.seconds.get(step, 0.0) for step in ("link", "weights", "publish"))
    for stage in ("object", "link"):
        clock.tell(Event(stage, seconds=clock.seconds[stage]))
    return built


def _facts(
    code: GeneratedCode, regions: Sequence[Region], context: PassContext, link: Sequence[str]
) -> Mapping[str, Any]:
    """What the summary says of the library, in every run that has it."""
    return {
        "kernels": [dict(kernel) for kernel in code.kernels],
        "regions": [{"symbol": region.ports.symbol, "backend": region.backend.name} for region in regions],
        "arena_bytes": code.arena_bytes,
        "weight_bytes": code.weight_bytes,
        "link": list(link),
        "warnings": [str(warning) for warning in context.error_reporter.warnings],
    }


def _header(options: CodegenOptions, host: HostCode, link: Sequence[str]) -> str:
    text = standalone_header(options.symbol, *_tensors(options, host))
    return f"/* Programs are linked with: {' '.join(link)} */\n{text}" if link else text


def _tensors(options: CodegenOptions, host: HostCode) -> tuple[list[TensorSpec], list[TensorSpec]]:
    """The model's inputs and its outputs."""
    inputs = [_spec(name, kind) for name, kind in zip(options.inputs, host.params)]
    return inputs, [_spec(name, kind) for name, kind in zip(options.outputs, host.code.results)]


def _shown_link_words(spec: LibrarySpec) -> Sequence[str]:
    """What the header says that programs are linked with; a project's says nothing, for its target knows."""
    if not spec.form.is_folder:
        return link_words(spec)
    from relaybuild.emission.sources import portable_link_words

    return portable_link_words(link_words(spec)) if spec.form is Form.SOURCES else ()


def _emit(
    request: Request,
    options: CodegenOptions,
    host: HostCode,
    library: tuple[LibrarySpec, str, RegionSources],
    path: Path,
) -> None:
    """Write the folder that a library, its header and what backends bring to it become."""
    from relaybuild.emission.emit import emit
    from relaybuild.emission.layout import Parts

    def module() -> IRModule:
        return infer_types(read_model(request.model, request.shapes).module)

    spec, header, brought = library
    parts = Parts(options.name, spec, header, brought.backends)
    emit(request.form, parts, path, _tensors(options, host), module)


def _spec(name: str, kind: TensorType) -> TensorSpec:
    return TensorSpec(name, kind.static_shape, kind.dtype)
