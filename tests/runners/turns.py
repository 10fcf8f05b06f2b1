"""A plugin of pytest: where not all tests can be run, each has its turn; knows no test.

`pytest -p runners.turns --turn TEXT --within SECONDS` runs the files in an order that the text decides, and skips the
tests that would begin later than that many seconds after pytest has. With another text each time (a commit, say) all
are run in the long run, and with the same one the same order comes again.
"""

from __future__ import annotations

import hashlib
import time

import pytest

NO_TIME = "no time is left: it has its turn another time"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--turn", metavar="TEXT", help="run files in an order that this text decides")
    parser.addoption("--within", metavar="SECONDS", type=float, help="begin no test later than that")


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_BEGIN] = time.monotonic()


_BEGIN = pytest.StashKey[float]()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    turn = config.getoption("--turn")
    if turn is not None:
        items.sort(key=lambda item: hashlib.sha256(f"{turn}\n{item.location[0]}".encode()).digest())


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    seconds = item.config.getoption("--within")
    if seconds is not None and time.monotonic() - item.config.stash[_BEGIN] > seconds:
        pytest.skip(NO_TIME)
