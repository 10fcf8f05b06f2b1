"""The table of failures in docs/caching.md names tests that exist, and each row has a mutation that can be applied."""

from __future__ import annotations

import pytest
from mutations.catalogue import FOLDER, ROOT, Change, Row, mutation, rows

ROWS = rows()


def test_there_are_at_least_sixty_rows_of_different_names() -> None:
    names = [row.name for row in ROWS]
    assert len(names) == len(set(names)) >= 60


def test_every_row_has_a_mutation_or_no_test() -> None:
    assert {path.stem for path in FOLDER.glob("*.diff")} == {row.name for row in ROWS if row.tests}


@pytest.mark.parametrize("row", [row for row in ROWS if not row.tests], ids=lambda row: row.name)
def test_a_row_without_tests_says_why(row: Row) -> None:
    assert row.taken_out.startswith("does not apply: ")


@pytest.mark.parametrize("row", [row for row in ROWS if row.tests], ids=lambda row: row.name)
def test_the_tests_of_a_row_exist(row: Row) -> None:
    assert [test for test in row.tests if not test.is_there()] == []


@pytest.mark.parametrize("row", [row for row in ROWS if row.tests], ids=lambda row: row.name)
def test_the_mutation_of_a_row_can_be_applied(row: Row) -> None:
    texts: dict[str, str] = {}
    for change in mutation(row.name):
        text = texts.get(change.path) or (ROOT / change.path).read_text(encoding="utf-8")
        texts[change.path] = change.applied(text)
        assert texts[change.path] != text
        if change.path.endswith(".py"):
            compile(texts[change.path], change.path, "exec")
    assert texts


def test_lines_that_are_not_there_are_told() -> None:
    with pytest.raises(ValueError, match="stand there 2 times"):
        Change("x.py", "a\n", "b\n").applied("a\na\n")
