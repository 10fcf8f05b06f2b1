"""Runs the text tests of `tests/lit`: programs in, passes over them, exact text out.

A file holds cases between lines `// -----`. A case names its passes, `// RUN: pass-name{option=value} other-pass`, then
the program, then `// CHECK:` and the text that must come out, without version line and metadata. Its weights are
declared by `// WEIGHT: float32 4,3,3,3` lines in order of slots, and filled with numbers. A line `// TYPES` asks for
the types in what comes out. `// SUPPORTS: tag add nn.relu` makes the compiler of a tag take calls of these operators,
`// PATTERN: tag name = is_op("nn.relu")(wildcard())` adds a pattern to the table of a tag, in order. Every case is also
run before and after, and must mean the same, unless a line `// MEANS ANOTHER` says that its passes change what is
computed.

`RELAYBUILD_UPDATE_GOLDEN=1 pytest tests/test_lit.py` writes what comes out into the files.
"""

from __future__ import annotations

import ast
import json
import os
import re
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from relaybuild.ir import pattern as dataflow_pattern
from relaybuild.ir.interpreter import interpret
from relaybuild.ir.module import IRModule
from relaybuild.ir.parser import parse
from relaybuild.ir.printer import functions_text
from relaybuild.ir.types import TensorType
from relaybuild.ir.verifier import verify_module
from relaybuild.partition.backend import register_supports
from relaybuild.partition.pattern_table import register_pattern_table
from relaybuild.passes.infra import PassContext, builtin_passes, get_pass

ROOT = Path(__file__).parent / "lit"
PASS = re.compile(r"(?P<name>[a-z][a-z0-9-]*)(?:\{(?P<options>[^}]*)\})?")
UPDATE = bool(os.environ.get("RELAYBUILD_UPDATE_GOLDEN"))


@dataclass(frozen=True)
class Case:
    path: Path
    index: int
    text: str

    @property
    def directives(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {"RUN": [], "WEIGHT": [], "SUPPORTS": [], "PATTERN": []}
        for key, value in re.findall(r"^// (RUN|WEIGHT|SUPPORTS|PATTERN): (.*)$", self.text, re.M):
            found[key].append(value)
        return found

    @property
    def program(self) -> str:
        return self.text.split("// CHECK:")[0]

    @property
    def expected(self) -> str:
        return self.text.split("// CHECK:", 1)[1].strip() if "// CHECK:" in self.text else ""


def cases() -> list[Case]:
    return [
        Case(path, index, text)
        for path in sorted(ROOT.rglob("*.relay"))
        for index, text in enumerate(path.read_text(encoding="utf-8").split("// -----\n"))
    ]


def case_id(case: Case) -> str:
    return f"{case.path.relative_to(ROOT).with_suffix('')}-{case.index}"


@pytest.mark.parametrize("case", cases(), ids=case_id)
def test_case(case: Case) -> None:
    before = _read(case)
    for line in case.directives["SUPPORTS"]:
        tag, *op_names = line.split()
        for op_name in op_names:
            register_supports(tag, op_name)(lambda call: True)
    _register_patterns(case.directives["PATTERN"])
    with PassContext(opt_level=3):
        after = before
        for match in PASS.finditer(" ".join(case.directives["RUN"])):
            after = get_pass(match["name"], **_options(match["options"]))(after)
    verify_module(after)
    found = functions_text(after, show_types="// TYPES\n" in case.text).strip()
    if UPDATE:
        _rewrite(case, found)
    else:
        assert found == case.expected
    if "// MEANS ANOTHER\n" not in case.text:
        _check_meaning(before, after)


def test_every_pass_has_text_tests() -> None:
    words = {path.stem.replace("_", "") for path in (ROOT / "passes").glob("*.relay")}
    untested = {name for name in builtin_passes() if name.lower() not in words}
    assert untested <= {"PrintIR", "BackwardFoldScaleAxis"}


def _read(case: Case) -> IRModule:
    weights = case.directives["WEIGHT"]
    if not weights:
        return parse(case.program, str(case.path))
    random = np.random.default_rng(0)
    arrays = [_array(random, *weight.split()) for weight in weights]
    slots = [{"dtype": array.dtype.name, "shape": list(array.shape)} for array in arrays]
    return parse(f"{case.program}\n#[metadata]{json.dumps({'relay.Constant': slots})}", str(case.path), arrays)


def _array(random: np.random.Generator, dtype: str, shape: str = "") -> np.ndarray[Any, np.dtype[Any]]:
    extents = tuple(int(extent) for extent in shape.split(",") if extent)
    return (random.random(extents) + 0.5).astype(dtype)


def _register_patterns(lines: list[str]) -> None:
    tables: dict[str, list[tuple[str, Any]]] = {}
    for line in lines:
        names, expression = line.split(" = ", 1)
        tag, name = names.split()
        tables.setdefault(tag, []).append((name, eval(expression, dict(vars(dataflow_pattern)))))
    for tag, table in tables.items():
        register_pattern_table(tag, partial(list, table))


def _options(text: str | None) -> dict[str, object]:
    pairs = [item.split("=", 1) for item in (text or "").split(",") if item.strip()]
    return {name.strip(): ast.literal_eval(value.strip()) for name, value in pairs}


def _rewrite(case: Case, found: str) -> None:
    parts = case.path.read_text(encoding="utf-8").split("// -----\n")
    parts[case.index] = f"{case.program.rstrip()}\n// CHECK:\n{found}\n"
    case.path.write_text("// -----\n".join(parts), encoding="utf-8")


def _check_meaning(before: IRModule, after: IRModule) -> None:
    if "main" not in before:
        return
    random = np.random.default_rng(1)
    kinds = [param.checked_type if param.has_type else None for param in before["main"].params]
    if not all(isinstance(kind, TensorType) and kind.is_static for kind in kinds):
        return
    args = [_argument(random, kind) for kind in kinds if isinstance(kind, TensorType)]
    _assert_close(interpret(before, *args), interpret(after, *args))


def _argument(random: np.random.Generator, kind: TensorType) -> np.ndarray[Any, np.dtype[Any]]:
    values = random.normal(size=kind.static_shape) * (1 if kind.dtype.startswith("float") else 10)
    return np.asarray(np.abs(values) if kind.dtype.startswith("u") else values).astype(kind.dtype)


def _assert_close(a: Any, b: Any) -> None:
    if isinstance(a, tuple):
        assert len(a) == len(b)
        for left, right in zip(a, b):
            _assert_close(left, right)
    else:
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
