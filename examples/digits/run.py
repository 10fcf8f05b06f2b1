"""Compile the digit classifier into a library, load it, and recognise digits; needs relaybuild alone.

    python examples/digits/run.py [IMAGE.pgm ...]

Without arguments it looks at the ten images of `samples/`. The exit code is 1 when fewer than 98 % of the held-out
images are recognised, which means that the library does not compute what the model says.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt

import relaybuild

HERE = Path(__file__).resolve().parent
SHADES = " .:-=+*%@"
PER_ROW = 5
CALLS = 5000
LEAST_ACCURACY = 0.98

Image = npt.NDArray[np.float32]


def read_pgm(path: Path) -> Image:
    """An 8×8 plain PGM file as the model's input: float32 (1, 1, 8, 8) in 0..1."""
    magic, width, height, white, *pixels = path.read_text().split()
    if (magic, width, height, len(pixels)) != ("P2", "8", "8", 64):
        raise SystemExit(f"error: {path}: not a plain PGM image (P2) of 8×8 pixels")
    image: Image = np.array(pixels, np.float32).reshape(1, 1, 8, 8) / np.float32(white)
    return image


def draw(image: Image) -> list[str]:
    """Eight lines of eight characters."""
    levels = np.rint(image[0, 0] * (len(SHADES) - 1)).astype(int)
    return ["".join(SHADES[level] for level in row) for row in levels]


def caption(scores: npt.NDArray[np.float32]) -> str:
    """The digit that scores (1, 10) speak for, and how sure they are."""
    return f"{scores.argmax()} ({scores.max():.1%})"


def median_time(module: Callable[[Image], object], image: Image) -> float:
    """Seconds of one inference, called from Python: the median over CALLS calls."""
    seconds = np.empty(CALLS)
    for call in range(CALLS):
        begin = time.perf_counter()
        module(image)
        seconds[call] = time.perf_counter() - begin
    return float(np.median(seconds))


def main() -> int:
    library = HERE / "build" / "digits.so"
    library.parent.mkdir(exist_ok=True)
    begin = time.perf_counter()
    artifact = relaybuild.compile(HERE / "digits.onnx")
    artifact.export_library(library)
    build_seconds = time.perf_counter() - begin
    module = relaybuild.load_module(library)

    paths = [Path(argument) for argument in sys.argv[1:]] or sorted((HERE / "samples").glob("*.pgm"))
    images = [read_pgm(path) for path in paths]
    cells = [[*draw(image), caption(module(image)), path.name] for path, image in zip(paths, images)]
    for start in range(0, len(cells), PER_ROW):
        for line in zip(*cells[start : start + PER_ROW]):
            print("   ".join(f"{text:11.11}" for text in line).rstrip())
        print()

    heldout = np.load(HERE / "heldout.npz")
    inputs = heldout["images"].astype(np.float32).reshape(-1, 1, 1, 8, 8) / 16
    right = sum(int(module(image).argmax() == label) for image, label in zip(inputs, heldout["labels"]))
    stages = ", ".join(f"{stage} {seconds:.2f}" for stage, seconds in artifact.summary["seconds"].items())
    print(f"accuracy:   {right} of {len(inputs)} held-out images ({right / len(inputs):.1%})")
    print(f"inference:  {median_time(module, images[0]) * 1e6:.1f} µs (median of {CALLS} calls from Python)")
    print(f"library:    {library.stat().st_size / 1000:.0f} kB, {library}")
    print(f"build:      {build_seconds:.2f} s ({stages})")
    return 0 if right >= LEAST_ACCURACY * len(inputs) else 1


if __name__ == "__main__":
    sys.exit(main())
