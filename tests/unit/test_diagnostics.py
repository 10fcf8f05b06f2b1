"""Positions, excerpts, and the order in which mistakes are shown."""

from relaybuild.diagnostics import Diagnostic, Source, did_you_mean


def test_positions_and_their_inverse() -> None:
    source = Source.of("ab\n\tcd\n", "f.relay")
    assert [source.where(pos) for pos in (0, 2, 3, 5)] == ["f.relay:1:1", "f.relay:1:3", "f.relay:2:1", "f.relay:2:3"]
    assert all(source.offset(*source.position(pos)) == pos for pos in range(len(source.text) + 1))


def test_the_caret_stands_below_the_character_behind_tabs_too() -> None:
    source = Source.of("ab\n\tcd\r\n", "f.relay")
    assert source.excerpt(4) == "    \tcd\n    \t^"
    assert source.excerpt(len(source.text)) == "    \n    ^"


def test_a_diagnostic_shows_its_line() -> None:
    source = Source.of("let %x", "f.relay")
    assert Diagnostic(4, "unknown").render(source) == "f.relay:1:5: unknown\n    let %x\n        ^"


def test_the_nearest_name_is_offered_if_one_is_near() -> None:
    assert did_you_mean("add", ["dad", "sub"]) == "; did you mean 'dad'?"
    assert did_you_mean("main2", ["main"], "'@{}'") == "; did you mean '@main'?"
    assert did_you_mean("zzz", ["add"]) == ""
