"""Functions of libraries by name: what a library tells of them, their states, modules within, copies and changes."""

from __future__ import annotations

import contextlib
import gc
import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from relaybuild.errors import UserError
from relaybuild.runtime import Library, Model, Module, load_model, load_module

from .building import build_functions, build_library, cc

Array = np.ndarray[Any, np.dtype[Any]]


@pytest.fixture(scope="session")
def functions_library(libraries: Path) -> Path:
    return build_functions(libraries / "functions.so")


@pytest.fixture
def functions(functions_library: Path) -> Module:
    return load_module(functions_library)


@pytest.fixture(scope="session")
def bare(libraries: Path) -> Module:
    """The same functions, of which no table tells."""
    return load_module(build_functions(libraries / "bare.so", ["WITHOUT_TABLE"]))


def operands() -> tuple[Array, Array, Array]:
    a = np.arange(6, dtype=np.float32).reshape(2, 3)
    return a, 10 * a, np.full((2, 3), -1, np.float32)


def states(module: Module) -> tuple[int, int]:
    """States made so far, and those alive."""
    found = np.zeros(2, np.int64)
    module["made"](found)
    return int(found[0]), int(found[1])


def test_kinds_of_libraries(functions: Module, sample: Module) -> None:
    assert type(functions) is Library
    assert functions.type_key == "library"
    assert type(sample) is Model
    assert sample.type_key == "relaybuild"
    assert isinstance(sample, Module)
    assert functions.get_source() == sample.get_source() == ""


def test_functions_by_name(functions: Module) -> None:
    assert functions.function_names == ("add", "made", "refuse", "twice")
    a, b, out = operands()
    assert functions.get_function("add")(a, b, out) is None
    np.testing.assert_array_equal(out, a + b)
    functions["add"](b, b, out)
    np.testing.assert_array_equal(out, b + b)


def test_a_function_describes_itself(functions: Module, sample: Model) -> None:
    tensor = ((2, 3), "float32")
    assert functions["add"].describe() == ((("a", *tensor), ("b", *tensor)), (("sum", *tensor),))
    assert functions["twice"].describe() is None
    assert functions["twice"].name == "twice"
    assert sample["main"].describe() == (sample.describe()["inputs"], sample.describe()["outputs"])


def test_the_whole_model_is_a_function(sample: Model) -> None:
    """MB02: the model itself by the name of its function."""
    assert sample.function_names == ("main",)
    x, bias = np.ones((2, 64), np.float32), np.ones(64, np.float32)
    y, total = np.zeros((2, 64), np.float32), np.zeros(2, np.float32)
    assert sample["main"](x, bias, y, total) is None
    np.testing.assert_array_equal(y, sample(x, bias)[0])
    np.testing.assert_array_equal(total, sample(x, bias)[1])
    message = "got 3 arguments, function 'main' takes 4: 2 inputs, then 2 outputs to write"
    with pytest.raises(UserError, match=message):
        sample["main"](x, bias, y)


def test_main_runs_with_the_threads_of_the_module(probe_library: Path) -> None:
    module = load_model(probe_library)
    found = np.zeros(2, np.int64)
    module["main"](np.int32([1, 0]), found)
    assert module.num_instances == 1
    assert found[1] == 1


def test_unknown_functions_are_refused_with_the_known_ones(functions: Module, sample: Module) -> None:
    for name in ("nothing", "", "x" * 1000, "_library_ctx", "größe"):
        with pytest.raises(UserError) as caught:
            functions.get_function(name)
        assert f"there is no function '{name}', expected one of 'add', 'made', 'refuse', 'twice'" in str(caught.value)
    with pytest.raises(UserError, match="there is no function 'add', expected one of 'main'"):
        sample["add"]


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("add", lambda a, b, out: (a, b), "got 2 arguments, function 'add' takes 3: 2 inputs, then 1 outputs to write"),
        ("add", lambda a, b, out: (a, b, out, out), "got 4 arguments, function 'add' takes 3"),
        ("add", lambda a, b, out: (a, b[0], out), "function 'add': input 'b' has shape (3,), expected (2, 3)"),
        ("add", lambda a, b, out: (a.astype("f8"), b, out), "input 'a' has dtype float64, expected float32"),
        ("add", lambda a, b, out: (a, b, out.astype("i4")), "output 'sum' has dtype int32, expected float32"),
        ("add", lambda a, b, out: (a, b, out[:1]), "output 'sum' has shape (1, 3), expected (2, 3)"),
        ("add", lambda a, b, out: (a, b, b), "function 'add': output 'sum' shares memory with input 'b'"),
        ("add", lambda a, b, out: (a, 3, out), "input 'b' is of type 'int', expected an array"),
        ("refuse", lambda a, b, out: (a,), "the vault is shut for 7 hours"),
        ("twice", lambda a, b, out: (a, b, out), "twice takes 2 arguments, got 3"),
        ("twice", lambda a, b, out: (a, None), "argument '2' is of type 'NoneType', expected an array"),
        (
            "twice",
            lambda a, b, out: (a.astype(">f4"), out),
            "argument '1' has elements of format '>f', expected numbers",
        ),
    ],
)
def test_wrong_calls(name: str, change: Callable[..., tuple[object, ...]], message: str, functions: Module) -> None:
    a, b, out = operands()
    with pytest.raises(UserError) as caught:
        functions[name](*change(a, b, out))
    assert message in str(caught.value)
    functions["add"](a, b, out)
    np.testing.assert_array_equal(out, a + b)


