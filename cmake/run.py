"""Runs the command line of the relaybuild that this file belongs to, wherever both lie; knows no command.

    run.py [--in-turn FILE] COMMAND...

With a file, only one of those that name it runs at a time, and the others wait for it to end.
"""

import contextlib
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
# a checkout has the package beside this folder, a wheel has this folder inside the package
ROOT = HERE.parent if (HERE.parent / "relaybuild").is_dir() else HERE.parents[2]

# not this folder, and not the current one, in which a project may have modules with names of others
sys.path[0] = str(ROOT)

if sys.argv[1:2] == ["--in-turn"]:
    turn = open(sys.argv[2], "a")  # noqa: SIM115
    # where there are no such locks, there is no turn either
    with contextlib.suppress(ImportError, OSError):
        import fcntl

        fcntl.flock(turn, fcntl.LOCK_EX)
    del sys.argv[1:3]

from relaybuild.cli import main  # noqa: E402

main(prog_name="relaybuild")
