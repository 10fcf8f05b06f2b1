"""What the benchmarks share; importing it makes a checkout work into which nothing has been installed."""

import sys
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
sys.path.append(str(CHECKOUT))
