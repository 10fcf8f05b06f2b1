"""Names of headers without a place, what lies in their way, and what texts depend on beside headers."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relaybuild.build.cache.wire import WireError
from relaybuild.build.headers import (
    Existence,
    HeaderList,
    SearchPath,
    asked_headers,
    folders_in,
    objection_to_text,
)

TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20)
PARTS = st.text(st.characters(codec="utf-8", exclude_characters="\0/"), min_size=1).filter(lambda part: part.strip("."))
NAMES = st.builds(
    lambda head, parts: "/".join([head, *parts]), st.sampled_from(["system", "include/12"]), st.lists(PARTS, min_size=1)
)


@given(st.lists(NAMES), st.lists(TEXTS), TEXTS)
def test_a_list_survives_its_note(names: list[str], asked: list[str], objection: str) -> None:
    headers = HeaderList(tuple(names), tuple(asked), objection)
    assert HeaderList.decode(headers.encode()) == headers


@pytest.mark.parametrize("data", [b"\xff", b"\x0a\x05ab", b"\x22\x01a"])
def test_what_is_no_list(data: bytes) -> None:
    with pytest.raises(WireError):
        HeaderList.decode(data)


@pytest.mark.parametrize(
    "name", ["", "system", "other/x", "include/x.h", "include/0/../x", "system/a//b", "system/./a", "include/0/a\0"]
)
def test_a_list_with_a_name_that_no_header_has(name: str) -> None:
    # A list may come from elsewhere, and must neither raise later nor lead out of its folders.
    with pytest.raises(WireError):
        HeaderList.decode(HeaderList((name,)).encode())


@pytest.mark.parametrize("name", ["include/0/...", "system/.hidden/..a", "include/3/a b/ü.h"])
def test_unusual_names(name: str) -> None:
    assert HeaderList.decode(HeaderList((name,)).encode()).names == (name,)


def test_names_have_no_place_for_own_folders() -> None:
    search = SearchPath.of(["/a/include", "/a/more"], ["/usr/include"])
    for path, name in (
        ("/a/include/x.h", "include/0/x.h"),
        ("/a/more/sub/y.h", "include/1/sub/y.h"),
        ("/usr/include/string.h", "system/usr/include/string.h"),
        ("/a/include-other/x.h", "system/a/include-other/x.h"),
    ):
        assert search.name_of(path) == name
        assert search.path_of(name) == path
    assert search.name_of("/a/./more//z.h") == "include/1/z.h"


@pytest.mark.parametrize("name", ["include/2/x.h", "include/x/y.h", "include/-1/x.h"])
def test_a_name_that_none_has_here(name: str) -> None:
    assert SearchPath.of(["/a", "/b"], []).path_of(name) is None


def test_paths_that_go_up_are_followed(tmp_path: Path) -> None:
    (tmp_path / "real" / "include").mkdir(parents=True)
    (tmp_path / "real" / "lib").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real" / "lib")
    search = SearchPath.of([tmp_path / "real" / "include"], [])
    assert search.name_of(f"{tmp_path}/link/../include/x.h") == "include/0/x.h"


def test_a_shadow_is_a_file_in_an_earlier_place(tmp_path: Path) -> None:
    first, second, system = (str(tmp_path / name) for name in ("first", "second", "system"))
    for folder in (first, second, system):
        (Path(folder) / "sub").mkdir(parents=True)
    search = SearchPath.of([first, second], [system])
    own, other = f"{second}/sub/own.h", f"{system}/other.h"
    for path in (own, other):
        Path(path).touch()
    assert search.shadows([own, other], Existence()) == []
    earlier = {f"{first}/sub/own.h", f"{first}/other.h", f"{second}/other.h"}
    # What stands beside a header that may include another one is found before any folder is searched.
    beside = {f"{second}/sub/other.h", f"{system}/sub/own.h"}
    shadows = earlier | beside
    unrelated = {f"{first}/own.h", f"{first}/sub/other.h", f"{system}/own.h"}
    for path in shadows | unrelated:
        Path(path).touch()
    assert set(search.shadows([own, other], Existence())) == shadows


def test_existence_is_that_of_the_first_question(tmp_path: Path) -> None:
    exists = Existence()
    assert not exists(str(tmp_path / "x"))
    (tmp_path / "x").touch()
    assert not exists(str(tmp_path / "x"))
    assert Existence()(str(tmp_path / "x"))


def test_answers_name_all_places(tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "x.h").touch()
    search = SearchPath.of([tmp_path / "own"], [str(tmp_path / "system")])
    assert search.answers(["x.h", "y.h"], [], Existence()) == {"x.h": ("include/0/x.h",), "y.h": ()}


def test_what_is_asked_for_is_found_in_texts() -> None:
    text = '#if __has_include(<a/b.h>) || __has_include_next( "c.h" )\n#ifdef __has_include\n'
    assert asked_headers(text) == {"a/b.h", "c.h"}
    assert objection_to_text(text) == ""


@pytest.mark.parametrize(
    ("text", "objection"),
    [
        ("int __DATE__x, my__TIME__; // a .include of mine", ""),
        ("s.include = 1; #included", ""),
        ("const char *t = __TIME__;", "uses the time of the build (__TIME__)"),
        ("__TIMESTAMP__", "uses the time of the build (__TIMESTAMP__)"),
        ('asm(".incbin \\"x\\"");', "reads files that are no headers (.incbin)"),
        ('asm(".include \\"x\\"");', "reads files that are no headers (.include)"),
        ("#  embed <x>", "reads files that are no headers (#)"),
        ("#if __has_embed(<x>)", "reads files that are no headers (__has_embed)"),
        ("#if __has_include(NAME)", "asks for a header by a macro"),
    ],
)
def test_objections_to_texts(text: str, objection: str) -> None:
    assert objection_to_text(text) == objection


def test_folders_among_flags() -> None:
    flags = ("-O2", "-Ia", "-I", "/b", "-isystem", "c", "-iquoted", "-DI=-Ix", "-idirafter", "e")
    assert folders_in(flags, "/work") == ["/work/a", "/b", "/work/c", "/work/d", "/work/e"]
