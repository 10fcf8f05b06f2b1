"""Every field of what configures a compilation is in its key or is neutral, and each is shown to be what it is said."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from keys import library_keys, request_key

from relaybuild.artifact import configuration
from relaybuild.artifact.request import PassSettings, Request
from relaybuild.backends.generation import RegionFunction
from relaybuild.backends.selection import select
from relaybuild.build.cache.action import ActionBuilder
from relaybuild.build.cache.settings import CacheSettings, Mode, RemoteSettings
from relaybuild.build.cache.store import Cache, open_cache
from relaybuild.build.configure import BackendSettings
from relaybuild.build.forms import Form
from relaybuild.build.library_spec import Compilers, LibrarySpec, Unit
from relaybuild.build.toolchain import Toolchain, probe
from relaybuild.build.weights import WeightBlob
from relaybuild.compilation.actions import Actions
from relaybuild.compilation.codegens import CodeGenerator
from relaybuild.compilation.known import Known
from relaybuild.compilation.partitions import HOST_PART, Partitioned
from relaybuild.compilation.programs import Program
from relaybuild.compilation.slots import Weights
from relaybuild.ir.expr import Function, var
from relaybuild.ir.infer import infer_types
from relaybuild.ir.module import IRModule
from relaybuild.ir.op import call_op
from relaybuild.ir.types import TensorType
from relaybuild.partition.backend import CodegenOptions
from relaybuild.partition.c_text import Port
from relaybuild.partition.region_text import RegionPorts
from relaybuild.passes.infra import PassContext
from relaybuild.passes.instruments import PassTimingInstrument
from relaybuild.target import Target

pytestmark = pytest.mark.usefixtures("own_cache", "fixed_code")


class Site:
    """A folder with files that values name, a compiler, and a cache in which keys are looked up."""

    def __init__(self, folder: Path, toolchain: Toolchain) -> None:
        self.folder = folder
        self.toolchain = toolchain
        self.model = self._file("model.onnx", "a model")
        self.moved = self._file("elsewhere/model.onnx", "a model")
        self.other = self._file("other.onnx", "another model")
        self.include, self.same_include = (self._file(f"{name}/a.h", "#define A 1\n").parent for name in ("i1", "i2"))
        self.library, self.other_library = (self._file(f"lib{name}.a", name) for name in ("a", "b"))

    def _file(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    def cache(self, **settings: Any) -> Cache:
        return open_cache(CacheSettings(**{"folder": self.folder / "cache", **settings}))

    def library_keys(self, spec: LibrarySpec) -> dict[str, str]:
        with self.cache() as cache:
            return library_keys(spec, Compilers(self.toolchain), self.folder, cache)

    def request_key(self, request: Request) -> str:
        with self.cache() as cache:
            return request_key(request, self.toolchain, cache)


class Fields:
    """A value, and another value of each of its fields, by whether the field is in keys; what its keys are."""

    value: Any

    def __init__(self, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
        self.site = site
        self.monkeypatch = monkeypatch

    def keyed(self) -> Mapping[str, Any]:
        raise NotImplementedError

    def neutral(self) -> Mapping[str, Any]:
        return {}

    def keys(self, value: Any) -> object:
        raise NotImplementedError

    def replaced(self, name: str, value: Any) -> Any:
        return dataclasses.replace(self.value, **{name: value})

    def names(self) -> set[str]:
        return {item.name for item in dataclasses.fields(self.value)}


class OfRequest(Fields):
    @property
    def value(self) -> Request:
        return Request(self.site.model, "model", Target.parse("x86-64-v2"))

    def keyed(self) -> Mapping[str, Any]:
        return {
            "model": self.site.other,
            "name": "another",
            "target": Target.parse("x86-64-v3"),
            "shapes": {"x": (1, 2)},
            "threads": 2,
            "opt_level": 2,
            "precise": True,
            "soname": "libmodel.so",
            "config": {"USE_CODEGENC": "ON"},
            "flags": {"USE_CODEGENC": "ON"},
            "passes": PassSettings(disabled=("FoldConstant",)),
            "form": Form.STATIC,
        }

    def neutral(self) -> Mapping[str, Any]:
        # The compiler that it names is found before, and is in the key by content; passes say what is in a context.
        return {"cc": "cc", "context": PassContext()}

    def keys(self, value: Request) -> object:
        return self.site.request_key(value)


class OfPassSettings(Fields):
    value = PassSettings()

    def keyed(self) -> Mapping[str, Any]:
        return {
            "required": ("FoldConstant",),
            "disabled": ("FoldConstant",),
            "config": {"relay.FuseOps.max_depth": 3},
            "fallback_device": "gpu",
            "is_observed": True,  # nothing is looked up then
        }

    def neutral(self) -> Mapping[str, Any]:
        return {"is_precise": True}  # part of the request's own field

    def keys(self, value: PassSettings) -> object:
        return self.site.request_key(Request(self.site.model, "model", Target.parse("c"), passes=value))


class OfPassContext(Fields):
    """Its arguments, and what of them is in `PassSettings` or in a request."""

    @property
    def value(self) -> Mapping[str, Any]:
        return {}

    def names(self) -> set[str]:
        return set(inspect.signature(PassContext).parameters)

    def replaced(self, name: str, value: Any) -> Any:
        return {name: value}

    def keyed(self) -> Mapping[str, Any]:
        return {
            "opt_level": 1,
            "required_pass": ["FoldConstant"],
            "disabled_pass": ["FoldConstant"],
            "config": {"relay.FuseOps.max_depth": 3},
            "fallback_device": "gpu",
            # Nothing is looked up under these.
            "instruments": [PassTimingInstrument()],
            "max_rewrites": 1,
        }

    def neutral(self) -> Mapping[str, Any]:
        return {"error_reporter": PassContext().error_reporter}

    def keys(self, value: Mapping[str, Any]) -> object:
        from relaybuild.driver import make_request

        with PassContext(**value):
            return self.site.request_key(make_request(self.site.model, target="c"))


class OfTarget(Fields):
    value = Target.parse("x86-64-v2")

    def keyed(self) -> Mapping[str, Any]:
        return {
            "name": "another",
            "arch": "aarch64",
            "level": "v3",
            "features": ("avx",),
            "vector_bits": 256,
            "num_vector_registers": 32,
            "has_fma": True,
            "levels": ("x86-64-v2", "x86-64-v3"),
        }

    def keys(self, value: Target) -> object:
        return self.site.request_key(Request(self.site.model, "model", value))


class OfBackendSettings(Fields):
    @property
    def value(self) -> BackendSettings:
        return BackendSettings("USE_IT", "ON", True, (self.site.include,), (str(self.site.library),), ("A",), "1.0")

    def keyed(self) -> Mapping[str, Any]:
        return {
            "flag": "USE_THAT",
            "value": "/opt",
            "enabled": False,
            "include_dirs": (),
            "libraries": (str(self.site.other_library),),
            "definitions": ("A", "B"),
            "version": "1.1",
        }

    def neutral(self) -> Mapping[str, Any]:
        return {"message": "what is told where it is off"}

    def keys(self, value: BackendSettings) -> object:
        found = {value.flag: value}
        self.monkeypatch.setattr(configuration, "configure", lambda *_arguments, **_options: found)
        request = Request(self.site.model, "model", Target.parse("c"), flags={"USE_IT": "ON"})
        return self.site.request_key(request)


class OfCodegenOptions(Fields):
    """What the host and a region are told: a region has names and constants of its own."""

    @property
    def value(self) -> CodegenOptions:
        x = var("x", TensorType((2,), "float32"))
        module = infer_types(IRModule({"main": Function([x], call_op("nn.relu", [x]))}))
        target = Target.parse("c")
        return CodegenOptions("model", "model", target, ("-O1",), ("x",), ("y",), module=module)

    def keyed(self) -> Mapping[str, Any]:
        x = var("x", TensorType((3,), "float32"))
        return {
            "name": "other",
            "symbol": "other",
            "target": Target.parse("x86-64-v2"),
            "flags": ("-O2",),
            "inputs": ("z",),
            "outputs": ("z",),
            "threads": 2,
            "opt_level": 2,
            "precise": True,
            "config": {"source": {}},
            "module": infer_types(IRModule({"main": Function([x], call_op("nn.relu", [x]))})),
            "constants": frozenset([0]),
            "levels": (dataclasses.replace(self.value, target=Target.parse("x86-64-v2")),),
        }

    def neutral(self) -> Mapping[str, Any]:
        return {"remember": lambda _place, _digest, make: make()}  # gives what would be made

    def keys(self, value: CodegenOptions) -> object:
        kind = TensorType((2,), "float32")
        program = Program(Weights(), module=value.module)
        ports = RegionPorts("region", "ccompiler", (Port("x", kind),), (Port("y", kind),))
        region = RegionFunction("main", ports, value.constants)
        cut = Partitioned(program, (region,), {HOST_PART: program.digest, "main": program.digest})
        with self.site.cache() as cache:
            actions = Actions(cache, program.weights, "project")
            known = Known.of(Request(self.site.model, "model", value.target), actions)
            generator = CodeGenerator(actions, value, known)
            generator.regions(cut, select(None, {"USE_CODEGENC": "ON"}))
            generator.host(cut)
            # What the host's generator remembers in its turn has keys of its own.
            steps = [looked for looked in cache.journal.looked if looked.slot.count("/") == 2]
        assert [looked.name for looked in steps] == ["codegen_c", "host"]
        return [looked.key for looked in steps]


class OfUnit(Fields):
    @property
    def value(self) -> Unit:
        return Unit("main", '#include "a.h"\nint a = A;\n', ("-O1",), include_dirs=(self.site.include,))

    def keyed(self) -> Mapping[str, Any]:
        return {"name": "other", "text": "int b;\n", "flags": ("-O2",), "language": "c++"}

    def neutral(self) -> Mapping[str, Any]:
        return {"include_dirs": (self.site.same_include,)}  # headers are in the key, by name and content

    def keys(self, value: Unit) -> object:
        from relaybuild.build.cxx import probe_cxx

        compilers = Compilers(self.site.toolchain, probe_cxx(self.site.toolchain) if value.language == "c++" else None)
        with self.site.cache() as cache:
            return library_keys(LibrarySpec("demo", (value,)), compilers, self.site.folder, cache)["object"]


class OfLibrarySpec(Fields):
    @property
    def value(self) -> LibrarySpec:
        # A library that is not found counts by name alone.
        units = (Unit("a", "int a;\n"), Unit("b", "int b;\n"))
        return LibrarySpec("demo", units, (self.site.include,), link_libs=("m", "missing"))

    def keyed(self) -> Mapping[str, Any]:
        return {
            "units": self.value.units[::-1],
            "weights": WeightBlob.from_bytes(b"w", "00" * 32),
            "link_flags": ("-Wl,-s",),
            "link_files": (str(self.site.library),),
            "link_libs": ("m", "lacking"),
            "form": Form.STATIC,
            "public": ("f",),
        }

    def neutral(self) -> Mapping[str, Any]:
        # A name is where work comes up; headers are in the keys of objects.
        return {"name": "another", "include_dirs": (self.site.same_include,)}

    def keys(self, value: LibrarySpec) -> object:
        return self.site.library_keys(value)["link"]


class OfCacheSettings(Fields):
    @property
    def value(self) -> CacheSettings:
        return CacheSettings(self.site.folder / "one")

    def keyed(self) -> Mapping[str, Any]:
        return {"namespace": "pull-request"}

    def neutral(self) -> Mapping[str, Any]:
        return {
            "folder": self.site.folder / "two",
            "mode": Mode.READ,
            "is_shared": True,
            "trusted": ("release",),
            "secret": b"secret",
            "max_size": 1000,
            "origin": "here",
            "remote": RemoteSettings("http://127.0.0.1:9"),
        }

    def keys(self, value: CacheSettings) -> object:
        with open_cache(value) as cache:
            cache.lookup(ActionBuilder("pass", "FoldConstant").output("module").build())
            return [looked.key for looked in cache.journal.looked]


class OfRemoteSettings(Fields):
    value = RemoteSettings("http://127.0.0.1:9", flush_seconds=0.1)

    def keyed(self) -> Mapping[str, Any]:
        return {}

    def neutral(self) -> Mapping[str, Any]:
        return {
            "url": "http://127.0.0.1:10",
            "mode": Mode.READ,
            "token": "token",
            "flush_seconds": 0.2,
            "request_seconds": 2.0,
        }

    def keys(self, value: RemoteSettings) -> object:
        settings = CacheSettings(self.site.folder / "one", remote=value)
        with open_cache(settings) as cache:
            cache.lookup(ActionBuilder("pass", "FoldConstant").output("module").build())
            return [looked.key for looked in cache.journal.looked]


def kinds() -> list[type[Fields]]:
    return Fields.__subclasses__()


@pytest.fixture(scope="module")
def toolchain() -> Toolchain:
    return probe()


Make = Callable[[type[Fields]], Fields]


@pytest.fixture
def make(tmp_path: Path, toolchain: Toolchain, monkeypatch: pytest.MonkeyPatch) -> Make:
    site = Site(tmp_path, toolchain)
    return lambda kind: kind(site, monkeypatch)


@pytest.mark.parametrize("kind", kinds())
def test_every_field_is_keyed_or_neutral(make: Make, kind: type[Fields]) -> None:
    fields = make(kind)
    keyed, neutral = fields.keyed().keys(), fields.neutral().keys()
    assert keyed & neutral == set()
    assert keyed | neutral == fields.names()


@pytest.mark.parametrize("kind", kinds())
def test_what_is_keyed_changes_keys(make: Make, kind: type[Fields]) -> None:
    fields = make(kind)
    keys = {name: fields.keys(fields.replaced(name, value)) for name, value in fields.keyed().items()}
    before = fields.keys(fields.value)
    assert [name for name, key in keys.items() if key == before] == []


@pytest.mark.parametrize("kind", kinds())
def test_what_is_neutral_changes_no_key(make: Make, kind: type[Fields]) -> None:
    fields = make(kind)
    keys = {name: fields.keys(fields.replaced(name, value)) for name, value in fields.neutral().items()}
    before = fields.keys(fields.value)
    assert [name for name, key in keys.items() if key != before] == []


def test_the_place_of_a_model_is_in_no_key(make: Make) -> None:
    fields = make(OfRequest)
    assert fields.keys(fields.replaced("model", fields.site.moved)) == fields.keys(fields.value)


def test_every_config_key_is_in_the_key(make: Make) -> None:
    fields = make(OfPassContext)
    others: Mapping[type, Callable[[Any], Any]] = {bool: lambda value: not value, int: lambda value: value + 1}
    before = fields.keys({})
    for key in PassContext.list_configs().values():
        assert key.kind in others, f"say what another value of '{key.name}' is"
        assert fields.keys({"config": {key.name: others[key.kind](key.default)}}) != before, key.name


def test_a_field_of_neither_kind_is_found(make: Make) -> None:
    class Extended(OfTarget):
        def names(self) -> set[str]:
            return {*super().names(), "another_field"}

    with pytest.raises(AssertionError, match="another_field"):
        test_every_field_is_keyed_or_neutral(make, Extended)
