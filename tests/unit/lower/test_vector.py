"""The functions of the kernels' header against numpy in double precision, for every number of lanes."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from relaybuild.build.toolchain import probe
from relaybuild.lower.sources import include_dir
from relaybuild.target import Target

Array = NDArray[Any]
TARGETS = {1: "c", 4: "x86-64-v2", 8: "x86-64-v3", 16: "x86-64-v4"}
UNARY = [
    "exp",
    "log",
    "tanh",
    "sigmoid",
    "erf",
    "floor",
    "ceil",
    "round",
    "trunc",
    "sqrt",
    "abs",
    "sign",
    "relu",
    "neg",
]
BINARY = ["max", "min", "floordiv", "floormod", "pow"]


def runnable_lanes() -> list[int]:
    if Target.host().arch != "x86-64":
        return [1]
    return [lanes for lanes in TARGETS if lanes <= Target.host().vector_lanes]


@pytest.fixture(scope="module", params=runnable_lanes())
def library(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    lanes: int = request.param
    lines = [f"#define RB_LANES {lanes}", '#include "relaybuild/vector.h"']
    loop = "for (ptrdiff_t i = 0; i < n; i += RB_LANES)"
    for name in UNARY:
        body = f"rb_store(out + i, rb_{name}(rb_load(a + i)));"
        lines.append(f"void run_{name}(const float *a, float *out, ptrdiff_t n) {{ {loop} {body} }}")
    for name in BINARY:
        body = f"rb_store(out + i, rb_{name}(rb_load(a + i), rb_load(b + i)));"
        lines.append(f"void run_{name}(const float *a, const float *b, float *out, ptrdiff_t n) {{ {loop} {body} }}")
    for name in ("sum", "max", "min", "prod"):
        lines.append(f"float lanes_{name}(const float *a) {{ return rb_{name}_lanes(rb_load(a)); }}")
    squares = {"square": "rb_transpose(rows)", "far_square": "rb_load_transposed(rows, a, step)"}
    for name, body in squares.items():
        parameters = "const float *a, ptrdiff_t step, float *out"
        load = "rb_v rows[RB_LANES]; for (int i = 0; i < RB_LANES; ++i) rows[i] = rb_load(a + i * step);"
        put = "for (int i = 0; i < RB_LANES; ++i) rb_store(out + i * RB_LANES, rows[i]);"
        lines.append(f"void run_{name}({parameters}) {{ {load} {body}; {put} }}")
    folder = tmp_path_factory.mktemp(f"lanes{lanes}")
    (folder / "vector.c").write_text("\n".join([*lines, ""]))
    toolchain, output = probe(None), folder / "vector.so"
    flags = [
        *toolchain.cflags,
        *toolchain.kernel_cflags,
        *Target.parse(TARGETS[lanes]).cflags,
        "-fvisibility=default",
        "-shared",
    ]
    command = [str(toolchain.path), *flags, f"-I{include_dir()}", str(folder / "vector.c"), "-lm", "-o", str(output)]
    subprocess.run(command, check=True)
    loaded = ctypes.CDLL(str(output))
    loaded.lanes = lanes  # type: ignore[attr-defined]
    return loaded


def apply(library: ctypes.CDLL, name: str, *values: Array) -> Array:
    arrays = [np.ascontiguousarray(value, "float32") for value in values]
    out = np.empty_like(arrays[0])
    pointers = [array.ctypes.data_as(ctypes.c_void_p) for array in (*arrays, out)]
    getattr(library, f"run_{name}")(*pointers, ctypes.c_ssize_t(out.size))
    return out


@cache
def numbers(low: float, high: float, count: int = 1 << 16) -> Array:
    """Evenly spaced, and logarithmically towards zero on both sides."""
    even = np.linspace(low, high, count // 2)
    small = np.geomspace(1e-38, max(abs(low), abs(high)), count // 4)
    both = np.concatenate([even, small, -small]).astype("float32")
    return both[(both >= low) & (both <= high)][: len(both) // 16 * 16 - 64 & ~15]


FINITE = [0.0, -0.0, 1e-45, -1e-45, 3.4e38, -3.4e38, 1, -1, 0.5, -0.5, 2.5, 1.5, 7]
SPECIAL = np.asarray([*FINITE, np.inf, -np.inf, np.nan], "float32")


def ulps(found: Array, exact: Array) -> float:
    """The largest distance in units of the last place of the exact value as a float."""
    with np.errstate(over="ignore", invalid="ignore"):
        spacing = np.spacing(np.maximum(np.abs(exact), 1.2e-38).astype("float32")).astype("float64")
    fine = np.isfinite(exact) & (np.abs(exact) <= 3.4028234e38)
    assert np.isfinite(found[fine]).all()
    return float((np.abs(found[fine].astype("float64") - exact[fine]) / spacing[fine]).max())


def sigmoid(x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-x)))


def erf(x: Array) -> Array:
    from math import erf as exact

    return np.asarray([exact(value) for value in x])


ACCURATE: list[tuple[str, Callable[[Array], Array], float, float, float]] = [
    ("exp", np.exp, -87.0, 88.7, 2.0),
    ("log", np.log, 1e-38, 3.4e38, 2.0),
    ("tanh", np.tanh, -12.0, 12.0, 6.0),
    ("sigmoid", sigmoid, -80.0, 80.0, 6.0),
    ("sqrt", np.sqrt, 0.0, 1e30, 1.0),
]


@pytest.mark.parametrize(("name", "exact", "low", "high", "most"), ACCURATE, ids=[row[0] for row in ACCURATE])
def test_units_in_the_last_place(
    library: ctypes.CDLL, name: str, exact: Callable[[Array], Array], low: float, high: float, most: float
) -> None:
    x = numbers(low, high)
    assert ulps(apply(library, name, x), exact(x.astype("float64"))) <= most


def test_erf_is_close(library: ctypes.CDLL) -> None:
    x = numbers(-6.0, 6.0, 1 << 14)
    assert np.abs(apply(library, "erf", x).astype("float64") - erf(x.astype("float64"))).max() <= 5e-7


def test_small_arguments_keep_their_precision(library: ctypes.CDLL) -> None:
    x = np.geomspace(1e-30, 1e-3, 4096).astype("float32")
    for name, exact in (("tanh", np.tanh), ("erf", erf)):
        assert ulps(apply(library, name, x), exact(x.astype("float64"))) <= 4


@pytest.mark.parametrize("name", UNARY)
def test_special_values(library: ctypes.CDLL, name: str) -> None:
    functions: dict[str, Callable[[Array], Array]] = {
        "sigmoid": sigmoid,
        "erf": erf,
        "round": np.rint,
        "relu": lambda x: np.maximum(x, 0),
        "neg": np.negative,
    }
    with np.errstate(all="ignore"):
        exact = functions.get(name, getattr(np, name, None))(SPECIAL.astype("float64")).astype("float32")  # type: ignore[misc]
    found = apply(library, name, SPECIAL)
    np.testing.assert_allclose(found, exact, rtol=1e-6, atol=2e-38)


def test_what_no_single_number_holds_of_a_sigmoid_is_zero(library: ctypes.CDLL) -> None:
    x = np.array([-89, -100, -1e9, -np.inf] * 8, "float32")
    assert not apply(library, "sigmoid", x).any()


@pytest.mark.parametrize("name", ["floor", "ceil", "round", "trunc"])
def test_rounding_is_exact(library: ctypes.CDLL, name: str) -> None:
    x = np.concatenate([numbers(-1e6, 1e6), np.arange(-64, 64).astype("float32") / 2])
    exact = np.rint(x) if name == "round" else getattr(np, name)(x)
    np.testing.assert_array_equal(apply(library, name, x), exact)


@pytest.mark.parametrize("name", BINARY)
def test_pairs(library: ctypes.CDLL, name: str) -> None:
    functions: dict[str, Callable[[Array, Array], Array]] = {
        "max": np.maximum,
        "min": np.minimum,
        "floordiv": lambda a, b: np.floor(a / b),
        "floormod": np.mod,
        "pow": np.power,
    }
    r = np.random.default_rng(1)
    pairs = [special.reshape(-1) for special in np.meshgrid(SPECIAL, SPECIAL)]
    a, b = (np.concatenate([r.normal(size=4096) * 50, special]).astype("float32") for special in pairs)
    with np.errstate(all="ignore"):
        exact = functions[name](a, b)
    np.testing.assert_allclose(apply(library, name, a, b), exact, rtol=2e-6, atol=1e-37)


def test_lanes_are_reduced(library: ctypes.CDLL) -> None:
    lanes: int = library.lanes  # type: ignore[attr-defined]
    x = (np.arange(16, dtype="float32") % 5 - 1.5)[:lanes].copy()
    pointer = x.ctypes.data_as(ctypes.c_void_p)
    for name in ("sum", "max", "min", "prod"):
        function = getattr(library, f"lanes_{name}")
        function.restype = ctypes.c_float
        assert function(pointer) == pytest.approx(float(getattr(np, name)(x)))
    for place in range(lanes):
        holed = x.copy()
        holed[place] = np.nan
        for name in ("max", "min"):
            assert np.isnan(getattr(library, f"lanes_{name}")(holed.ctypes.data_as(ctypes.c_void_p)))


@pytest.mark.parametrize("name", ["square", "far_square"])
def test_squares_are_transposed(library: ctypes.CDLL, name: str) -> None:
    lanes: int = library.lanes  # type: ignore[attr-defined]
    step = lanes + 3
    values = np.arange(lanes * step + 1, dtype=np.float32)
    found = np.zeros((lanes, lanes), np.float32)
    pointers = (ctypes.c_void_p(array.ctypes.data) for array in (values[1:], found))
    getattr(library, f"run_{name}")(next(pointers), ctypes.c_ssize_t(step), next(pointers))
    np.testing.assert_array_equal(found, values[1:].reshape(lanes, step)[:, :lanes].T)