def test_keywords_are_no_arguments(functions: Module) -> None:
    a, b, out = operands()
    with pytest.raises(TypeError, match="function 'add' takes no keyword arguments"):
        functions["add"](a, b, out=out)


def test_only_a_model_is_called_itself(functions: Module) -> None:
    with pytest.raises(UserError, match=r"type 'library' is no model to be called: use get_function.*'add', 'made'"):
        functions(1)


def test_a_library_without_a_table(bare: Module) -> None:
    assert bare.function_names == ("add", "made", "refuse", "twice")
    assert bare.imported_modules == ()
    a, b, out = operands()
    bare["add"](a, b, out)
    np.testing.assert_array_equal(out, a + b)
    with pytest.raises(UserError, match="function 'add': input 'b' has dtype float64, expected float32"):
        bare["add"](a, b.astype("f8"), out)
    with pytest.raises(UserError, match="the vault is shut for 7 hours"):
        bare["refuse"](a)


def test_what_an_unknown_function_may_write_to(functions: Module) -> None:
    """Where nothing tells inputs from outputs, a copy stands for what cannot be written to in place."""
    twice = functions["twice"]
    a, _, out = operands()
    fixed = a.copy()
    fixed.flags.writeable = False
    for form in (fixed, np.asfortranarray(a), np.repeat(a, 2, axis=1)[:, ::2]):
        out[:] = -1
        twice(form, out)
        np.testing.assert_array_equal(out, 2 * a)
    message = "argument '2' is written to, but is read-only, or not a row-major array"
    for target in (fixed, np.asfortranarray(a), np.zeros((2, 6), np.float32)[:, ::2]):
        before = target.copy()
        with pytest.raises(UserError, match=message):
            twice(a + 1, target)
        np.testing.assert_array_equal(target, before)


def test_a_failure_without_a_reason(tmp_path: Path) -> None:
    (tmp_path / "mute.c").write_text("int __tvm_ffi_mute(void) { return -1; }\n")
    cc("-shared", "-fPIC", tmp_path / "mute.c", "-o", tmp_path / "mute.so")
    with pytest.raises(UserError, match="function 'mute' failed and gave no reason"):
        load_module(tmp_path / "mute.so")["mute"]()


def test_states_are_kept_and_freed(functions: Module) -> None:
    made, alive = states(functions)
    a, b, out = operands()
    add = functions["add"]
    for _ in range(3):
        add(a, b, out)
    assert states(functions) == (made + 1, alive + 1)
    del add
    assert states(functions) == (made + 1, alive)


def test_calls_of_several_threads_never_share_a_state(functions: Module) -> None:
    add = functions["add"]

    def repeat(seed: int) -> bool:
        a = np.full((2, 3), seed, np.float32)
        out = np.empty_like(a)
        right = True
        for _ in range(300):
            add(a, a, out)
            right &= bool((out == 2 * seed).all())
        return right

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(repeat, range(8)))


def test_a_function_outlives_its_module(functions_library: Path) -> None:
    add = load_module(functions_library)["add"]
    gc.collect()
    a, b, out = operands()
    add(a, b, out)
    np.testing.assert_array_equal(out, a + b)


