"""Compiles a model to a library, stage by stage; knows no operator and no backend by name."""

from __future__ import annotations

import contextlib
import hashlib
import shutil
import tempfile
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from relaybuild.backends.generation import Region, generate_regions
from relaybuild.backends.selection import Selection, select
from relaybuild.backends.sources import RegionSources, region_sources
from relaybuild.build.cxx import probe_cxx
from relaybuild.build.files import publish
from relaybuild.build.library import BuildReport, LibrarySpec, Unit, WeightBlob, build_library
from relaybuild.build.toolchain import KERNEL_CFLAGS, Toolchain, probe
from relaybuild.errors import UserError
from relaybuild.ir.expr import Call, Function
from relaybuild.ir.infer import infer_types
from relaybuild.ir.input_shapes import leaves, with_shapes
from relaybuild.ir.interpreter import interpret
from relaybuild.ir.module import IRModule
from relaybuild.ir.ops.compiler_annotation import END
from relaybuild.ir.parser import parse
from relaybuild.ir.types import TensorType, TupleType
from relaybuild.ir.visitor import post_order
from relaybuild.lower.sources import include_dir as kernel_include_dir
from relaybuild.partition.backend import CodegenOptions, GeneratedCode, all_backends, flat_types
from relaybuild.partition.pipeline import partition
from relaybuild.partition.report import Report, report
from relaybuild.passes.infra import PRECISE, PassContext
from relaybuild.passes.pipelines import default_pipeline
from relaybuild.runtime.header import c_identifier, standalone_header
from relaybuild.runtime.sources import include_dir, model_sources
from relaybuild.runtime.spec import TensorSpec
from relaybuild.target import Target, chosen

if TYPE_CHECKING:
    from onnx import ModelProto

STAGES = ("import", "pass", "partition", "codegen", "object", "link")
LAYERS = STAGES


@dataclass(frozen=True)
class Event:
    """Progress: a stage started (`seconds` None, `total` 0), went on (`done` of `total`), or ended (`seconds` set)."""

    stage: str
    done: int = 0
    total: int = 0
    seconds: float | None = None


@dataclass
class Artifact:
    """A compiled model: the library at `path` (temporary unless `save_temps` was given), and what is known of it.

    `summary` has the keys artifact, size, seconds, executed, cached, misses, kernels, arena_bytes and weight_bytes;
    `header` is the text of a C header that needs no other file; `module` the program after the passes.
    """

    path: Path
    name: str
    summary: dict[str, Any]
    header: str
    module: IRModule

    def export_library(self, path: str | Path) -> None:
        """Put the library at `path`, complete or not at all."""
        output = Path(path)
        publish(self.path, output, keep_source=True)
        self.summary["artifact"] = str(output)
        self.summary["size"] = output.stat().st_size


@dataclass(frozen=True)
class Source:
    """A model read: its module, and the names of inputs and outputs, one per tensor of `main`'s tuples."""

    module: IRModule
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    provenance: Mapping[str, object]


@dataclass
class _Clock:
    """Times stages and tells who listens."""

    on_event: Callable[[Event], None] | None
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


def compile(
    model: str | Path | ModelProto | IRModule,
    *,
    shapes: Mapping[str, Sequence[int]] | None = None,
    target: str | Target | None = None,
    threads: int | None = None,
    opt_level: int | None = None,
    config: str | Path | Mapping[str, object] | None = None,
    flags: Mapping[str, object] | None = None,
    cache_dir: str | Path | None = None,
    name: str | None = None,
    cc: str | None = None,
    jobs: int | None = None,
    save_temps: str | Path | None = None,
    precise: bool = False,
    on_event: Callable[[Event], None] | None = None,
) -> Artifact:
    """Compile a model (a path to `.onnx` or `.relay`, a ModelProto, or an IRModule) to a library.

    `shapes` gives the shape of inputs by name, `target` a name as for `--target` (default: the one entered by `with`,
    else the level of this machine), `threads` the library's default number of threads (default: the processors it
    finds when it runs). `opt_level` 0 disables fusion and all optional passes; the default is the entered
    PassContext's, else 3. `precise` rules out Winograd's convolution and its like. `config`, the path of a
    `config.cmake` or a dict of its flags, and `flags`, which win over it, switch on backends. `cache_dir` is where
    what was found for them is kept. An entered PassContext also says which passes are disabled, required, and observed.

    Raises UserError for what is wrong with model or options, ToolError where a compiler fails.
    """
    context = _pass_context(opt_level, precise)
    _check_options(threads, context.opt_level)
    clock = _Clock(on_event)
    machine = chosen(target)
    toolchain = probe(cc)
    selection = select(config, flags, cache_dir=Path(cache_dir) if cache_dir is not None else None)
    with clock.stage("import"):
        source = read_model(model, shapes)
    with clock.stage("pass"):
        module = default_pipeline()(source.module, context)
    title = name or _default_name(model)
    with clock.stage("partition"), context:
        module = partition_module(module, selection, title)
    main = module["main"]
    with clock.stage("codegen"):
        options = _codegen_options(title, machine, source, threads or 0, context, module)
        regions = generate_regions(module, options, selection)
        code = all_backends()["host"].codegen(main, options)
        weights = _evaluate_weights(code)
    spec = _library(options, code, weights, region_sources(regions, selection, options.flags))
    with _work_folder(save_temps) as folder:
        path = folder / f"{options.symbol}.so"
        report = _build(spec, toolchain, folder, path, jobs, keep=save_temps is not None, clock=clock)
        summary = _summary(path, clock, source, code, regions, report)
        artifact = Artifact(path, title, summary, _header(options, main, code.results), module)
    if save_temps is None:
        weakref.finalize(artifact, shutil.rmtree, folder, ignore_errors=True)
    return artifact


