"""Modules of C text: what they tell of themselves, and what they refuse."""

from __future__ import annotations

import subprocess
import sys

import pytest

from relaybuild import runtime
from relaybuild.errors import UserError
from relaybuild.registry import get_global_func, register_func
from relaybuild.runtime.csource import EXPORT_FUNCTION, csource_module_create

CODE = "int32_t __tvm_ffi_f(void) { return 0; }"


@pytest.mark.parametrize(("fmt", "language"), [("c", "c"), ("cc", "c++"), ("cpp", "c++"), ("cxx", "c++")])
def test_a_module_shows_its_text(fmt: str, language: str) -> None:
    """RT01: the text that a module was made of comes back as it was."""
    module = runtime.csource_module_create(CODE, fmt, ["f"])
    assert isinstance(module, runtime.Module)
    assert (module.type_key, module.language, module.get_source(), module.function_names) == (
        "c",
        language,
        CODE,
        ("f",),
    )
    assert module.get_source(fmt) == CODE
    assert module.imported_modules == ()
    assert repr(module) == f"<relaybuild Module of type 'c', {language} text with 'f'>"


def test_a_module_has_no_text_in_another_language() -> None:
    with pytest.raises(UserError, match="no source in the format 'cc', it is c text"):
        csource_module_create(CODE).get_source("cc")


@pytest.mark.parametrize(
    ("code", "fmt", "names", "message"),
    [
        (CODE, "cu", None, "found the format 'cu', expected one of c, cc, cpp, cxx"),
        (" \n", "c", None, "expected the text of a C source"),
        (CODE, "c", ["f", "g"], "'func_names' has 'g', which the text does not define: expected '__tvm_ffi_g'"),
        (CODE, "c", ["tvm"], "'func_names' has 'tvm'"),
    ],
)
def test_what_makes_no_module(code: str, fmt: str, names: list[str] | None, message: str) -> None:
    with pytest.raises(UserError, match=message):
        csource_module_create(code, fmt, names)


def test_text_neither_runs_nor_becomes_bytes() -> None:
    """RP01, RT02: what runs and what can be bytes is a property of a kind of module, and an error says the way."""
    module = csource_module_create(CODE)
    for attempt in (lambda: module.get_function("f"), lambda: module["f"], module.save_to_binary):
        with pytest.raises(UserError, match="export_library"):
            attempt()


def test_what_compiles_is_found_by_its_name() -> None:
    told: list[object] = []
    assert get_global_func(EXPORT_FUNCTION).__module__ == "relaybuild.packaging"
    register_func(EXPORT_FUNCTION, lambda *args, **options: told.extend((args, options)), override=True)
    module = csource_module_create(CODE)
    module.export_library("x.so", cc="gcc", flags=["-O1"], include_dirs=["inc"])
    (found, path), options = told  # type: ignore[misc]
    assert found is module
    assert str(path) == "x.so"
    assert options["cc"] == "gcc"
    assert options["flags"] == ("-O1",)
    assert [str(each) for each in options["include_dirs"]] == ["inc"]


def test_nothing_that_compiles_is_imported_before_it_is_needed() -> None:
    code = (
        "import sys, relaybuild; relaybuild.runtime.csource_module_create('int x;'); "
        "sys.exit('relaybuild.build' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
