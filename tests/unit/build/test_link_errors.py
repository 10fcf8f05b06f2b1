"""Collisions are told from what linkers print, whichever it is; other failures are the tool's."""

from __future__ import annotations

from pathlib import Path

import pytest

from relaybuild.build.library import LibrarySpec, Unit, build_library
from relaybuild.build.link_errors import collision
from relaybuild.build.toolchain import Toolchain
from relaybuild.errors import UserError

BFD = """\
/usr/bin/ld.bfd: obj/x2.o: in function `helper':
x2.c:(.text+0x0): multiple definition of `helper'; obj/x1.o:x1.c:(.text+0x0): first defined here
/usr/bin/ld.bfd: obj/x2.o:(.data+0x0): multiple definition of `a::data(int)'; obj/x1.o:(.data+0x0): first defined here
collect2: error: ld returned 1 exit status
"""
GOLD = """\
/usr/bin/ld.gold: error: obj/x2.o: multiple definition of 'helper'
/usr/bin/ld.gold: obj/x1.o: previous definition here
/usr/bin/ld.gold: error: obj/x2.o: multiple definition of 'a::data(int)'
"""
LLD = """\
ld.lld: error: duplicate symbol: helper
>>> defined at x1.c
>>>            obj/x1.o:(helper)
>>> defined at x2.c
>>>            obj/x2.o:(.text+0x0)
ld.lld: error: duplicate symbol: a::data(int)
"""
MOLD = """\
mold: error: duplicate symbol: obj/x1.o: obj/x2.o: helper
mold: error: duplicate symbol: obj/x1.o: obj/x2.o: a::data(int)
"""


@pytest.mark.parametrize("output", [BFD, GOLD, LLD, MOLD], ids=["bfd", "gold", "lld", "mold"])
def test_what_linkers_print(output: str) -> None:
    assert str(collision(output)) == (
        "more than one unit of the library defines 'helper', 'a::data(int)', found in 'x1', 'x2': what units do not "
        "share must be static, or carry the name of the region"
    )


def test_another_failure_is_none() -> None:
    assert collision("/usr/bin/ld: obj/a.o: undefined reference to `helper'\ncollect2: error: ld returned 1") is None


def test_long_lists_end() -> None:
    output = "".join(f"ld: obj/x{n}.o: multiple definition of `f{n}'\n" for n in range(20))
    assert str(collision(output)).startswith(
        "more than one unit of the library defines 'f0', 'f1', 'f2', 'f3', 'f4', 'f5', 'f6', 'f7' and 12 more, found in"
    )


def test_a_library_whose_units_collide(tmp_path: Path, toolchain: Toolchain) -> None:
    units = tuple(Unit(name, f"int twice(int x) {{ return {factor} * x; }}\n") for name, factor in (("a", 2), ("b", 3)))
    with pytest.raises(UserError, match="more than one unit of the library defines 'twice', found in 'a', 'b': "):
        build_library(LibrarySpec("demo", units), toolchain, tmp_path / "build", tmp_path / "demo.so")
    assert list(tmp_path.iterdir()) == []
