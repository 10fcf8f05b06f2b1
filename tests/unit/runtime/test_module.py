"""Loading model libraries from Python and calling them: arrays, names, threads, and everything that can be wrong."""

from __future__ import annotations

import contextlib
import gc
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from relaybuild.errors import InternalError, UserError
from relaybuild.runtime import Module, TensorSpec, include_dir, load_module

from .building import INPUTS, OUTPUTS, build_library, cc

Array = np.ndarray[Any, np.dtype[Any]]


def arguments(seed: int = 0) -> tuple[Array, Array]:
    random = np.random.default_rng(seed)
    return random.integers(0, 9, (2, 64)).astype(np.float32), random.integers(0, 9, 64).astype(np.float32)


def expected(x: Array, bias: Array, scale: float = 0.5) -> tuple[Array, Array]:
    weight = np.resize(np.float32([scale, 2.0]), 128)
    flat = x.reshape(-1)
    for _ in range(3):
        flat = weight * np.roll(flat, -1)
    y = flat.reshape(2, 64) + bias
    return y, y.sum(axis=1, dtype=np.float32)


class Producer:
    """An array that offers nothing but DLPack, as it was before version 1 or as it is since."""

    def __init__(self, array: Array, *, versioned: bool = True, device: tuple[int, int] = (1, 0)) -> None:
        self.array = array
        self.device = device
        if versioned:
            self.__class__ = VersionedProducer

    def __dlpack__(self, stream: object = None) -> object:
        return self.array.__dlpack__()

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device


class VersionedProducer(Producer):
    def __dlpack__(self, stream: object = None, **options: Any) -> object:
        return self.array.__dlpack__(**options)


def test_describes_itself(sample: Module, sample_library: Path) -> None:
    assert sample.input_names == ["x", "the bias"]
    assert sample.output_names == ["y", "total"]
    assert sample.signature.inputs == INPUTS
    assert sample.signature.outputs == OUTPUTS
    assert list(sample.signature) == [*INPUTS, *OUTPUTS]
    assert sample.signature[0] == TensorSpec("x", (2, 64), "float32")
    assert sample.metadata == {"kernels": ["scale_and_shift", "add_bias", "sum_rows"]}
    assert (sample.type_key, sample.path, sample.name, sample.target) == (
        "relaybuild",
        str(sample_library),
        "sample",
        "c",
    )
    assert (sample.arena_bytes, sample.weight_bytes) == (1024, 8)
    assert repr(sample) == f"<relaybuild Module 'sample' of '{sample_library}' for c>"


@pytest.mark.parametrize("threads", [1, 2, 3, 4])
def test_computes(threads: int, sample_library: Path) -> None:
    module = load_module(sample_library, threads=threads)
    assert module.num_threads == threads
    for seed in range(20):
        y, total = module(*arguments(seed))
        np.testing.assert_array_equal(y, expected(*arguments(seed))[0])
        np.testing.assert_array_equal(total, expected(*arguments(seed))[1])


def test_ways_to_call(sample: Module) -> None:
    x, bias = arguments()
    wanted = expected(x, bias)
    results = [
        sample(x, bias),
        sample(x, **{"the bias": bias}),
        sample(**{"the bias": bias, "x": x}),
        sample(**{"".join(["the", " bias"]): bias, "".join(["", "x"]): x}),
        sample.run_list([x, bias]),
        tuple(sample.run({"the bias": bias, "x": x}).values()),
    ]
    for y, total in results:
        np.testing.assert_array_equal(y, wanted[0])
        np.testing.assert_array_equal(total, wanted[1])


def test_results_are_fresh(sample: Module) -> None:
    first, _ = sample(*arguments(1))
    kept = first.copy()
    sample(*arguments(2))
    np.testing.assert_array_equal(first, kept)
    assert first.flags.owndata
    assert first.flags.writeable


def test_run_into_writes_in_place(sample: Module) -> None:
    """MB13: outputs are written where they shall be."""
    y, total = np.zeros((2, 64), np.float32), np.zeros(2, np.float32)
    assert sample.run_into(arguments(), [y, total]) is None  # type: ignore[func-returns-value]
    np.testing.assert_array_equal(y, expected(*arguments())[0])
    np.testing.assert_array_equal(total, expected(*arguments())[1])


def misaligned(array: Array) -> Array:
    raw = np.empty(array.nbytes + 1, np.uint8)
    raw[1:] = array.view(np.uint8).reshape(-1)
    return raw[1:].view(array.dtype).reshape(array.shape)


