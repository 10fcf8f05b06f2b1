"""Frames of modules: what Python and C++ write is the same, and whatever is wrong with one is said."""

from __future__ import annotations

import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relaybuild.errors import UserError
from relaybuild.runtime import load_from_binary
from relaybuild.runtime.blob import MAGIC, Frame, frame, unframe

TEXT = b"s\n input 0 2\n relu 1 inputs: 0 shape: 2\n"
WHOLE = frame("examplejson", "USE_EXAMPLE_JSON", TEXT)


def checksummed(body: bytes) -> bytes:
    return body + struct.pack("<I", zlib.crc32(body))


@given(st.text(), st.text(), st.binary())
def test_what_is_framed_is_read_again(key: str, flag: str, payload: bytes) -> None:
    if any(0xD800 <= ord(c) < 0xE000 for c in key + flag):
        return
    assert unframe(frame(key, flag, payload)) == Frame(key, flag, payload)


def test_the_bytes_of_a_frame() -> None:
    head = b"\x89RBLOB\r\n" + b"\1\0\0\0" + b"\3\0\0\0" + b"\1\0\0\0" + b"\2\0\0\0\0\0\0\0"
    assert frame("key", "F", b"\0\xff") == checksummed(head + b"keyF\0\xff")


def test_native_code_writes_the_same_frame() -> None:
    assert load_from_binary("examplejson", WHOLE).save_to_binary() == WHOLE


BROKEN = [
    (b"", "these 0 bytes are no module of relaybuild's: they do not begin as a frame does"),
    (TEXT, f"these {len(TEXT)} bytes are no module of relaybuild's: they do not begin as a frame does"),
    (WHOLE.replace(b"\r\n", b"\n", 1), "they do not begin as a frame does"),
    (MAGIC, "the module is cut short: it has 8 bytes, its head has 28"),
    (WHOLE[:40], f"the module is cut short: it has 40 bytes, its head promises {len(TEXT)} and 59 around them"),
    (
        WHOLE[:-1],
        f"the module is cut short: it has {len(WHOLE) - 1} bytes, its head promises {len(TEXT)} and 59 around",
    ),
    (WHOLE + b"\0\0", "the module was altered: 2 bytes follow behind its end"),
    (WHOLE.replace(b"relu", b"RELU"), "the module was altered: its checksum does not match its bytes"),
    (
        WHOLE[:8] + b"\2" + WHOLE[9:],
        "version 2, this relaybuild reads version 1: use the release that wrote it, or a later one",
    ),
    (WHOLE[:12] + b"\xff\xff\xff\xff" + WHOLE[16:], "the module is cut short: it has"),
    (WHOLE[:20] + b"\xff" * 8 + WHOLE[28:], "its head promises 18446744073709551615 and 59 around them"),
]


@pytest.mark.parametrize(("data", "message"), BROKEN)
def test_what_is_wrong_is_said(data: bytes, message: str) -> None:
    with pytest.raises(UserError) as raised:
        unframe(data)
    assert message in str(raised.value)


@pytest.mark.parametrize(("data", "message"), BROKEN)
def test_native_code_says_the_same(data: bytes, message: str) -> None:
    from relaybuild.runtime import _modules

    with pytest.raises(UserError) as raised:
        _modules.load_from_binary("", data)
    assert message in str(raised.value)


def test_every_altered_byte_is_noticed() -> None:
    for place in range(len(WHOLE)):
        altered = bytearray(WHOLE)
        altered[place] ^= 0x20
        with pytest.raises(UserError):
            load_from_binary("", bytes(altered))
