"""How many compilers run at a time where a project has several models."""

from __future__ import annotations

import pytest
from adder import project
from runners.consumer import HEAD, OLDEST, Consumer

pytestmark = pytest.mark.slow

TEXT = """
relaybuild_add_model(first MODEL models/net.onnx TARGET_ISA c OPTIONS --no-cache --jobs 1)
relaybuild_add_model(second MODEL models/net.onnx TARGET_ISA c OPTIONS --no-cache --jobs 1)
"""
COMPILER = """#!/bin/sh
case " $* " in *" -c "*) ;; *) exec cc "$@" ;; esac
echo + >>"{log}"
sleep 0.1
cc "$@"
status=$?
echo - >>"{log}"
exit $status
"""


def most_at_a_time(consumer: Consumer, *options: str) -> int:
    """The most compilers that ran at the same time while two models were compiled, each by one at a time."""
    log = consumer.folder / "compilers.log"
    compiler = consumer.write("cc", COMPILER.format(log=log))
    compiler.chmod(0o755)
    one = project(consumer, TEXT)
    one.configure(f"-DCMAKE_C_COMPILER={compiler}", *options)
    log.unlink()
    one.make("--parallel", "4")
    running = most = 0
    lines = log.read_text().split()
    assert len(lines) > 20
    for line in lines:
        running += 1 if line == "+" else -1
        most = max(most, running)
    assert one.work() == set()
    return most


@pytest.mark.parametrize(("generator", "cmake"), [("Ninja", "cmake"), ("Unix Makefiles", OLDEST)])
def test_models_are_compiled_one_after_another(consumer: Consumer, generator: str, cmake: str) -> None:
    assert most_at_a_time(consumer.by(cmake, generator)) == 1


@pytest.mark.parametrize("generator", ["Ninja", "Unix Makefiles"])
def test_a_project_may_allow_for_more(consumer: Consumer, generator: str) -> None:
    assert most_at_a_time(consumer.by("cmake", generator), "-DRELAYBUILD_PARALLEL_MODELS=2") > 1


def test_the_pool_stands_beside_those_of_the_project(consumer: Consumer) -> None:
    for text in ("set(CMAKE_JOB_POOLS mine=3)\n", "set_property(GLOBAL PROPERTY JOB_POOLS mine=3 relaybuild=4)\n"):
        one = project(consumer, TEXT)
        one.write("CMakeLists.txt", f"{HEAD}{TEXT}{text}")
        one.configure()
        rules = "\n".join(path.read_text() for path in one.build.rglob("*.ninja"))
        assert "pool mine\n  depth = 3\n" in rules
        assert f"pool relaybuild\n  depth = {4 if 'relaybuild' in text else 1}\n" in rules
        assert rules.count("pool relaybuild\n") == 1


def test_a_number_that_is_none(consumer: Consumer) -> None:
    done = project(consumer, TEXT).try_configure("-DRELAYBUILD_PARALLEL_MODELS=all")
    assert done.returncode != 0
    assert "RELAYBUILD_PARALLEL_MODELS is 'all', expected a number of models, 1 or more" in " ".join(
        done.stderr.split()
    )
