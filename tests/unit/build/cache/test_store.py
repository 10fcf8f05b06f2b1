"""The cache: complete results or none, work done once, no failing build, whatever happens to files and processes."""

from __future__ import annotations

import errno
import os
import random
import shutil
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from relaybuild.build.cache import upkeep
from relaybuild.build.cache.action import ActionBuilder
from relaybuild.build.cache.hit import DamagedResult, Hit, Miss
from relaybuild.build.cache.journal import MissReason, Storing
from relaybuild.build.cache.memo import SMALL_BYTES, Inputs
from relaybuild.build.cache.record import MAX_INLINE, read_reference
from relaybuild.build.cache.settings import CacheSettings, Mode
from relaybuild.build.cache.store import Cache, open_cache
from relaybuild.digest import digest_bytes

from .conftest import ROOT, TIMEOUT, Start, action, mounted, together
from .worker import action as worker_action

LARGE = b"int x;\n" * MAX_INLINE
OUTPUTS = {"code.c": LARGE, "code.h": b"extern int x;\n"}


def kept(cache: Cache, **inputs: bytes) -> Hit:
    """A hit on a result that was stored just now."""
    made = action(**inputs)
    assert cache.store(made, OUTPUTS).storing is Storing.STORED
    found = cache.lookup(made)
    assert isinstance(found, Hit)
    return found


def missed(cache: Cache, slot: str = "", **inputs: bytes) -> Miss:
    found = cache.lookup(action(**inputs), slot=slot)
    assert isinstance(found, Miss)
    return found


def never() -> dict[str, bytes]:
    raise AssertionError("executed")


def test_a_result_is_found_again_by_another_process(settings: CacheSettings) -> None:
    with open_cache(settings) as cache:
        assert cache.run(action(x=b"1"), lambda: OUTPUTS) == OUTPUTS
    with open_cache(settings) as cache:
        assert cache.run(action(x=b"1"), never) == OUTPUTS
        assert cache.journal.summary()["cached"] == {"pass": 1}
        assert cache.journal.summary()["executed"] == {}


def test_compiling_twice_in_one_process_makes_one_entry(cache: Cache) -> None:
    for _ in range(2):
        cache.run(action(x=b"1"), lambda: OUTPUTS)
    assert [row.kind for row in cache.records.rows()] == ["ac/main"]
    assert len(cache.journal.executed) == 1


def test_a_cache_that_was_moved_hits(settings: CacheSettings, tmp_path: Path) -> None:
    with open_cache(settings) as cache:
        cache.run(action(x=b"1"), lambda: OUTPUTS)
    assert settings.folder is not None
    moved = tmp_path / "other home" / "é"
    moved.parent.mkdir()
    shutil.move(settings.folder, moved)
    with open_cache(replace(settings, folder=moved)) as cache:
        assert cache.run(action(x=b"1"), never) == OUTPUTS


def test_outputs_are_written_whole_and_left_alone_where_they_are_right(cache: Cache, tmp_path: Path) -> None:
    hit = kept(cache, x=b"1")
    targets = {name: tmp_path / name for name in OUTPUTS}
    hit.place(targets)
    assert {name: path.read_bytes() for name, path in targets.items()} == OUTPUTS
    before = [path.stat() for path in targets.values()]
    hit.place(targets, cache.inputs())
    assert [path.stat().st_mtime_ns for path in targets.values()] == [each.st_mtime_ns for each in before]
    targets["code.c"].write_bytes(b"edited" + LARGE[6:])
    hit.place(targets, cache.inputs())
    assert targets["code.c"].read_bytes() == LARGE
    assert targets["code.h"].stat().st_mtime_ns == before[1].st_mtime_ns
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cache", "code.c", "code.h"]


def test_outputs_are_no_inputs_of_the_run_that_writes_them(cache: Cache, tmp_path: Path) -> None:
    hit = kept(cache, x=b"1")
    (tmp_path / "code.c").write_bytes(b"old" + LARGE[3:])
    inputs = cache.inputs()
    hit.place({"code.c": tmp_path / "code.c"}, inputs)
    assert inputs.changed() == []