@pytest.mark.parametrize(
    "form",
    [
        np.asfortranarray,
        lambda x: np.repeat(x, 2, axis=1)[:, ::2],
        lambda x: x[::-1].copy()[::-1],
        misaligned,
        Producer,
        lambda x: Producer(x, versioned=False),
        lambda x: Producer(np.asfortranarray(x)),
        lambda x: Producer(misaligned(x)),
        lambda x: memoryview(np.ascontiguousarray(x)),
    ],
)
def test_any_form_of_an_array(form: Callable[[Array], object], sample: Module) -> None:
    x, bias = arguments()
    y, _ = sample(form(x), bias)
    np.testing.assert_array_equal(y, expected(x, bias)[0])


def test_read_only_input(sample: Module) -> None:
    x, bias = arguments()
    x.flags.writeable = False
    np.testing.assert_array_equal(sample(x, bias)[0], expected(x, bias)[0])


@pytest.mark.parametrize("form", [lambda x: x, Producer, lambda x: Producer(x, versioned=False)])
def test_contiguous_memory_is_not_copied(form: Callable[[Array], object], probe: Module) -> None:
    """MB13: inputs are read where they lie."""
    x = np.zeros(2, np.int32)
    assert probe(form(x))[0] == x.ctypes.data


def test_nothing_keeps_the_input(probe: Module) -> None:
    for form in (lambda x: x, Producer, lambda x: Producer(x, versioned=False)):
        x = np.zeros(2, np.int32)
        before = sys.getrefcount(x)
        probe(form(x))
        assert sys.getrefcount(x) == before


def test_pytorch_tensors(sample: Module) -> None:
    torch = pytest.importorskip("torch")
    x, bias = arguments()
    for tensor in (torch.from_numpy(x), torch.from_numpy(x.T.copy()).T):
        np.testing.assert_array_equal(sample(tensor, torch.from_numpy(bias))[0], expected(x, bias)[0])
    with pytest.raises(UserError, match=r"input 'x' cannot be read as an array: .*requires? grad"):
        sample(torch.from_numpy(x).requires_grad_(), bias)


CODES = {"bool": "Bool", "float": "Float", "int": "Int", "uint": "UInt", "complex": "Complex"}
DTYPES = ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
DTYPES += ["float16", "float32", "float64", "complex64", "complex128"]


@pytest.mark.parametrize("dtype", DTYPES)
def test_dtypes(dtype: str, libraries: Path) -> None:
    bits = np.dtype(dtype).itemsize * 8
    code = CODES[dtype.rstrip("0123456789")]
    module = load_module(build_library(libraries / f"{dtype}.so", "dtypes.c", [f"CODE=kDL{code}", f"BITS={bits}"]))
    x = np.array([0, 1, 1, 0, 1]).astype(dtype)
    y = module(x)
    assert y.dtype == dtype
    assert module.signature.inputs == (TensorSpec("x", (5,), dtype),)
    np.testing.assert_array_equal(y, x)
    np.testing.assert_array_equal(module(Producer(x)), x)
    np.testing.assert_array_equal(module(np.repeat(x, 2)[::2]), x)


def test_scalars(libraries: Path) -> None:
    defines = ["CODE=kDLFloat", "BITS=32", "NDIM=0"]
    module = load_module(build_library(libraries / "scalar.so", "dtypes.c", defines))
    assert module(np.float32(2.5)) == 2.5
    y = module(np.array(3.5, np.float32))
    assert (y.shape, y[()]) == ((), 3.5)
    with pytest.raises(UserError, match=r"input 'x' has shape \(1,\), expected \(\)"):
        module(np.zeros(1, np.float32))


