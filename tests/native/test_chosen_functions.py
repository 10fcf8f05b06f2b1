"""Programs in which conditionals choose functions, compiled, against the interpreter on every way through them."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np
import pytest
from compiling import check, compiled
from runners.compiled import threads_wanted_always

from relaybuild.runtime import load_module

V = "Tensor[(5,), float32]"
F = f"fn(%y: {V}) -> {V}"

FUNCTIONS = f"""
def @twice[A](%f: fn(A) -> A, %x: A) -> A {{ %f(%f(%x)) }}
def @repeat(%n: int32, %f: fn({V}) -> {V}, %x: {V}) -> {V} {{
  if (less(%n, 1)) {{ %x }} else {{ @repeat(subtract(%n, 1), %f, %f(%x)) }}
}}
def @either(%n: int32, %x: {V}) -> {V} {{
  if (less(%n, 1)) {{ %x }} else {{
    %1 = if (less(sum(%x), 3f)) {{ @either }} else {{ @other }};
    %1(subtract(%n, 1), negative(%x))
  }}
}}
def @other(%n: int32, %x: {V}) -> {V} {{ @either(subtract(%n, 1), tanh(%x)) }}
def @double(%x: {V}) -> {V} {{ add(%x, %x) }}
"""

PROGRAMS = {
    "captures what its branch computes": f"""
      let %f = if (%c) {{ let %k = tanh(%x); {F} {{ add(%y, %k) }} }}
        else {{ let %k = exp(%x); let %m = negative(%k); {F} {{ multiply(add(%y, %k), %m) }} }};
      %f(%f(%x))""",
    "of a choice in a choice": f"""
      let %f = if (%c) {{
          let %k = tanh(%x);
          if (less(sum(%k), 0f)) {{ let %z = sin(%k); {F} {{ add(%y, %z) }} }} else {{ {F} {{ add(%y, %k) }} }}
        }} else {{ {F} {{ negative(%y) }} }};
      let %g = if (%d) {{ %f }} else {{ {F} {{ %f(%f(%y)) }} }};
      (%g(%x), %f(%x))""",
    "handed to functions": f"""
      let %f = if (%c) {{ let %k = tanh(%x); {F} {{ add(%y, %k) }} }} else {{ @double }};
      (@twice(%f, %x), @twice({F} {{ @twice(%f, %y) }}, %x))""",
    "handed through a loop": f"""
      let %f = if (%c) {{
          let %k = tanh(%x);
          if (%d) {{ {F} {{ add(%y, %k) }} }} else {{ let %z = cos(%k); {F} {{ add(%y, %z) }} }}
        }} else {{ {F} {{ negative(%y) }} }};
      (@repeat(3, %f, %x), @repeat(2, if (%d) {{ %f }} else {{ @double }}, %x))""",
    "in a tuple with what it captures": f"""
      %t = if (%c) {{ let %k = tanh(%x); (%k, {F} {{ add(%y, %k) }}, 1f) }} else {{ (%x, {F} {{ %y }}, sum(%x)) }};
      (%t.1(%t.0), %t.0)""",
    "that returns functions": f"""
      let %f = if (%c) {{ fn(%q: {V}) -> fn({V}) -> {V} {{ let %h = tanh(%q); {F} {{ add(%h, %y) }} }} }}
        else {{ fn(%q: {V}) -> fn({V}) -> {V} {{ {F} {{ subtract(%q, %y) }} }} }};
      let %g = %f(%x);
      (%g(%x), %g(exp(%x)))""",
    "over an operator of several results": f"""
      let %f = if (%c) {{ let %k = split(exp(%x), indices_or_sections=5); {F} {{ concatenate(%k) }} }}
        else {{ {F} {{ %y }} }};
      (%f(%x), %f(tanh(%x)))""",
    "that is the recursion itself": "(@either(5, %x), @either(2, tanh(%x)))",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_chosen_functions(name: str, tmp_path: Path) -> None:
    text = f"{FUNCTIONS}def @main(%x: {V}, %c: bool, %d: bool) {{ {PROGRAMS[name]} }}"
    with threads_wanted_always():
        compiled(text, tmp_path)
    x = np.asarray([1.0, -2.0, 3.0, 0.5, 2.0], "float32")
    for threads in (1, 2):
        model = load_module(tmp_path / "model.so", threads=threads)
        for c, d in product((False, True), repeat=2):
            try:
                check(text, model, (x, np.asarray(c), np.asarray(d)))
            except AssertionError as error:
                raise AssertionError(f"{threads=}, {c=}, {d=}") from error