def test_what_cannot_be_placed_whole_is_not_placed(cache: Cache, tmp_path: Path) -> None:
    hit = kept(cache, x=b"1")
    (tmp_path / "code.h").write_bytes(b"old")
    cache.blobs.path_of(digest_bytes(LARGE).hex).unlink()
    with pytest.raises(DamagedResult):
        hit.place({"code.h": tmp_path / "code.h", "code.c": tmp_path / "code.c"})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cache", "code.h"]
    assert (tmp_path / "code.h").read_bytes() == b"old"
    with pytest.raises(FileNotFoundError):
        kept(cache, x=b"2").place({"code.h": tmp_path / "absent" / "code.h"})


def test_files_are_kept_with_their_permission_to_run(cache: Cache, tmp_path: Path) -> None:
    library = tmp_path / "model.so"
    library.write_bytes(LARGE)
    library.chmod(0o755)
    made = action(x=b"1")
    assert cache.store(made, {"model.so": library}).outputs == {"model.so": digest_bytes(LARGE)}
    found = cache.lookup(made)
    assert isinstance(found, Hit)
    found.place({"model.so": tmp_path / "copy.so"})
    assert (tmp_path / "copy.so").stat().st_mode & 0o100
    assert (tmp_path / "copy.so").read_bytes() == LARGE


def test_digests_are_outputs_that_later_actions_name(cache: Cache) -> None:
    module = digest_bytes(b"module")
    outputs = cache.run(action(x=b"1"), lambda: {"module": module})
    assert read_reference(outputs["module"]) == module
    found = cache.lookup(action(x=b"1"))
    assert isinstance(found, Hit)
    assert found.reference("module") == module


def remove_blob(cache: Cache, _hit: Hit) -> None:
    cache.blobs.path_of(digest_bytes(LARGE).hex).unlink()


def damaged_blob(data: bytes) -> Callable[[Cache, Hit], None]:
    def damage(cache: Cache, _hit: Hit) -> None:
        path = cache.blobs.path_of(digest_bytes(LARGE).hex)
        path.chmod(0o600)
        path.write_bytes(data)

    return damage


def change_record(change: Callable[[bytes], bytes]) -> Callable[[Cache, Hit], None]:
    def damage(cache: Cache, hit: Hit) -> None:
        index = cache.records._index
        row = index.get("ac/main", hit.key)
        assert row is not None
        index.put("ac/main", hit.key, change(row.value), replace=True)

    return damage


DAMAGES: dict[str, tuple[Callable[[Cache, Hit], None], MissReason]] = {
    "a blob is gone": (remove_blob, MissReason.EVICTED),
    "a blob is cut": (damaged_blob(LARGE[:100]), MissReason.INTEGRITY),
    "a blob is empty": (damaged_blob(b""), MissReason.INTEGRITY),
    "a blob is altered": (damaged_blob(b"x" + LARGE[1:]), MissReason.INTEGRITY),
    "a record is cut": (change_record(lambda value: value[:-1]), MissReason.INTEGRITY),
    "a record is empty": (change_record(lambda value: b""), MissReason.INTEGRITY),
    "a record is altered": (
        change_record(lambda value: value[:60] + bytes([value[60] ^ 4]) + value[61:]),
        MissReason.INTEGRITY,
    ),
    "a record is of another version": (
        change_record(lambda value: value[:3] + b"\x63" + value[4:]),
        MissReason.FORMAT_VERSION,
    ),
}


@pytest.mark.parametrize("is_shared", [False, True], ids=["database", "files"])
@pytest.mark.parametrize("name", DAMAGES)
def test_what_is_damaged_is_a_miss_with_a_reason_and_heals(settings: CacheSettings, name: str, is_shared: bool) -> None:
    damage, reason = DAMAGES[name]
    shared = replace(settings, is_shared=is_shared)
    with open_cache(shared) as cache:
        damage(cache, kept(cache, x=b"1"))
    with open_cache(shared) as cache:
        assert cache.run(action(x=b"1"), lambda: OUTPUTS) == OUTPUTS
        (event,) = cache.journal.looked
        assert event.reason is reason
        assert [each.storing for each in cache.journal.executed] == [Storing.STORED]
    with open_cache(shared) as cache:
        assert cache.run(action(x=b"1"), never) == OUTPUTS


@pytest.mark.parametrize("name", ["a blob is gone", "a blob is cut", "a blob is empty"])
def test_a_lookup_looks_for_all_blobs_and_their_sizes(cache: Cache, name: str) -> None:
    damage, reason = DAMAGES[name]
    damage(cache, kept(cache, x=b"1"))
    assert missed(cache, x=b"1").reason is reason
    assert cache.store(action(x=b"1"), OUTPUTS).storing is Storing.STORED
    assert isinstance(cache.lookup(action(x=b"1")), Hit)