def wrong(x: object = None, bias: object = None) -> tuple[object, object]:
    good = arguments()
    return (good[0] if x is None else x, good[1] if bias is None else bias)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (wrong(x=np.zeros((2, 64))), "input 'x' has dtype float64, expected float32"),
        (wrong(x=np.zeros((2, 64), ">f4")), "input 'x' has elements of format '>f', expected float32"),
        (wrong(x=np.zeros((2, 64), "S4")), "input 'x' has elements of format '4s', expected float32"),
        (wrong(x=np.zeros((2, 64), "M8[s]")), "input 'x' cannot be read as an array: cannot include dtype 'M'"),
        (wrong(x=np.zeros((2, 63), "f4")), "input 'x' has shape (2, 63), expected (2, 64)"),
        (wrong(bias=np.zeros((1, 64), "f4")), "input 'the bias' has shape (1, 64), expected (64,)"),
        (wrong(bias=np.zeros(64, "i4")), "input 'the bias' has dtype int32, expected float32"),
        (wrong(bias=np.zeros((), "f4")), "input 'the bias' has shape (), expected (64,)"),
        (wrong(bias=b"bytes"), "input 'the bias' has dtype uint8, expected float32"),
        (wrong(bias=[0.0] * 64), "input 'the bias' is of type 'list', expected an array"),
        (wrong(bias=Producer(np.zeros(64), versioned=False)), "input 'the bias' has dtype float64, expected float32"),
        (wrong(bias=Producer(np.zeros(64, "f4"), device=(2, 0))), "is on a device of DLPack type 2, expected the CPU"),
        (wrong()[:1], "input 'the bias' is missing, expected the inputs 'x', 'the bias'"),
        ((), "input 'x' is missing, expected the inputs 'x', 'the bias'"),
        ((*wrong(), 1), "got 3 inputs, expected the inputs 'x', 'the bias'"),
    ],
)
def test_wrong_inputs(call: tuple[object, ...], message: str, sample: Module) -> None:
    with pytest.raises(UserError) as caught:
        sample(*call)
    assert message in str(caught.value)
    np.testing.assert_array_equal(sample(*arguments())[0], expected(*arguments())[0])


def test_wrong_names(sample: Module) -> None:
    x, bias = arguments()
    with pytest.raises(UserError, match="the model has no input 'z', expected the inputs 'x', 'the bias'"):
        sample(x, z=bias)
    with pytest.raises(UserError, match="input 'x' is given twice"):
        sample(x, x=x)
    with pytest.raises(UserError, match="unknown 'a', 'z' and missing 'the bias', expected the inputs 'x', 'the bias'"):
        sample.run({"x": x, "z": bias, "a": bias})
    for inputs, kind in ((None, "NoneType"), ([x, bias], "list")):
        message = f"the inputs are of type '{kind}', expected arrays by name: 'x', 'the bias'"
        with pytest.raises(UserError, match=message):
            sample.run(inputs)  # type: ignore[arg-type]


def test_wrong_outputs(sample: Module) -> None:
    x, bias = arguments()
    y, total = np.zeros((2, 64), np.float32), np.zeros(2, np.float32)
    with pytest.raises(UserError, match="got 1 outputs, the model has 2"):
        sample.run_into([x, bias], [y])
    with pytest.raises(UserError, match="output 'y' has dtype float64, expected float32"):
        sample.run_into([x, bias], [y.astype(np.float64), total])
    with pytest.raises(UserError, match="output 'y' is not a row-major array"):
        sample.run_into([x, bias], [np.asfortranarray(y), total])
    with pytest.raises(UserError, match="output 'y' shares memory with input 'x'"):
        sample.run_into([x, bias], [x, total])
    y.flags.writeable = False
    with pytest.raises(UserError, match=r"output 'y' cannot be read as an array: .*read-only"):
        sample.run_into([x, bias], [y, total])
    with pytest.raises(TypeError, match="two sequences"):
        sample.run_into([x, bias])  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        sample.run_into([x, bias], 3)  # type: ignore[arg-type]


def test_error_of_a_producer_is_passed_on(sample: Module) -> None:
    class Broken(Producer):
        def __dlpack__(self, stream: object = None, **options: Any) -> object:
            raise BufferError("lies in a vault")

    class Liar(Producer):
        def __dlpack__(self, stream: object = None, **options: Any) -> object:
            return "no capsule"

    class Interrupted(Producer):
        def __dlpack__(self, stream: object = None, **options: Any) -> object:
            raise KeyboardInterrupt

    with pytest.raises(UserError, match="input 'x' cannot be read as an array: lies in a vault") as caught:
        sample(Broken(arguments()[0], versioned=False), arguments()[1])
    assert isinstance(caught.value.__cause__, BufferError)
    with pytest.raises(KeyboardInterrupt):
        sample(Interrupted(arguments()[0], versioned=False), arguments()[1])
    with pytest.raises(UserError, match=r"input 'x' cannot be read as an array: .*[Cc]apsule"):
        sample(Liar(arguments()[0], versioned=False), arguments()[1])


