"""Broken ExampleJSON texts and frames, under sanitizers: an error that says where, or a module that runs.

Texts are changed by bytes, words and lines, frames by bytes, from a fixed seed; `RELAYBUILD_FUZZ_SECONDS=600` goes on
for longer, from a seed of its own. What failed once is kept in `cases/` and tried on every run.
"""

from __future__ import annotations

import os
import random
import struct
import subprocess
import time
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from runners.modules_program import SANITIZERS, build, example_json_sources

from relaybuild.runtime.blob import frame

HERE = Path(__file__).parent
CASES = HERE / "cases"
SECONDS = float(os.environ.get("RELAYBUILD_FUZZ_SECONDS", "0"))
COUNT = 3000
LIMIT = 120

CORPUS = (
    """\
subgraph_0
  input 0 10 10
  input 1 10 10
  input 2 10 10
  input 3 10 10
  add 4 inputs: 0 1 shape: 10 10
  sub 5 inputs: 4 2 shape: 10 10
  mul 6 inputs: 5 3 shape: 10 10
""",
    """\
first # of two
  input 0 2 1 3 dtype: float64
  input 1 4 1 dtype: float64
  const 2 3 dtype: float64 value: 0x1.8p+1 -inf nan
  3 max inputs: 0 1 shape: 2 4 3
  div 4 inputs: 3 2 shape: 2 4 3 dtype: float64
  sqrt 5 inputs: 4 shape: 2 4 3
  reshape 6 inputs: 5 shape: 8 3
  output 6 3 0
subgraph second
  input 0 0 5 dtype: int32
  input 1 dtype: int32
  const 2 7 5 dtype: int32 value: -3
  add 7 inputs: 0 1 shape: 0 5
  div 8 inputs: 2 1 shape: 7 5
  neg 9 inputs: 8 shape: 7 5
  output 7
  output 9 2 9
""",
)
WORDS = """
input const output subgraph add sub mul div max min abs neg relu sign copy sqrt floor ceil round trunc reshape inputs:
shape: dtype: value: float32 float64 int32 int64 0 1 2 3 00 -1 10 2147483648 4611686018427387904 9223372036854775807
9223372036854775808 18446744073709551616 1e999 1e-999 0x 0x1p-1074 0x1p1024 inf -inf nan -nan - . : # x 65536
4096 \u00e9
""".split()


@pytest.fixture(scope="module")
def harness(tmp_path_factory: pytest.TempPathFactory) -> Path:
    sources = [HERE / "example_json_harness.cc", *example_json_sources()]
    return build(tmp_path_factory.mktemp("fuzz") / "harness", sources, *SANITIZERS)


def answers(harness: Path, cases: Sequence[bytes]) -> list[str]:
    """What the harness says of each case; a crash, a report or a hang fails the test and names the case."""
    data = b"".join(b"%d\n%s" % (len(case), case) for case in cases)
    options = "allocator_may_return_null=1:max_allocation_size_mb=256:detect_leaks=1"
    try:
        done = subprocess.run(
            [harness], input=data, capture_output=True, timeout=LIMIT, env={"ASAN_OPTIONS": options}, check=False
        )
    except subprocess.TimeoutExpired as expired:
        count = (expired.stdout or b"").count(b"\n")
        pytest.fail(f"took too long: {cases[count]!r}")
    lines = done.stdout.decode(errors="replace").splitlines()
    if done.returncode:
        culprit = cases[len(lines)] if len(lines) < len(cases) else b"at the end"
        pytest.fail(f"{culprit!r}\n{done.stderr.decode(errors='replace')[-4000:]}")
    assert len(lines) == len(cases)
    return lines


def cut_bytes(rng: random.Random, text: bytes) -> bytes:
    data = bytearray(text)
    for _ in range(rng.choice((1, 1, 2, 5))):
        start = rng.randrange(len(data) + 1)
        end = min(len(data), start + rng.choice((0, 1, 1, 2, 10, 100)))
        data[start:end] = rng.choice((b"", bytes([rng.randrange(256)]), bytes(data[start:end]) * 2))
    return bytes(data)


def cut_words(rng: random.Random, text: bytes) -> bytes:
    lines = [line.split(" ") for line in text.decode(errors="replace").split("\n")]
    for _ in range(rng.choice((1, 1, 2, 4))):
        line = rng.choice(lines)
        at = rng.randrange(len(line) + 1)
        line[at : at + rng.choice((0, 1, 1, 2))] = rng.choices(WORDS, k=rng.choice((0, 1, 1, 2)))
    return "\n".join(" ".join(line) for line in lines).encode()


def cut_lines(rng: random.Random, text: bytes) -> bytes:
    lines = text.split(b"\n")
    for _ in range(rng.choice((1, 1, 2, 4))):
        at = rng.randrange(len(lines))
        if rng.random() < 0.5:
            lines.insert(rng.randrange(len(lines) + 1), lines[at])
        elif len(lines) > 1:
            del lines[at]
    return b"\n".join(lines)


def broken_frame(rng: random.Random, text: bytes) -> bytes:
    """A frame with changed bytes, often with a checksum that is right again."""
    data = cut_bytes(rng, frame("examplejson", "USE_EXAMPLE_JSON", text))
    if rng.random() < 0.6:
        data = data[:-4] + struct.pack("<I", zlib.crc32(data[:-4]))
    return b"\x89" + data[1:]


MUTATIONS: tuple[Callable[[random.Random, bytes], bytes], ...] = (cut_bytes, cut_words, cut_words, cut_lines)


def mutated(rng: random.Random) -> bytes:
    text = rng.choice(CORPUS).encode()
    for _ in range(rng.choice((1, 1, 2))):
        text = rng.choice(MUTATIONS)(rng, text)
    return broken_frame(rng, text) if rng.random() < 0.2 else text


def check(harness: Path, cases: Sequence[bytes]) -> list[str]:
    found = answers(harness, cases)
    for case, answer in zip(cases, found, strict=True):
        said = answer == "ok" or answer.startswith(
            ("ExampleJSON:", "the module", "these ", "there is no loader", "out of")
        )
        assert said, (case, answer)
    return found


def test_the_corpus_is_whole(harness: Path) -> None:
    assert check(harness, [text.encode() for text in CORPUS]) == ["ok"] * len(CORPUS)


def test_kept_cases(harness: Path) -> None:
    check(harness, [path.read_bytes() for path in sorted(CASES.glob("*.examplejson"))])


def test_broken_texts_and_frames(harness: Path) -> None:
    rng = random.Random(20240)
    found = check(harness, [mutated(rng) for _ in range(COUNT)])
    # neither is everything refused at the first word, nor is everything taken
    assert 0.02 < found.count("ok") / COUNT < 0.7
    assert len({answer.split(":", 2)[-1][:25] for answer in found}) > 30


@pytest.mark.skipif(not SECONDS, reason="RELAYBUILD_FUZZ_SECONDS is not set")
def test_for_longer(harness: Path) -> None:
    seed = time.time_ns()
    rng = random.Random(seed)
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        check(harness, [mutated(rng) for _ in range(COUNT)])
