"""Runs the command line as `python -m relaybuild`; knows nothing else."""

from relaybuild.cli import main

if __name__ == "__main__":
    main(prog_name="relaybuild")