def test_a_blob_that_goes_between_lookup_and_read_is_a_miss(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    kept(cache, x=b"1")
    cache.blobs.path_of(digest_bytes(LARGE).hex).unlink()
    with monkeypatch.context() as patch:
        patch.setattr(cache.blobs, "has", lambda _digest: None)
        assert cache.run(action(x=b"1"), lambda: OUTPUTS) == OUTPUTS
    assert cache.journal.looked[-1].reason is MissReason.EVICTED
    assert cache.run(action(x=b"1"), never) == OUTPUTS


def test_a_record_under_another_key_is_not_believed(cache: Cache) -> None:
    first, second = kept(cache, x=b"1"), kept(cache, x=b"2")
    row = cache.records._index.get("ac/main", first.key)
    assert row is not None
    cache.records._index.put("ac/main", second.key, row.value, replace=True)
    assert missed(cache, x=b"2").reason is MissReason.INTEGRITY


def test_a_hit_that_turns_out_damaged_counts_as_a_miss(cache: Cache) -> None:
    hit = kept(cache, x=b"1")
    damaged_blob(b"x" + LARGE[1:])(cache, hit)
    with pytest.raises(DamagedResult):
        hit.read("code.c")
    assert hit.read("code.h") == OUTPUTS["code.h"]
    assert [event.reason for event in cache.journal.looked] == [MissReason.INTEGRITY]
    assert missed(cache, x=b"1").reason is MissReason.NEVER_SEEN
    assert cache.journal.summary()["errors"] == {"damaged": 1}


@pytest.mark.parametrize("place", ["cas", "index", "tmp", "locks", "leases", "runs", "CACHEDIR.TAG", "usage"])
def test_any_part_of_the_folder_may_be_deleted(settings: CacheSettings, place: str) -> None:
    with open_cache(settings) as cache:
        cache.run(action(x=b"1"), lambda: OUTPUTS)
        assert cache.folder is not None
        path = cache.folder.root / place
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
    for _ in range(2):
        with open_cache(settings) as cache:
            assert cache.run(action(x=b"1"), lambda: OUTPUTS) == OUTPUTS
    assert [event.reason for event in cache.journal.looked] == [None]


def test_the_folder_may_be_deleted_while_it_is_used(settings: CacheSettings) -> None:
    assert settings.folder is not None
    with open_cache(settings) as cache:
        cache.run(action(x=b"1"), lambda: OUTPUTS)
        shutil.rmtree(settings.folder)
        assert cache.run(action(x=b"2"), lambda: OUTPUTS) == OUTPUTS
    with open_cache(settings) as cache:
        assert cache.run(action(x=b"3"), lambda: OUTPUTS) == OUTPUTS
    with open_cache(settings) as cache:
        assert cache.run(action(x=b"3"), never) == OUTPUTS


def test_two_writers_of_one_key_leave_one_complete_set(tmp_path: Path, start: Start) -> None:
    outputs = together([start("race", tmp_path / "cache", mark, 20) for mark in "abcdefgh"])
    found = [output.split() for output in outputs]
    assert {each[-1] for each in found} == {"0"}
    for marks in zip(*(each[:-1] for each in found)):
        # Every process has read the files of one writer, the same for all.
        assert len(set(marks)) == 1
        assert len(marks[0]) == 1


def test_eight_processes_do_the_same_work_once(tmp_path: Path, start: Start) -> None:
    log = tmp_path / "log"
    assert together([start("once", tmp_path / "cache", log, 12) for _ in range(8)]) == ["True 0"] * 8
    assert sorted(map(int, log.read_text().split())) == list(range(12))


def test_a_process_killed_at_any_step_leaves_a_cache_that_is_right(tmp_path: Path, start: Start) -> None:
    killer = start("die_at_each_step", tmp_path)
    output, _ = killer.communicate(timeout=TIMEOUT)
    assert killer.returncode == 0
    assert int(output) > 20
    outputs = {"a": b"1" * 2000, "b": b"2" * 3000}
    found = set()
    for step in range(int(output)):
        with open_cache(CacheSettings(tmp_path / str(step))) as cache:
            assert cache.run(worker_action(1), lambda: outputs) == outputs
            found.add(cache.journal.looked[0].reason)
            assert cache.journal.failed == [], step
        with open_cache(CacheSettings(tmp_path / str(step))) as cache:
            assert cache.run(worker_action(1), never) == outputs
    assert found == {None, MissReason.NEVER_SEEN}


def test_processes_killed_at_any_moment_leave_a_cache_that_is_right(tmp_path: Path, start: Start) -> None:
    killer = start("die", tmp_path / "cache", 50, 7)
    output, _ = killer.communicate(timeout=TIMEOUT)
    assert killer.returncode == 0
    assert int(output) >= 25
    with open_cache(CacheSettings(tmp_path / "cache")) as cache:
        for number in range(100):
            made = b"%d" % number
            outputs = {"a": made * 2000, "b": made}
            assert cache.run(worker_action(number), lambda outputs=outputs: outputs) == outputs
        assert cache.journal.failed == []
        assert not [event for event in cache.journal.executed if event.storing is not Storing.STORED]
        assert not [event for event in cache.journal.looked if event.reason is MissReason.INTEGRITY]


def test_a_second_result_of_one_key_is_a_conflict(cache: Cache) -> None:
    made = action(x=b"1")
    assert cache.store(made, OUTPUTS).storing is Storing.STORED
    assert cache.store(made, OUTPUTS).storing is Storing.KNOWN
    other = {**OUTPUTS, "code.h": b"other"}
    assert cache.store(made, other).storing is Storing.CONFLICT
    event = cache.journal.executed[-1]
    assert event.detail == "equal inputs gave another 'code.h'"
    assert cache.journal.summary()["conflicts"] == [made.key("main")]
    assert cache.run(made, never) == OUTPUTS


def test_other_outputs_of_equal_work_are_noticed_after_an_eviction(cache: Cache) -> None:
    made = action(x=b"1")
    cache.store(made, OUTPUTS, slot="model")
    cache.records.forget("ac/main", [made.key("main")])
    cache.store(made, {**OUTPUTS, "code.h": b"other"}, slot="model")
    assert cache.journal.executed[-1].is_unstable


def test_what_fails_is_not_stored(cache: Cache) -> None:
    def fail() -> dict[str, bytes]:
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        cache.run(action(x=b"1"), fail)
    assert missed(cache, x=b"1").reason is MissReason.NEVER_SEEN
    assert list(cache.records.rows()) == []


@pytest.mark.parametrize("outputs", [{"a": b"1"}, {"a": b"1", "b": None}, {"a": b"1", "c": b"1"}])
def test_incomplete_outputs_and_empty_files_are_not_stored(
    cache: Cache, tmp_path: Path, outputs: dict[str, bytes | None]
) -> None:
    made = ActionBuilder("object", "cc").output("a", "b").build()
    (tmp_path / "b").touch()
    outputs = {name: tmp_path / name if data is None else data for name, data in outputs.items()}
    assert cache.store(made, outputs).storing is Storing.INCOMPLETE
    assert isinstance(cache.lookup(made), Miss)
    assert cache.store(made, {"a": b"1", "b": b"2"}).storing is Storing.STORED
    with pytest.raises(ValueError, match="without outputs"):
        cache.store(made, {})


def test_what_another_process_made_meanwhile_is_found_when_it_is_looked_for_again(settings: CacheSettings) -> None:
    with open_cache(settings) as cache, open_cache(settings) as another:
        first, last = (missed(cache, x=name) for name in (b"1", b"2"))
        assert cache.look_again(action(x=b"1"), first) is first
        another.store(action(x=b"1"), OUTPUTS)
        another.store(action(x=b"3"), OUTPUTS)
        assert isinstance(cache.look_again(action(x=b"1"), first), Hit)
        # more is known of what it is
        assert isinstance(cache.look_again(action(x=b"3"), last), Hit)
        assert [event.reason for event in cache.journal.looked] == [None, None]


def test_outputs_without_bytes_are_kept(settings: CacheSettings) -> None:
    empty = {"blob": b"", "facts": b"{}"}
    for only in (empty, {"blob": b""}):
        for execute in (lambda only=only: only, never):
            with open_cache(settings) as cache:
                assert cache.run(action(x=str(only).encode()), execute) == only
    with open_cache(settings) as cache:
        assert upkeep.verify(cache, 1.0).damaged == ()


def test_an_input_edited_while_in_use_is_used_but_not_stored(cache: Cache, tmp_path: Path) -> None:
    model = tmp_path / "model.onnx"
    model.write_bytes(b"first")
    inputs = cache.inputs()
    inputs.digest(model)

    def slow() -> dict[str, bytes]:
        model.write_bytes(b"other")
        return OUTPUTS

    assert cache.run(action(x=b"1"), slow, slot="model", inputs=inputs) == OUTPUTS
    assert cache.journal.executed[-1].storing is Storing.RACY_INPUT
    assert missed(cache, "model", x=b"1").reason is MissReason.RACY_INPUT
    assert cache.run(action(x=b"1"), lambda: OUTPUTS, slot="model", inputs=Inputs(None)) == OUTPUTS
    assert isinstance(cache.lookup(action(x=b"1")), Hit)


def test_the_reason_of_a_miss_names_what_changed(cache: Cache) -> None:
    assert missed(cache, "model", module=b"1", impl=b"1").reason is MissReason.NEVER_SEEN
    cache.store(action(module=b"1", impl=b"1"), OUTPUTS, slot="model")
    found = missed(cache, "model", module=b"1", impl=b"2")
    assert found.reason is MissReason.CHANGED
    assert [change.component for change in found.changes] == ["in/impl"]
    assert found.changes[0].new == digest_bytes(b"2").hex
    cache.records.forget("ac/main", [action(module=b"1", impl=b"1").key("main")])
    assert missed(cache, "model", module=b"1", impl=b"1").reason is MissReason.EVICTED
    cache.bypass("pass", "Mine", "plugin-without-id")
    assert cache.journal.summary()["misses"][-1]["detail"] == "plugin-without-id"


@pytest.mark.parametrize("code", ["ENOSPC", "EDQUOT", "EROFS", "EACCES", "EIO", "ESTALE", "EBUSY"])
@pytest.mark.parametrize("call", ["open", "write", "link", "fchmod", "mkdir", "rename", "statvfs"])
@pytest.mark.parametrize("is_shared", [False, True], ids=["database", "files"])
def test_no_failing_write_fails_a_build(
    settings: CacheSettings, monkeypatch: pytest.MonkeyPatch, call: str, code: str, is_shared: bool
) -> None:
    original, number = getattr(os, call), getattr(errno, code)
    assert settings.folder is not None
    below = str(settings.folder)

    def fail(target: object, *arguments: object, **options: object) -> object:
        is_reading = call == "open" and not int(str(arguments[0])) & os.O_CREAT
        if is_reading or (isinstance(target, (str, Path)) and not str(target).startswith(below)):
            return original(target, *arguments, **options)
        raise OSError(number, os.strerror(number))

    shared = replace(settings, is_shared=is_shared)
    with monkeypatch.context() as patch:
        patch.setattr(os, call, fail)
        with open_cache(shared) as cache:
            assert cache.run(action(x=b"1"), lambda: OUTPUTS, slot="model") == OUTPUTS
            (executed,) = cache.journal.executed
            assert executed.storing in (Storing.STORED, Storing.NOT_WRITABLE) or cache.journal.failed
    with open_cache(shared) as cache:
        assert cache.run(action(x=b"1"), lambda: OUTPUTS, slot="model") == OUTPUTS
        assert cache.journal.looked[0].reason is not MissReason.INTEGRITY
        assert cache.folder is not None
        assert [path for path in cache.folder.tmp.iterdir() if path.is_file()] == []
    with open_cache(shared) as cache:
        assert cache.run(action(x=b"1"), never) == OUTPUTS


@pytest.mark.parametrize("is_shared", [False, True], ids=["database", "files"])
def test_a_full_disk_fails_no_build_and_keeps_no_half_entry(tiny_disk: Path, is_shared: bool) -> None:
    chooser = random.Random(3)
    shared = CacheSettings(tiny_disk / "cache", is_shared=is_shared)
    contents = {number: {"a": chooser.randbytes(60_000), "b": chooser.randbytes(2000)} for number in range(40)}
    for _ in range(2):
        with open_cache(shared) as cache:
            for number, outputs in contents.items():
                assert cache.run(action(x=b"%d" % number), lambda outputs=outputs: outputs) == outputs
            assert {event.storing for event in cache.journal.executed} <= {
                Storing.STORED,
                Storing.NO_SPACE,
                Storing.FAILED,
            }
            assert not [event for event in cache.journal.looked if event.reason is MissReason.INTEGRITY]
    stored = [event for event in cache.journal.looked if event.reason is None]
    assert 0 < len(stored) < 40


def test_a_read_only_cache_hits_and_is_not_written(settings: CacheSettings, tmp_path: Path) -> None:
    with open_cache(settings) as cache:
        cache.run(action(x=b"1"), lambda: OUTPUTS)
    assert settings.folder is not None
    for view in mounted(tmp_path / "view", "--bind", settings.folder):
        subprocess.run(["mount", "-o", "remount,ro,bind", view], check=True, timeout=TIMEOUT)
        with open_cache(replace(settings, folder=view)) as cache:
            assert cache.run(action(x=b"1"), never, slot="model") == OUTPUTS
            assert cache.run(action(x=b"2"), lambda: OUTPUTS, slot="model") == OUTPUTS
            assert [event.storing for event in cache.journal.executed] == [Storing.NOT_WRITABLE]
        assert cache.journal.failed == []


def test_objects_can_be_used_from_a_folder_in_which_nothing_may_run(tmp_path: Path) -> None:
    for folder in mounted(tmp_path / "noexec", "-t", "tmpfs", "-o", "noexec,size=4m", "tmpfs"):
        with open_cache(CacheSettings(folder / "cache")) as cache:
            program = tmp_path / "program"
            program.write_text("#!/bin/sh\necho ran\n")
            program.chmod(0o755)
            cache.store(action(x=b"1"), {"program": program})
            found = cache.lookup(action(x=b"1"))
            assert isinstance(found, Hit)
            found.place({"program": tmp_path / "copy"})
    done = subprocess.run([tmp_path / "copy"], capture_output=True, text=True, check=True, timeout=TIMEOUT)
    assert done.stdout == "ran\n"


def test_results_that_would_fill_the_cache_are_not_kept_but_told(settings: CacheSettings) -> None:
    with open_cache(replace(settings, max_size=10_000)) as cache:
        assert cache.store(action(x=b"1"), {"a": bytes(range(256)) * 20}).storing is Storing.TOO_LARGE
        assert cache.journal.summary()["storing"] == {"too-large": 1}
        assert "more than half of the limit of 10000" in cache.journal.executed[0].detail
        assert cache.store(action(x=b"2"), {"a": bytes(5000)}).storing is Storing.STORED


@pytest.mark.parametrize("mode", [Mode.OFF, Mode.READ])
def test_modes_that_keep_nothing_make_nothing(settings: CacheSettings, mode: Mode) -> None:
    with open_cache(replace(settings, mode=mode)) as cache:
        assert cache.run(action(x=b"1"), lambda: OUTPUTS, slot="model") == OUTPUTS
        assert cache.journal.executed[0].storing is Storing.NOT_WRITABLE
    with open_cache(settings) as cache:
        assert list(cache.records.rows()) == []


def test_recache_executes_everything_and_replaces_it(settings: CacheSettings) -> None:
    other = {**OUTPUTS, "code.h": b"other"}
    with open_cache(settings) as cache:
        cache.run(action(x=b"1"), lambda: OUTPUTS)
    with open_cache(replace(settings, mode=Mode.RECACHE)) as cache:
        assert cache.run(action(x=b"1"), lambda: other) == other
        assert cache.journal.executed[0].storing is Storing.CONFLICT
        assert cache.journal.looked[0].detail == "recache"
    with open_cache(settings) as cache:
        assert cache.run(action(x=b"1"), never) == other


def test_without_a_folder_everything_is_executed() -> None:
    with open_cache(CacheSettings(None)) as cache:
        assert cache.run(action(x=b"1"), lambda: OUTPUTS, slot="model") == OUTPUTS
        assert cache.inputs().digest(Path(__file__)).size > 0
        cache.store(action(x=b"1"), OUTPUTS)
        with cache.claim(action(x=b"1")):
            pass


def test_a_folder_that_cannot_be_made_fails_no_build(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with open_cache(CacheSettings(tmp_path / "file" / "cache")) as cache:
        assert cache.run(action(x=b"1"), lambda: OUTPUTS) == OUTPUTS


def test_namespaces_are_written_by_their_own_and_read_by_who_trusts_them(settings: CacheSettings) -> None:
    request = replace(settings, namespace="pr/1", trusted=("main",))
    with open_cache(settings) as cache:
        cache.run(action(x=b"1"), lambda: OUTPUTS)
    with open_cache(request) as cache:
        assert cache.run(action(x=b"1"), never) == OUTPUTS
        cache.run(action(x=b"2"), lambda: {"a": b"poison"})
    with open_cache(settings) as cache:
        assert isinstance(cache.lookup(action(x=b"2")), Miss)
    with open_cache(replace(settings, namespace="pr/2")) as cache:
        assert isinstance(cache.lookup(action(x=b"1")), Miss)


def test_records_without_the_secret_are_not_believed(settings: CacheSettings) -> None:
    with open_cache(settings) as cache:
        cache.run(action(x=b"1"), lambda: {"a": b"poison"})
    with open_cache(replace(settings, secret=b"secret")) as cache:
        assert missed(cache, x=b"1").reason is MissReason.TRUST
        cache.run(action(x=b"1"), lambda: OUTPUTS)
    with open_cache(replace(settings, secret=b"secret")) as cache:
        assert cache.run(action(x=b"1"), never) == OUTPUTS
    assert "secret" not in repr(replace(settings, secret=b"secret"))


def test_a_poisoned_index_is_put_away_and_begun_anew(settings: CacheSettings) -> None:
    with open_cache(settings) as cache:
        cache.run(action(x=b"1"), lambda: OUTPUTS)
        assert cache.folder is not None
    connection = sqlite3.connect(cache.folder.index / "cache.db")
    with connection:
        connection.execute("INSERT INTO Settings VALUES ('_disk', 'x')")
    connection.close()
    with open_cache(settings) as cache:
        assert cache.run(action(x=b"1"), lambda: OUTPUTS) == OUTPUTS
        assert cache.journal.summary()["errors"] == {"poisoned": 1}
        assert [path.name.split(".")[0] for path in cache.folder.quarantine.iterdir()] == ["index"]
    with open_cache(settings) as cache:
        assert cache.run(action(x=b"1"), never) == OUTPUTS
        assert cache.journal.failed == []


def test_digests_of_files_are_remembered_between_runs(settings: CacheSettings, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    content = bytes(SMALL_BYTES)
    path.write_bytes(content)
    for _ in range(2):
        with open_cache(settings, lambda: time.time() + 60) as cache:
            assert [cache.inputs().digest(path) for _ in range(2)] == [digest_bytes(content)] * 2
        with open_cache(settings) as cache:
            assert [row.kind for row in cache.records.rows()] == ["memo"]


def test_a_run_that_finds_everything_imports_nothing_heavy(settings: CacheSettings) -> None:
    with open_cache(settings) as cache:
        cache.run(action(x=b"1"), lambda: OUTPUTS)
    code = (
        "import sys; from pathlib import Path; from relaybuild.build.cache.store import open_cache; "
        "from relaybuild.build.cache.settings import CacheSettings; "
        "from relaybuild.build.cache.action import Action; "
        f"made = Action.decode({action(x=b'1').encode()!r}); "
        f"cache = open_cache(CacheSettings(Path({str(settings.folder)!r}))); "
        "assert cache.lookup(made).read_all(); cache.close(); "
        "print(*sorted({'numpy', 'onnx', 'rich', 'diskcache', 'click', 'tarfile'} & set(sys.modules)))"
    )
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=True, timeout=TIMEOUT)
    assert done.stdout.strip() == ""


def test_what_is_done_aside_is_waited_for_where_it_matters(settings: CacheSettings, tmp_path: Path) -> None:
    path = tmp_path / "read"
    path.write_bytes(b"content")
    begun = threading.Event()

    def work() -> None:
        begun.wait(TIMEOUT)
        inputs.digest(path)
        cache.records.write("memo", "a" * 16, b"said")

    with open_cache(settings) as cache:
        inputs = cache.inputs()
        cache.aside(work)
        threading.Timer(0.05, begun.set).start()
        assert cache.files_read() == {str(path)}
        begun.clear()
        cache.records.forget("memo", ["a" * 16])
        cache.aside(work)
        threading.Timer(0.05, begun.set).start()
    with open_cache(settings) as cache:
        assert cache.records.read("memo", "a" * 16) == b"said"