@pytest.mark.parametrize(
    "call",
    [
        lambda m, x, bias: m(x, bias),
        lambda m, x, bias: m(x, **{"the bias": bias}),
        lambda m, x, bias: m(np.asfortranarray(x), Producer(bias)),
        lambda m, x, bias: m(Producer(np.asfortranarray(x), versioned=False), bias),
        lambda m, x, bias: m.run({"x": x, "the bias": bias}),
        lambda m, x, bias: m.run_into([x, bias], [np.empty_like(x), np.empty(2, np.float32)]),
        lambda m, x, bias: m.describe(),
        lambda m, x, bias: m(x, x),
        lambda m, x, bias: m(x, 1),
        lambda m, x, bias: m(x, bias, bias),
        lambda m, x, bias: m(x, x=x),
        lambda m, x, bias: m(x, z=x),
        lambda m, x, bias: m(Producer(x.astype(np.float64)), bias),
        lambda m, x, bias: m(Producer(x, device=(2, 0)), bias),
        lambda m, x, bias: m(x.astype("M8[s]"), bias),
        lambda m, x, bias: m.run_into([x, bias], [x, bias]),
        lambda m, x, bias: m.run_into([x, bias], [x]),
        lambda m, x, bias: m.run_into([x], 3),
    ],
)
def test_no_call_leaks(call: Callable[[Module, Array, Array], object], sample: Module) -> None:
    def repeat(times: int) -> None:
        for _ in range(times):
            with contextlib.suppress(UserError, TypeError):
                call(sample, *inputs)

    def growth() -> int:
        gc.collect()
        before = sys.getallocatedblocks()
        repeat(200)
        gc.collect()
        return sys.getallocatedblocks() - before

    inputs = arguments()
    repeat(300)
    # other threads of the process allocate some meanwhile
    assert min(growth() for _ in range(3)) < 100


def test_calls_from_several_threads_run_at_once(probe: Module) -> None:
    with ThreadPoolExecutor(3) as pool:
        calls = [pool.submit(probe, np.int32([3, 0])) for _ in range(3)]
    assert [int(call.result()[1]) for call in calls] == [3, 3, 3]
    assert probe.num_instances == 3


def test_threads_never_share_a_buffer(sample: Module) -> None:
    def work(seed: int) -> bool:
        x, bias = arguments(seed)
        wanted = expected(x, bias)[0]
        return all(np.array_equal(sample(x, bias)[0], wanted) for _ in range(100))

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(8)))
    assert sample.num_instances <= 4


def test_a_producer_may_call_the_model(sample: Module) -> None:
    x, bias = arguments()

    class Caller(Producer):
        def __dlpack__(self, stream: object = None, **options: Any) -> object:
            sample(x, bias)
            return super().__dlpack__()

    np.testing.assert_array_equal(sample(Caller(x, versioned=False), bias)[0], expected(x, bias)[0])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_works_in_a_forked_child(sample_library: Path) -> None:
    script = f"""
import os, numpy
from relaybuild.runtime import load_module
module = load_module({str(sample_library)!r}, threads=3)
x, bias = numpy.ones((2, 64), "f4"), numpy.ones(64, "f4")
total = module(x, bias)[1]
child = os.fork()
same = (module(x, bias)[1] == total).all()
if child == 0:
    os._exit(not same)
assert same and os.waitpid(child, 0)[1] == 0
"""
    subprocess.run([sys.executable, "-W", "ignore", "-c", script], check=True, timeout=30)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_loading_and_dropping_leaves_nothing(sample_library: Path) -> None:
    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")

    def cycle(times: int) -> None:
        for _ in range(times):
            load_module(sample_library, threads=3)(*arguments())

    gc.collect()
    threads = len(os.listdir("/proc/self/task"))
    cycle(20)
    before = resident()
    cycle(100)
    assert len(os.listdir("/proc/self/task")) == threads
    assert resident() - before < 2 << 20
    assert str(sample_library) not in Path("/proc/self/maps").read_text()


def test_a_new_file_under_an_old_name_is_loaded_anew(tmp_path: Path) -> None:
    path = tmp_path / "model.so"
    x, bias = arguments()
    build_library(path)
    old = load_module(path)
    build_library(tmp_path / "next.so", defines=["SCALE=4.0f"])
    os.replace(tmp_path / "next.so", path)
    new = load_module(path)
    np.testing.assert_array_equal(new(x, bias)[0], expected(x, bias, 4.0)[0])
    np.testing.assert_array_equal(old(x, bias)[0], expected(x, bias, 0.5)[0])


