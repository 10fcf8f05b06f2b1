"""Processes that compile into one cache at the same time: every library is right, and nothing is compiled twice."""

from __future__ import annotations

from pathlib import Path

import pytest
from common_cache import PROGRAMS, Compilations, check_idle, compile_together, opened, write_programs
from runners.command import Runner

from relaybuild.build.cache.runs import read_runs, totals

pytestmark = pytest.mark.usefixtures("own_cache")


@pytest.fixture
def compilations(tmp_path: Path) -> Compilations:
    return Compilations(tmp_path)


@pytest.fixture
def run(package: Path, tmp_path: Path, compilations: Compilations) -> Runner:
    write_programs(tmp_path)
    return Runner(package, tmp_path, dict(compilations.environ))


@pytest.fixture(scope="module")
def clean(package: Path, runtime_cache: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The libraries as they are where nobody else compiles."""
    folder = tmp_path_factory.mktemp("clean")
    write_programs(folder)
    runner = Runner(package, folder).beginning_with(runtime_cache)
    for name in PROGRAMS:
        runner.done(model=f"{name}.relay", output=f"{name}.so")
    return {name: runner.library(f"{name}.so") for name in PROGRAMS}


def check_run(run: Runner, names: list[str], clean: dict[str, bytes], compilations: Compilations) -> None:
    """Compile at once into a cache that has none of it, and fail where a library is wrong or work was done twice."""
    outputs = compile_together(run, names)
    for name, output in zip(names, outputs):
        assert run.library(output) == clean[name], output
    compiled = compilations.counts()
    assert compiled
    assert {unit: count for unit, count in compiled.items() if count != 1} == {}
    with opened(run) as cache:
        assert cache.folder is not None
        total = totals(read_runs(cache.folder))
        assert total["runs"] == len(names)
        assert total["executed"]["object"] == len(compiled)
        assert total["executed"]["link"] == total["executed"]["artifact"] == len(set(names))
        assert total["errors"] == {}
        assert total["conflicts"] == 0
        check_idle(cache.folder)


@pytest.mark.parametrize("count", [2, pytest.param(8, marks=pytest.mark.slow)])
def test_processes_with_one_model_compile_it_once(
    run: Runner, clean: dict[str, bytes], compilations: Compilations, count: int
) -> None:
    check_run(run, ["twice"] * count, clean, compilations)


def test_processes_with_models_of_common_kernels_compile_each_kernel_once(
    run: Runner, clean: dict[str, bytes], compilations: Compilations
) -> None:
    check_run(run, ["add", "twice"], clean, compilations)


def test_six_processes_make_an_absent_cache_at_once(
    run: Runner, clean: dict[str, bytes], compilations: Compilations
) -> None:
    check_run(run, ["add", "softmax", "twice"] * 2, clean, compilations)


@pytest.mark.slow
def test_sixteen_processes_make_an_absent_cache_at_once(
    run: Runner, clean: dict[str, bytes], compilations: Compilations
) -> None:
    check_run(run, list(PROGRAMS) * 4, clean, compilations)
