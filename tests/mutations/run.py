"""Shows that each test of the table in docs/caching.md fails where what it holds is taken out.

`python tests/mutations/run.py [NAME...]` copies the checkout, and for each row applies the mutation there, runs the
row's first test and expects it to fail, as it does not otherwise. Exits with 1, and says which, where one passes, or
cannot be run.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from mutations.catalogue import ROOT, Row, mutation, rows

TIMEOUT = 600
_FAILED = 1  # pytest's code where tests ran, and some failed
_IGNORED = shutil.ignore_patterns(".git", "__pycache__", ".*_cache", ".hypothesis", ".venv", ".models", "build-*")


def try_row(row: Row, folder: Path) -> str:
    """What is wrong with a row; empty if its test fails as it should."""
    changes = mutation(row.name)
    before = {change.path: (folder / change.path).read_text(encoding="utf-8") for change in changes}
    try:
        for change in changes:
            path = folder / change.path
            path.write_text(change.applied(path.read_text(encoding="utf-8")), encoding="utf-8")
        return _verdict(row, folder)
    finally:
        for name, text in before.items():
            (folder / name).write_text(text, encoding="utf-8")


def check_unchanged(chosen: Sequence[Row], folder: Path) -> None:
    """Exit, with what pytest says, where a test fails that nothing was taken out of."""
    tests = {row.tests[0] for row in chosen}
    paths, names = ({test.path for test in tests}, {test.prefix for test in tests})
    done = _pytest(folder, *sorted(paths), "-k", " or ".join(sorted(names)))
    if done.returncode != 0:
        sys.exit(f"tests fail although nothing was taken out:\n{done.stdout[-5000:]}")


def _pytest(folder: Path, *words: str, timeout: float | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-x", "-p", "no:cacheprovider", *words]
    environ = {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, timeout=timeout)


def _verdict(row: Row, folder: Path) -> str:
    test = row.tests[0]
    try:
        done = _pytest(folder, test.path, "-k", test.prefix, timeout=TIMEOUT)
    except subprocess.TimeoutExpired:
        # who waits for ever has noticed, too
        return ""
    return "" if done.returncode == _FAILED else f"pytest ended with {done.returncode}:\n{done.stdout[-2000:]}"


def main(names: Sequence[str]) -> int:
    chosen = [row for row in rows() if row.tests and (not names or row.name in names)]
    wrong = 0
    with tempfile.TemporaryDirectory(prefix="relaybuild-mutations-") as place:
        folder = Path(place) / "checkout"
        shutil.copytree(ROOT, folder, ignore=_IGNORED, symlinks=True)
        check_unchanged(chosen, folder)
        for row in chosen:
            begin = time.monotonic()
            problem = try_row(row, folder)
            wrong += bool(problem)
            print(f"{'WRONG' if problem else 'found'} {row.name} ({time.monotonic() - begin:.1f} s)", flush=True)
            if problem:
                print(problem, flush=True)
    print(f"{len(chosen) - wrong} of {len(chosen)} mutations were found")
    return 1 if wrong or not chosen else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
