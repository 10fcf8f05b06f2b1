"""Broken texts: nothing but UserError comes out, at once, and what is read survives printing and laying out.

Texts of `tests/lit` are changed by bytes and by tokens, from a fixed seed; `RELAYBUILD_FUZZ_SECONDS=600` goes on for
longer, from a seed of its own. A text that failed once is kept in `cases/` and tried on every run.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

import pytest

from relaybuild.diagnostics import Source
from relaybuild.errors import UserError
from relaybuild.ir.formatter import format_text
from relaybuild.ir.lexer import tokenize
from relaybuild.ir.parser import parse, parse_expr
from relaybuild.ir.printer import print_module
from relaybuild.ir.structural import structural_equal

CASES = Path(__file__).parent / "cases"
LIT = Path(__file__).parents[1] / "lit"
SECONDS = float(os.environ.get("RELAYBUILD_FUZZ_SECONDS", "0"))
COUNT = 150
LIMIT = 20

DICTIONARY = """
( ) [ ] { } < > = == != <= >= => -> + - * / , ; : ? . .0 .1 #[ #[span("a",1,2)] " \\ % @ %0 %1 %x %y @main @f 0 1 -1
2f 1e9 9999999999 1.5bf16 inf nanf True False None let fn if else match ref ref_read ref_write meta free_var Tensor def
type extern Ref _ int32 float32 bfloat16 Tensor[(2,),float32] Cons Nil List axis= meta[relay.Constant][0] // /* */
\u00e9 \u0000 #[metadata] %"a\\"b" add log nn.conv2d
""".split()
STRANGE = bytes(range(256))


class TooSlow(Exception):
    """A text took longer than it may."""


@contextlib.contextmanager
def limited(seconds: int) -> Iterator[None]:
    def stop(_signal: int, _frame: FrameType | None) -> None:
        raise TooSlow

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def check(text: str) -> None:
    """What must hold of any text."""
    with contextlib.suppress(UserError):
        parse_expr(text)
    laid_out = None
    with contextlib.suppress(UserError):
        laid_out = format_text(text)
    if laid_out is not None:
        assert format_text(laid_out) == laid_out
    with contextlib.suppress(UserError):
        mod = parse(text)
        assert laid_out is not None
        assert structural_equal(parse(laid_out), mod)
        assert structural_equal(parse(print_module(mod)), mod)


def corpus() -> list[str]:
    files = sorted(LIT.rglob("*.relay"))
    return [case for path in files for case in path.read_text(encoding="utf-8").split("// -----\n")]


def cut_bytes(rng: random.Random, text: str, other: str) -> str:
    data = bytearray(text.encode())
    for _ in range(rng.choice((1, 1, 1, 2, 5))):
        start = rng.randrange(len(data) + 1)
        end = min(len(data), start + rng.choice((0, 1, 1, 2, 10, 100)))
        donor = other.encode()
        at = rng.randrange(len(donor) + 1)
        data[start:end] = rng.choice(
            (b"", bytes([rng.choice(STRANGE)]), bytes(data[start:end]) * 2, donor[at : at + 30])
        )
    return data.decode(errors="replace")


def cut_tokens(rng: random.Random, text: str, other: str) -> str:
    tokens = [token for token in tokenize(Source.of(text, "m")).texts if token]
    donor = [token for token in tokenize(Source.of(other, "m")).texts if token]
    for _ in range(rng.choice((1, 1, 2, 4))):
        start = rng.randrange(len(tokens) + 1)
        end = min(len(tokens), start + rng.choice((0, 1, 1, 2, 6)))
        at = rng.randrange(len(donor) + 1)
        tokens[start:end] = rng.choice(([], [rng.choice(DICTIONARY)], tokens[start:end] * 2, donor[at : at + 4]))
    return rng.choice((" ", " ", "\n")).join(tokens)


def with_comments(rng: random.Random, text: str, _other: str) -> str:
    words = text.split(" ")
    for _ in range(rng.choice((1, 2, 5))):
        comment = rng.choice(("/* c */", "// c\n", "\n// c\n", "/* c\n d */", "\n\n/* /* c */ */\n", "// /* c\n"))
        words.insert(rng.randrange(len(words) + 1), comment)
    return " ".join(words)


MUTATIONS: tuple[Callable[[random.Random, str, str], str], ...] = (cut_bytes, cut_tokens, with_comments)


def checked(text: str) -> None:
    try:
        with limited(LIMIT):
            check(text)
    except BaseException as error:
        error.add_note(f"text: {text!r}") if hasattr(error, "add_note") else None
        raise


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.__name__)
def test_changed_texts(mutation: Callable[[random.Random, str, str], str]) -> None:
    texts = corpus()
    rng = random.Random(time.time_ns() if SECONDS else 7)
    end = time.monotonic() + SECONDS
    count = 0
    while count < COUNT or time.monotonic() < end:
        checked(mutation(rng, rng.choice(texts), rng.choice(texts)))
        count += 1


@pytest.mark.parametrize("path", sorted(CASES.iterdir()), ids=lambda path: path.stem)
def test_texts_that_failed_once(path: Path) -> None:
    checked(path.read_bytes().decode(errors="replace"))


@pytest.mark.parametrize(
    "opener", ["(", "[", "{", "-", "if (", "Tensor[(", "fn (%x: ", "let %x = ", "match (", "/*", "#["]
)
def test_depth(opener: str) -> None:
    checked(f"def @main() {{ {opener * 5_000}")
    checked(opener * 5_000)