def test_path_with_spaces_and_letters(sample_library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "ein Ordner mit Ümläuten"
    folder.mkdir()
    shutil.copy(sample_library, folder / "mödel.so")
    monkeypatch.chdir(folder)
    assert load_module("mödel.so").path == str(folder / "mödel.so")


def test_number_of_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """MB12: the environment says how many threads a model uses that is not told otherwise."""
    limited = build_library(tmp_path / "limited.so", defines=["DEFAULT_THREADS=2", "MAX_THREADS=3"])
    free = build_library(tmp_path / "free.so")
    monkeypatch.delenv("RELAYBUILD_NUM_THREADS", raising=False)
    assert load_module(limited).num_threads == 2
    assert load_module(limited, threads=4).num_threads == 3
    assert load_module(free).num_threads == (
        len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count()
    )
    monkeypatch.setenv("RELAYBUILD_NUM_THREADS", "1")
    assert load_module(limited).num_threads == 1
    assert load_module(limited, threads=2).num_threads == 2
    monkeypatch.setenv("RELAYBUILD_NUM_THREADS", "0")
    with pytest.raises(UserError, match="RELAYBUILD_NUM_THREADS is '0', expected a whole number from 1 to 1024"):
        load_module(limited)
    assert load_module(free, threads=np.int64(2)).num_threads == 2  # type: ignore[arg-type]
    for threads in (0, -1, 5000, 2**40, "2", 2.0):
        with pytest.raises(UserError, match=f"threads is {threads!r}, expected 1 to 1024, or None for the default"):
            load_module(free, threads=threads)  # type: ignore[arg-type]


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"missing\.so: there is no such file, expected a model library"):
        load_module(tmp_path / "missing.so")
    with pytest.raises(UserError, match="is not a file, expected a model library"):
        load_module(tmp_path)


def test_not_a_library(tmp_path: Path) -> None:
    path = tmp_path / "text.so"
    for content in (b"", b"some text", b"\x7fELF" + bytes(200)):
        path.write_bytes(content)
        with pytest.raises(UserError, match=r"text\.so' cannot be loaded as a shared library: ") as raised:
            load_module(path)
        assert str(raised.value).count("text.so") == 1


def test_cut_library_is_refused_not_mapped(sample_library: Path, tmp_path: Path) -> None:
    whole = sample_library.read_bytes()
    path = tmp_path / "cut.so"
    for size in (6, 63, 64, 200, 1000, len(whole) // 3, len(whole) // 2, len(whole) - 1):
        path.unlink(missing_ok=True)
        path.write_bytes(whole[:size])
        with pytest.raises(UserError, match=r"cut\.so: the file is cut short, it lacks \d+ bytes"):
            load_module(path)


def test_library_that_is_no_model(tmp_path: Path) -> None:
    (tmp_path / "other.c").write_text("int other(void);\nint other(void) { return 1; }\n")
    cc("-shared", "-fPIC", tmp_path / "other.c", "-o", tmp_path / "other.so")
    with pytest.raises(UserError, match="is a shared library but no model: it lacks the symbol 'relaybuild_model_v1'"):
        load_module(tmp_path / "other.so")


def test_other_interface_version(tmp_path: Path) -> None:
    (tmp_path / "future.c").write_text(
        '#include "relaybuild/model.h"\n'
        "const RbModelApi *relaybuild_model_v1(void);\n"
        "static const RbModelApi api = {.abi_version = 7};\n"
        "const RbModelApi *relaybuild_model_v1(void) { return &api; }\n"
    )
    cc("-shared", "-fPIC", f"-I{include_dir()}", tmp_path / "future.c", "-o", tmp_path / "future.so")
    with pytest.raises(UserError, match="has interface version 7, this relaybuild reads version 1: compile the model"):
        load_module(tmp_path / "future.so")


def test_broken_program_is_an_internal_error(tmp_path: Path) -> None:
    library = build_library(tmp_path / "broken.so", defines=["ABI_VERSION=9"])
    with pytest.raises(InternalError, match="model 'sample' has interface version 9, its runtime 1"):
        load_module(library)


def test_dropping_a_module_during_a_call(probe_library: Path) -> None:
    module: Module | None = load_module(probe_library)
    results: list[Array] = []
    call = threading.Thread(target=lambda run: results.append(run(np.int32([2, 0]))), args=(module,))
    call.start()
    other = load_module(probe_library)
    module = None
    other(np.int32([2, 0]))
    call.join()
    assert results[0][1] == 2
