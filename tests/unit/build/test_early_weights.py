"""Weights that are written while compilers run: the same bytes as later, wherever they turn out to be wanted."""

from __future__ import annotations

import dataclasses
import threading
import time
from pathlib import Path
from typing import BinaryIO

import pytest

from relaybuild.build.early_weights import EarlyWeights, early_weights
from relaybuild.build.elf import can_write_for
from relaybuild.build.library import Unit, WeightBlob, build_library
from relaybuild.build.link_layer import LinkLayer
from relaybuild.build.toolchain import Toolchain
from relaybuild.build.workspace import Workspace
from relaybuild.digest import digest_bytes
from relaybuild.errors import InternalError, ToolError, UserError

from .caching import ADD, MAIN, MUL, Site, write_headers

SIZE = 17 << 20
SECONDS = 60.0


@dataclasses.dataclass
class Blob:
    """Weights that tell which threads wrote them."""

    seed: int = 0
    threads: list[str] = dataclasses.field(default_factory=list)

    @property
    def weights(self) -> WeightBlob:
        data = bytes((self.seed + number) % 251 for number in range(1021)) * (SIZE // 1021 + 1)

        def write(file: BinaryIO) -> None:
            self.threads.append(threading.current_thread().name)
            file.write(memoryview(data)[:SIZE])

        return WeightBlob(write, digest_bytes(data).hex, SIZE, (0, SIZE // 2))

    def was_early(self) -> bool:
        """Whether they were written once, beside the compilers."""
        return len(self.threads) == 1 and self.threads[0].startswith("early-weights")


@pytest.fixture
def site(tmp_path: Path, toolchain: Toolchain) -> Site:
    if not can_write_for(toolchain.elf_machine):
        pytest.skip("the compiler does not make objects that can be written here")
    write_headers(tmp_path / "include")
    return Site(tmp_path, toolchain, tmp_path / "cache")


def edited(number: int, text: str = "") -> Unit:
    return Unit("rb_mul", f"int rb_mul(int a, int b) {{ return {number} * a * b; }}\n{text}")


def plain(site: Site, unit: Unit, blob: Blob) -> bytes:
    """The library without a cache."""
    site_spec = site.spec(ADD, unit, MAIN, weights=blob.weights)
    build_library(site_spec, site.toolchain, site.folder / "plain", site.library("plain"))
    return site.library("plain").read_bytes()


def test_what_is_linked_again_has_its_weights_written_meanwhile(site: Site) -> None:
    first, second, third = Blob(), Blob(), Blob(seed=7)
    site.build(site.spec(ADD, MUL, MAIN, weights=first.weights))
    assert first.threads == [threading.current_thread().name]
    site.build(site.spec(ADD, edited(5), MAIN, weights=second.weights))
    assert second.was_early()
    assert site.library().read_bytes() == plain(site, edited(5), Blob())
    assert site.library().stat().st_mode & 0o111
    site.build(site.spec(ADD, edited(5), MAIN, weights=third.weights))
    assert third.was_early()
    assert site.library().read_bytes() == plain(site, edited(5), Blob(seed=7))
    assert not (site.folder / "work").exists()


def test_weights_in_the_wrong_place_are_written_again(site: Site) -> None:
    site.build(site.spec(ADD, MUL, MAIN, weights=Blob().weights))
    large = edited(5, f"char rb_more[{300 << 10}] = {{1}};\n")
    blob = Blob()
    site.build(site.spec(ADD, large, MAIN, weights=blob.weights), keep=True)
    assert len(blob.threads) == 2
    assert site.library().read_bytes() == plain(site, large, Blob())
    assert not list((site.folder / "work").glob("*.weights"))
    again = Blob()
    site.build(site.spec(ADD, edited(6, large.text.partition("\n")[2]), MAIN, weights=again.weights))
    assert again.was_early()


def test_a_limited_number_of_jobs_holds_for_weights_too(site: Site) -> None:
    site.build(site.spec(ADD, MUL, MAIN, weights=Blob().weights))
    blob = Blob()
    site.build(site.spec(ADD, edited(5), MAIN, weights=blob.weights), jobs=1)
    assert blob.threads == [threading.current_thread().name]


def test_an_object_that_comes_out_the_same_needs_no_weights(site: Site) -> None:
    site.build(site.spec(ADD, MUL, MAIN, weights=Blob().weights))
    before = site.library().read_bytes()
    comment = dataclasses.replace(MUL, text=f"/* the same */ {MUL.text}")
    report = site.build(site.spec(ADD, comment, MAIN, weights=Blob().weights))
    assert report.executed == {"object": 1, "link": 0}
    assert site.library().read_bytes() == before


def test_nothing_is_left_where_a_unit_does_not_compile(site: Site) -> None:
    site.build(site.spec(ADD, MUL, MAIN, weights=Blob().weights))
    with pytest.raises(ToolError, match="nonsense"):
        site.build(site.spec(ADD, edited(5, "nonsense\n"), MAIN, weights=Blob().weights))
    assert not (site.folder / "work").exists()
    assert not [each for each in threading.enumerate() if each.name.startswith("early-weights")]


@pytest.mark.parametrize("note", [b"", b"-1", b"12 MB", b"9" * 40])
def test_a_note_that_is_none(site: Site, monkeypatch: pytest.MonkeyPatch, note: bytes) -> None:
    monkeypatch.setattr(LinkLayer, "_place_note", property(lambda self: note))
    site.build(site.spec(ADD, MUL, MAIN, weights=Blob().weights))
    blob = Blob()
    site.build(site.spec(ADD, edited(5), MAIN, weights=blob.weights))
    assert blob.threads == [threading.current_thread().name]


def test_few_weights_are_not_written_early(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[int | None] = []
    monkeypatch.setattr(Workspace, "early_weights", lambda self, place: _noted(begun, self, place))
    site.build(site.spec(ADD, MUL, MAIN))
    site.build(site.spec(ADD, edited(5), MAIN))
    assert begun == [None, None]


def _noted(begun: list[int | None], workspace: Workspace, place: int | None) -> object:
    begun.append(place)
    return early_weights(workspace.directory / "unused", None, None)


def test_what_goes_wrong_comes_up_where_the_weights_are_needed(tmp_path: Path) -> None:
    def fail(file: BinaryIO) -> None:
        raise OSError(28, "No space left on device")

    with early_weights(tmp_path / "file", 4096, WeightBlob(fail, "", 10)) as early:
        assert early is not None
        with pytest.raises(UserError, match="there is no space left"):
            early.file()
    with early_weights(tmp_path / "file", 4096, WeightBlob(lambda file: None, "", 10)) as early:
        assert early is not None
        with pytest.raises(InternalError, match="are 0 bytes long, but 10 were announced"):
            early.file()
    assert not list(tmp_path.iterdir())
    with pytest.raises(UserError, match="its folder does not exist"):
        EarlyWeights(tmp_path / "absent" / "file", 4096, WeightBlob(fail, "", 10))


def test_who_stops_does_not_wait_for_all_weights(tmp_path: Path) -> None:
    begun = threading.Event()

    def write(file: BinaryIO) -> None:
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            file.write(bytes(1 << 10))
            begun.set()

    start = time.monotonic()
    with early_weights(tmp_path / "file", 0, WeightBlob(write, "", SIZE)) as early:
        assert early is not None
        assert begun.wait(SECONDS)
    assert time.monotonic() - start < SECONDS / 2
    assert not list(tmp_path.iterdir())