@pytest.mark.parametrize(
    "call",
    [
        lambda m, a, b, out: m["add"](a, b, out),
        lambda m, a, b, out: m["add"](a, b, a),
        lambda m, a, b, out: m["add"](np.asfortranarray(a), b, 1),
        lambda m, a, b, out: m["refuse"](a),
        lambda m, a, b, out: m["twice"](np.asfortranarray(a), out),
        lambda m, a, b, out: m["twice"](a, np.asfortranarray(out)),
        lambda m, a, b, out: m["nothing"],
        lambda m, a, b, out: [part.function_names for part in m.imported_modules],
        lambda m, a, b, out: m["add"].describe(),
    ],
)
def test_no_call_leaks(call: Callable[..., object], functions: Module) -> None:
    def repeat(times: int) -> None:
        for _ in range(times):
            with contextlib.suppress(UserError):
                call(functions, *arrays)

    arrays = operands()
    repeat(200)
    gc.collect()
    before = sys.getallocatedblocks()
    # other threads of the process allocate some meanwhile
    repeat(1000)
    gc.collect()
    assert sys.getallocatedblocks() - before < 500


def test_imported_modules(functions: Module) -> None:
    """RT04: modules within modules."""
    (outer,) = functions.imported_modules
    assert (outer.type_key, outer.function_names, outer.get_source()) == ("c", ("add",), "")
    (inner,) = outer.imported_modules
    assert (inner.type_key, inner.function_names, inner.imported_modules) == ("inner", ("refuse",), ())
    a, b, out = operands()
    outer["add"](a, b, out)
    np.testing.assert_array_equal(out, a + b)
    with pytest.raises(UserError, match="there is no function 'refuse', expected one of 'add'"):
        outer["refuse"]
    with pytest.raises(UserError, match="of type 'c' with 0 blobs is saved with its library"):
        outer.save_to_binary()


def test_copies_of_a_library(sample_library: Path, tmp_path: Path) -> None:
    """RL02: a loaded module becomes a library again, byte by byte."""
    module = load_model(sample_library)
    assert module.save_to_binary() == sample_library.read_bytes()
    copy = tmp_path / "copy.so"
    copy.write_text("something before")
    module.export_library(copy)
    assert copy.read_bytes() == sample_library.read_bytes()
    assert os.access(copy, os.X_OK) == os.access(sample_library, os.X_OK)
    assert [path.name for path in tmp_path.iterdir()] == ["copy.so"]
    with pytest.raises(UserError, match="cannot be written: No such file or directory; name a file in a folder"):
        module.export_library(tmp_path / "missing" / "copy.so")


def test_a_changed_file_is_not_passed_off_as_the_library(tmp_path: Path) -> None:
    path = build_functions(tmp_path / "functions.so")
    module = load_module(path)
    build_library(tmp_path / "model.so").replace(path)
    with pytest.raises(UserError, match="the file has changed since it was loaded: load it again"):
        module.save_to_binary()
    with pytest.raises(UserError, match="the file has changed since it was loaded"):
        module.export_library(tmp_path / "copy.so")
    assert module.function_names == ("add", "refuse")
    a, b, out = operands()
    module["add"](a, b, out)
    np.testing.assert_array_equal(out, a + b)


def test_a_model_is_asked_for(functions_library: Path, sample_library: Path) -> None:
    assert load_model(sample_library, threads=1).num_threads == 1
    with pytest.raises(UserError, match="is a shared library but no model: it lacks the symbol 'relaybuild_model_v1'"):
        load_model(functions_library)
    with pytest.raises(UserError, match="threads is 0, expected 1 to 1024, or None"):
        load_model(sample_library, threads=0)


def test_a_table_of_another_version_is_refused(tmp_path: Path) -> None:
    (tmp_path / "future.c").write_text(
        "unsigned table[64] = {7};\nvoid *relaybuild_library_v1(void);\n"
        "void *relaybuild_library_v1(void) { return table; }\n"
    )
    cc("-shared", "-fPIC", tmp_path / "future.c", "-o", tmp_path / "future.so")
    with pytest.raises(UserError, match="has interface version 7, this relaybuild reads version 1"):
        load_module(tmp_path / "future.so")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_functions_work_in_a_forked_child(functions_library: Path) -> None:
    script = f"""
import os, numpy
from relaybuild.runtime import load_module
add = load_module({str(functions_library)!r})["add"]
a, out = numpy.ones((2, 3), "f4"), numpy.zeros((2, 3), "f4")
add(a, a, out)
child = os.fork()
out[:] = 0
add(a, a, out)
same = (out == 2).all()
if child == 0:
    os._exit(not same)
assert same and os.waitpid(child, 0)[1] == 0
"""
    subprocess.run([sys.executable, "-W", "ignore", "-c", script], check=True, timeout=30)


def test_a_number_of_threads_in_the_place_of_the_format(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"fmt is 2, expected the name of a format; .* threads=2"):
        load_module(tmp_path / "model.so", 2)  # type: ignore[arg-type]
