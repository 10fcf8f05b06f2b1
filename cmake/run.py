"""Runs the command line of the relaybuild that this file belongs to, wherever both lie; knows no command."""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
# a checkout has the package beside this folder, a wheel has this folder inside the package
ROOT = HERE.parent if (HERE.parent / "relaybuild").is_dir() else HERE.parents[2]

# not this folder, and not the current one, in which a project may have modules with names of others
sys.path[0] = str(ROOT)

from relaybuild.cli import main  # noqa: E402

main(prog_name="relaybuild")