def partition_module(module: IRModule, selection: Selection, name: str) -> IRModule:
    """A module after the passes with its regions cut out, for the backends that are on; typed.

    `name` is the model's: it becomes part of the regions' symbols.
    """
    if not selection.backends and not _has_marks(module):
        return infer_types(module)
    return partition(infer_types(module), selection.tags, mod_name=c_identifier(name))


def partition_report(
    model: str | Path | ModelProto | IRModule,
    *,
    shapes: Mapping[str, Sequence[int]] | None = None,
    config: str | Path | Mapping[str, object] | None = None,
    flags: Mapping[str, object] | None = None,
    target: str | Target | None = None,
    name: str | None = None,
) -> Report:
    """How `compile` would partition a model, with the same arguments; raises as that does."""
    selection = select(config, flags)
    context = _pass_context(None, False)
    module = default_pipeline()(read_model(model, shapes).module, context)
    with chosen(target), context:
        return report(infer_types(module), selection.tags, mod_name=c_identifier(name or _default_name(model)))


def _has_marks(module: IRModule) -> bool:
    """Whether calls are marked by hand for a compiler."""
    nodes = (node for function in module.functions.values() for node in post_order(function))
    return any(isinstance(node, Call) and node.op_name == END for node in nodes)


def _check_options(threads: int | None, opt_level: int) -> None:
    if threads is not None and not 0 <= threads <= 1024:
        raise UserError(f"'threads' is {threads}, expected 0 (the machine's processors) to 1024")
    if not 0 <= opt_level <= 4:
        raise UserError(f"'opt_level' is {opt_level}, expected 0 to 4")


def read_model(model: str | Path | ModelProto | IRModule, shapes: Mapping[str, Sequence[int]] | None) -> Source:
    """What `compile` starts from; raises UserError for what is no model or leaves a shape open."""
    if isinstance(model, IRModule):
        return _from_module(model, shapes)
    if isinstance(model, (str, Path)) and is_relay_file(Path(model)):
        return _from_module(_parse_file(Path(model)), shapes)
    from relaybuild.frontend.onnx import import_model

    imported = import_model(model, shapes)
    provenance = {"format": "onnx", "opset": imported.opset, "producer": imported.producer}
    return Source(imported.module, imported.input_names, imported.output_names, provenance)


def is_relay_file(path: Path) -> bool:
    """Whether a file is a program in the text format, by its name."""
    return path.suffix == ".relay"


def _parse_file(path: Path) -> IRModule:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot read '{path}': {error}") from None
    return parse(text, str(path))


def _from_module(module: IRModule, shapes: Mapping[str, Sequence[int]] | None) -> Source:
    if "main" not in module:
        raise UserError("the module has no function '@main' to compile")
    module = infer_types(with_shapes(module, shapes) if shapes else module)
    main = module["main"]
    params = [name for param in main.params for name, _ in leaves(param.name_hint, param.checked_type)]
    results = [name for name, _ in leaves("output", main.body.checked_type)]
    if isinstance(main.body.checked_type, TupleType):
        results = [f"output{number}" if len(results) > 1 else "output" for number in range(len(results))]
    inputs, outputs = _names(main, "input_names", params), _names(main, "output_names", results)
    return Source(module, inputs, outputs, {"format": "relay"})


def _names(function: Function, attr: str, default: list[str]) -> tuple[str, ...]:
    """The names in a function's attribute, or unique ones made of the defaults."""
    given = function.attrs.get(attr)
    if isinstance(given, (tuple, list)) and len(given) == len(default):
        return tuple(str(name) for name in given)
    taken: set[str] = set()
    names = []
    for name in default:
        number = 0
        unique = name
        while unique in taken:
            number += 1
            unique = f"{name}_{number}"
        taken.add(unique)
        names.append(unique)
    return tuple(names)


def _pass_context(opt_level: int | None, precise: bool) -> PassContext:
    """The context entered, at the level given and as precise as it or the argument asks; else one of level 3."""
    entered = PassContext.entered() or PassContext(opt_level=3)
    return entered.derived(
        opt_level=opt_level, config={PRECISE.name: precise or bool(entered.get_config(PRECISE.name))}
    )


