"""Running tools: their environment, their output, and what happens when they do not start or do not end."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from relaybuild.build.process import run_together, tool_environment
from relaybuild.errors import ToolError


def test_the_environment_is_ours_without_what_changes_outputs() -> None:
    environ = {"PATH": "/bin", "LD_RUN_PATH": "/evil", "DEPENDENCIES_OUTPUT": "deps", "LANGUAGE": "de", "LC_ALL": "de"}
    assert tool_environment(environ) == {"PATH": "/bin", "LC_ALL": "C"}


def test_results_come_in_order_with_both_streams() -> None:
    script = "import sys; print('out', flush=True); print('err', file=sys.stderr); sys.exit(int(sys.argv[1]))"
    results = run_together([[sys.executable, "-c", script, code] for code in ("3", "0")])
    assert [result.returncode for result in results] == [3, 0]
    assert [result.output for result in results] == ["out\nerr\n"] * 2


def test_a_failed_command_is_a_tool_error_on_demand() -> None:
    (result,) = run_together([[sys.executable, "-c", "import sys; sys.exit('broken')"]])
    with pytest.raises(ToolError) as caught:
        result.check("the tool failed")
    assert caught.value.exit_code == 2
    assert "the tool failed" in str(caught.value)
    assert "broken" in str(caught.value)


def test_a_program_that_is_not_there_is_a_tool_error() -> None:
    with pytest.raises(ToolError, match="'/no/such/program' could not be started: No such file"):
        run_together([["/no/such/program"]])


def test_a_program_that_hangs_is_ended() -> None:
    with pytest.raises(ToolError, match=r"did not end within 0\.1 seconds"):
        run_together([[sys.executable, "-c", "import time; time.sleep(60)"]], timeout=0.1)


def test_what_a_program_that_hangs_has_started_ends_with_it(tmp_path: Path) -> None:
    told = tmp_path / "number"
    script = f"sleep 60 & echo $! > {told}.new; mv {told}.new {told}; wait"
    with pytest.raises(ToolError, match="did not end within"):
        run_together([["/bin/sh", "-c", script]], timeout=1.0)
    number = int(told.read_text())
    for _ in range(100):
        state = Path(f"/proc/{number}/stat")
        if not state.exists() or state.read_text().rpartition(")")[2].split()[0] == "Z":
            return
        time.sleep(0.02)
    pytest.fail(f"process {number} goes on")
