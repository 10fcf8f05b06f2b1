"""Makes `benchmarks/` importable, as it is for a script in it."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[3] / "benchmarks"))