def _default_name(model: object) -> str:
    return Path(model).stem if isinstance(model, (str, Path)) else "model"


def _codegen_options(
    name: str, target: Target, source: Source, threads: int, context: PassContext, module: IRModule
) -> CodegenOptions:
    opt_level, precise = context.opt_level, bool(context.get_config(PRECISE.name))
    flags = (*KERNEL_CFLAGS, *target.cflags)
    return CodegenOptions(
        name,
        c_identifier(name),
        target,
        flags,
        source.inputs,
        source.outputs,
        threads,
        opt_level,
        precise,
        {"source": dict(source.provenance), "opt_level": opt_level, "precise": precise},
        module,
    )


def _evaluate_weights(code: GeneratedCode) -> WeightBlob | None:
    """The bytes of `@weights`, each result at its offset."""
    if code.weights is None or not code.weight_bytes:
        return None
    blob = np.zeros(code.weight_bytes, np.uint8)
    for value, offset in zip(interpret(code.weights), code.weight_offsets):
        data = np.ascontiguousarray(value).reshape(-1).view(np.uint8)
        blob[offset : offset + data.size] = data
    digest = hashlib.sha256(blob.data).hexdigest()

    def write(file: BinaryIO) -> None:
        file.write(blob.data)

    return WeightBlob(write, digest, code.weight_bytes)


@contextlib.contextmanager
def _work_folder(save_temps: str | Path | None) -> Iterator[Path]:
    """The folder given, or a temporary one that is removed where the build in it fails."""
    if save_temps is None:
        folder = Path(tempfile.mkdtemp(prefix="relaybuild-"))
        try:
            yield folder
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        return
    folder = Path(save_temps)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"cannot make the folder '{folder}': {error.strerror}") from None
    yield folder


def _library(
    options: CodegenOptions, code: GeneratedCode, weights: WeightBlob | None, regions: RegionSources
) -> LibrarySpec:
    units = [Unit(unit.name, unit.text, options.flags if unit.hot else ()) for unit in code.units]
    units += [Unit(path.stem, path.read_text(encoding="utf-8")) for path in model_sources()]
    include_dirs = (include_dir(), kernel_include_dir())
    return LibrarySpec(options.symbol, (*units, *regions.units), include_dirs, weights, link_files=regions.link_files)


def _build(
    spec: LibrarySpec,
    toolchain: Toolchain,
    folder: Path,
    path: Path,
    jobs: int | None,
    *,
    keep: bool,
    clock: _Clock,
) -> BuildReport:
    clock.tell(Event("object", 0, len(spec.units)))
    work = folder / "build"
    needs_cxx = any(unit.language == "c++" for unit in spec.units)
    report = build_library(
        spec,
        toolchain,
        work,
        path,
        jobs=jobs,
        on_progress=lambda done, total: clock.tell(Event("object", done, total)),
        keep=keep,
        cxx=probe_cxx(toolchain) if needs_cxx else None,
    )
    clock.seconds["object"] = sum(report.seconds.get(step, 0.0) for step in ("write", "weights", "object"))
    clock.seconds["link"] = sum(report.seconds.get(step, 0.0) for step in ("link", "publish"))
    for stage in ("object", "link"):
        clock.tell(Event(stage, seconds=clock.seconds[stage]))
    return report


def _summary(
    path: Path,
    clock: _Clock,
    source: Source,
    code: GeneratedCode,
    regions: Sequence[Region],
    report: BuildReport,
) -> dict[str, Any]:
    executed = dict.fromkeys(LAYERS, 0) | {
        "import": 1,
        "pass": 1,
        "partition": 1,
        "codegen": len(code.units) + len(regions),
        **report.executed,
    }
    return {
        "artifact": str(path),
        "size": report.size,
        "seconds": {stage: round(clock.seconds.get(stage, 0.0), 4) for stage in STAGES},
        "executed": executed,
        "cached": dict.fromkeys(LAYERS, 0) | dict(report.cached),
        "misses": [],
        "kernels": [dict(kernel) for kernel in code.kernels],
        "regions": [{"symbol": region.ports.symbol, "backend": region.backend.name} for region in regions],
        "arena_bytes": code.arena_bytes,
        "weight_bytes": code.weight_bytes,
    }


def _header(options: CodegenOptions, main: Function, results: Sequence[TensorType]) -> str:
    params = [kind for param in main.params for kind in flat_types(param.checked_type)]
    inputs = [_spec(name, kind) for name, kind in zip(options.inputs, params)]
    outputs = [_spec(name, kind) for name, kind in zip(options.outputs, results)]
    return standalone_header(options.symbol, inputs, outputs)


def _spec(name: str, kind: TensorType) -> TensorSpec:
    return TensorSpec(name, kind.static_shape, kind.dtype)
