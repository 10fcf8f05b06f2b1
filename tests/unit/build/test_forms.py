"""The forms of a compiled model by their names."""

from __future__ import annotations

from pathlib import Path

import pytest

from relaybuild.build.forms import Form, form_named
from relaybuild.errors import UserError


def test_forms_by_name() -> None:
    assert [form_named(form.value) for form in Form] == list(Form)
    assert form_named(Form.STATIC) is Form.STATIC
    with pytest.raises(UserError, match="'zip' is no form of a compiled model, expected one of 'shared', 'static', "):
        form_named("zip")


@pytest.mark.parametrize(
    ("form", "fine", "wrong"),
    [
        (Form.SHARED, ("m.so", "m.dylib", "m", "m.model", "m.so.1"), ("m.a", "m.o")),
        (Form.STATIC, ("libm.a", "m"), ("m.so", "m.o", "m.dll")),
        (Form.OBJECT, ("m.o", "m.obj"), ("m.a", "m.so")),
        (Form.PROJECT, ("m", "m.project"), ("m.a", "m.so", "m.o")),
    ],
)
def test_names_of_files(form: Form, fine: tuple[str, ...], wrong: tuple[str, ...]) -> None:
    for name in fine:
        form.check_name(Path(name))
    for name in wrong:
        with pytest.raises(UserError, match=f"'{name}' is not a name for the form '{form.value}'"):
            form.check_name(Path(name))


def test_an_archive_has_the_name_behind_lib() -> None:
    assert Form.STATIC.model_name(Path("out/libdigits.a")) == "digits"
    assert Form.STATIC.model_name(Path("lib.a")) == "lib"
    assert Form.SHARED.model_name(Path("libdigits.so")) == "libdigits"
