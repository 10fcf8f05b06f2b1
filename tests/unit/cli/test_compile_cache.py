"""`relaybuild compile` and the cache, in processes of its own: what is found, what it costs, why something is not.

The processes run a copy of the package, which nobody edits meanwhile.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from runners.command import MODEL, Runner, has_executed_nothing

from relaybuild.build.cache.memo import RACY_SECONDS

pytestmark = pytest.mark.usefixtures("own_cache")

HEAVY = ("numpy", "onnx", "rich", "ninja", "cmake", "relaybuild.ir", "relaybuild.stages")

WATCHED = f"""
import sys
started = []
starting = ("subprocess.", "os.fork", "os.exec", "os.posix_spawn", "os.system")
sys.addaudithook(lambda name, _: started.append(name) if name.startswith(starting) else None)
from relaybuild.cli import main
try:
    main(sys.argv[1:], prog_name="relaybuild")
except SystemExit as end:
    assert not end.code, end.code
print([name for name in {HEAVY} if name in sys.modules], started)
"""


def changed(summary: Mapping[str, Any]) -> list[str]:
    """Names of what made the artifact another one."""
    (miss,) = [miss for miss in summary["misses"] if miss["layer"] == "artifact"]
    assert miss["reason"] == "changed", miss
    names: list[str] = miss["changed"]
    return names


@pytest.fixture
def run(package: Path, tmp_path: Path) -> Runner:
    (tmp_path / "model.relay").write_text(MODEL)
    return Runner(package, tmp_path)


@pytest.fixture
def compiled(filled: Runner, tmp_path: Path) -> Runner:
    """Something compiled, and all that is cached of it."""
    return filled.copied(tmp_path)


def test_the_second_time_nothing_heavy_is_imported_and_nothing_started(compiled: Runner) -> None:
    before = compiled.library()
    result = compiled("--depfile", compiled.folder / "model.d", code=("-c", WATCHED), output="other/model.so")
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines()[-1] == "[] []"
    assert compiled.library("other/model.so") == before
    # digests of files that were just written are remembered by the first run that comes later; then nothing is written
    time.sleep(RACY_SECONDS + 0.1)
    compiled.done()
    result = compiled(code=("-c", WATCHED.replace(str(HEAVY), str((*HEAVY, "diskcache")))))
    assert result.stdout.splitlines()[-1] == "[] []", result.stdout


def test_what_a_library_is_made_from(compiled: Runner, package: Path) -> None:
    scripts = {
        "my config.cmake": "include(${CMAKE_CURRENT_LIST_DIR}/more.cmake)\n",
        "more.cmake": "set(USE_CBLAS OFF)\n",
    }
    for name, text in scripts.items():
        (compiled.folder / name).write_text(text)
    texts = []
    for options in (("--no-cache",), (), ()):
        named = ("--depfile", "model.d", "--depfile-target", "a stamp", "--config", "my config.cmake")
        compiled.done(*named, "--threads", "3", *options)
        texts.append((compiled.folder / "model.d").read_text())
    assert texts == [texts[0]] * 3
    output, *names = texts[0].replace("\\ ", "?").split(" \\\n  ")
    assert output == "a?stamp:"
    files = [Path(name.strip().replace("?", " ")) for name in names]
    code = package / "relaybuild"
    assert {*(compiled.folder / name for name in ("model.relay", *scripts)), code / "driver.py"} < set(files)
    assert {code / "runtime" / "src" / "runtime.c", code / "cli" / "compile.py"} & set(files) == {
        code / "runtime" / "src" / "runtime.c"
    }
    assert files == sorted(file for file in files if file.exists())
    # folders in which a file more would count, the compiler's, and not the one that the library is put into
    folders = {file for file in files if file.is_dir()}
    assert {code, code / "contrib", code / "runtime" / "src", Path(shutil.which("cc") or "").parent} <= folders
    assert not {code / "cli", compiled.folder / "out", compiled.folder} & folders


def test_a_library_that_is_there_is_left_alone(compiled: Runner) -> None:
    before = (compiled.folder / "out/model.so").stat()
    assert has_executed_nothing(compiled.done())
    after = (compiled.folder / "out/model.so").stat()
    assert (after.st_mtime_ns, after.st_ino) == (before.st_mtime_ns, before.st_ino)


def test_a_library_that_was_altered_is_put_back(compiled: Runner) -> None:
    before = compiled.library()
    (compiled.folder / "out/model.so").write_bytes(before[:-1] + b"!")
    assert has_executed_nothing(compiled.done())
    assert compiled.library() == before


def test_who_asks_and_where_does_not_matter(compiled: Runner, tmp_path: Path) -> None:
    before = compiled.library()
    (tmp_path / "home").mkdir()
    (tmp_path / "elsewhere").mkdir()
    shutil.move(tmp_path / "model.relay", tmp_path / "elsewhere" / "renamed.relay")
    environ = {
        "HOME": str(tmp_path / "home"),
        "PYTHONHASHSEED": "7",
        "LC_ALL": "C.UTF-8",
        "USER": "nobody",
        "TZ": "UTC+5",
    }
    old = os.umask(0o077)
    try:
        summary = compiled.done(
            "--jobs",
            "1",
            model="elsewhere/renamed.relay",
            output="another/model.so",
            environ=environ,
            cwd=tmp_path / "elsewhere",
        )
    finally:
        os.umask(old)
    assert has_executed_nothing(summary)
    assert compiled.library("another/model.so") == before


OPTIONS = {
    "option.threads": ("--threads", "3"),
    "option.opt_level": ("--opt-level", "1"),
    "option.precise": ("--precise",),
    "option.passes.disabled": ("--disable-pass", "SimplifyExpr"),
    "option.passes.required": ("--require-pass", "FoldConstant"),
    "option.backend.USE_CODEGENC.value": ("-D", "USE_CODEGENC=ON"),
    "option.shapes": ("--shape", "x=2,3"),
    "option.target.name": ("--target", "x86-64-v2"),
}


def test_an_option_is_part_of_the_key(compiled: Runner) -> None:
    options = [word for words in OPTIONS.values() for word in words]
    assert set(OPTIONS) <= set(changed(compiled.done(*options)))
    assert has_executed_nothing(compiled.done(*options))
    assert has_executed_nothing(compiled.done())


def test_a_flag_that_is_off_is_no_other_key(compiled: Runner) -> None:
    assert has_executed_nothing(compiled.done("-D", "USE_CODEGENC=OFF"))


def test_an_edited_model(compiled: Runner) -> None:
    before = compiled.library()
    (compiled.folder / "model.relay").write_text(MODEL.replace("1f", "2f"))
    result = compiled()
    assert "MISS artifact/library#model: in/model changed" in result.stderr
    assert compiled.library() != before


def test_a_variable_that_the_compiler_reads(compiled: Runner, tmp_path: Path) -> None:
    assert "env.C_INCLUDE_PATH" in compiled.lacking(environ={"C_INCLUDE_PATH": str(tmp_path)})


def test_a_header_of_the_system(run: Runner, tmp_path: Path) -> None:
    headers = tmp_path / "headers"
    headers.mkdir()
    (headers / "string.h").write_text("#include_next <string.h>\n")
    run.environ["C_INCLUDE_PATH"] = str(headers)
    run.done()
    assert has_executed_nothing(run.done())
    (headers / "string.h").write_text("#include_next <string.h>\n\n")
    assert run.lacking() == [f"system{headers}/string.h"]
    (headers / "string.h").write_text("#include_next <string.h>\n")
    (headers / "stdint.h").write_text("#include_next <stdint.h>\n")
    assert run.lacking() == ["option.shadows"]


def test_another_compiler(compiled: Runner, tmp_path: Path) -> None:
    wrapper = tmp_path / "wrapped-cc"
    wrapper.write_text(f'#!/bin/sh\nexec {shutil.which("cc")} "$@"\n')
    wrapper.chmod(0o755)
    assert "toolchain/cc" in compiled.lacking("--cc", wrapper)


def test_relaybuilds_own_code(package: Path, compiled: Runner, tmp_path: Path) -> None:
    shutil.copytree(package, tmp_path / "edited")
    run = replace(compiled, package=tmp_path / "edited")
    assert has_executed_nothing(run.done())
    with open(tmp_path / "edited/relaybuild/passes/fold_constant.py", "a", encoding="utf-8") as file:
        file.write("# another line\n")
    assert changed(run.done()) == ["impl/relaybuild"]
    with open(tmp_path / "edited/relaybuild/cli/run.py", "a", encoding="utf-8") as file:
        file.write("# what runs models makes none\n")
    assert has_executed_nothing(run.done())


def test_no_cache(compiled: Runner) -> None:
    files = sorted(compiled.folder.glob("cache/**/*"))
    summary = compiled.done("--no-cache")
    assert summary["executed"]["link"] == 1
    assert not any(summary["cached"].values())
    assert [(miss["reason"], miss["detail"]) for miss in summary["misses"]] == [("bypassed", "no cache")]
    assert sorted(compiled.folder.glob("cache/**/*")) == files


def test_recache(compiled: Runner) -> None:
    before = compiled.library()
    summary = compiled.done("--recache")
    assert summary["executed"]["object"] > 1
    assert not any(summary["cached"].values())
    assert compiled.library() == before
    assert has_executed_nothing(compiled.done())


def test_require_hit(compiled: Runner) -> None:
    result = replace(compiled, cache="empty")("--require-hit", output="none/model.so")
    assert result.returncode == 1
    assert "error: not everything was in the cache: artifact/library: never-seen" in result.stderr
    assert not (compiled.folder / "none/model.so").exists()
    assert has_executed_nothing(compiled.done("--require-hit"))
    result = compiled("--require-hit", "--threads", "2")
    assert (result.returncode, "changed (option.threads)" in result.stderr) == (1, True)


def test_what_is_exported_is_all_that_another_machine_needs(compiled: Runner, tmp_path: Path) -> None:
    for action, cache in (("export", compiled.cache), ("import", "other")):
        command = [sys.executable, "-m", "relaybuild", "cache", action, "e.tar", "--cache-dir", cache]
        environ = {**os.environ, "PYTHONPATH": str(compiled.package)}
        subprocess.run(command, cwd=tmp_path, env=environ, check=True, timeout=60)
    assert has_executed_nothing(replace(compiled, cache="other").done("--require-hit"))


def test_options_that_exclude_each_other(run: Runner) -> None:
    result = run("--recache", "--require-hit")
    assert result.returncode == 1
    assert "'--recache' and '--require-hit' exclude each other" in result.stderr


def test_explanations_for_programs(compiled: Runner) -> None:
    result = compiled("--explain=json", "--threads", "2")
    found = json.loads(result.stderr)
    assert found["causes"][0]["changes"] == [{"component": "option.threads", "old": "0", "new": "2"}]
    assert result.stdout.count("\n") == 1
    assert json.loads(compiled("--explain=json").stderr)["hits"] == {"artifact": 1}


def test_the_closing_line(compiled: Runner) -> None:
    result = compiled()
    assert result.stderr.splitlines()[-1].startswith("cache: 1/1 hits (100.0 %), saved ")
    assert result.stdout.count("\n") == 1


def test_a_damaged_library_is_made_again(compiled: Runner) -> None:
    before = compiled.library()
    blobs = [
        path for path in compiled.folder.glob("cache/v1/cas/**/*") if path.is_file() and path.read_bytes() == before
    ]
    assert blobs
    for blob in blobs:
        blob.chmod(0o600)
        blob.write_bytes(before[:-1] + b"!")
    summary = compiled.done(output="other/model.so")
    # it is looked up again, for somebody else may have made it meanwhile
    reasons = [miss["reason"] for miss in summary["misses"] if miss["layer"] == "artifact"]
    assert reasons == ["integrity", "evicted"]
    assert compiled.library("other/model.so") == before
    assert has_executed_nothing(compiled.done(output="third/model.so"))


@pytest.mark.parametrize("place", ["a file", pytest.param("read-only", marks=pytest.mark.slow)])
def test_a_cache_that_cannot_be_written_fails_nothing(run: Runner, place: str) -> None:
    cache = run.folder / "cache"
    if place == "a file":
        cache.write_text("not a folder\n")
    else:
        cache.mkdir(mode=0o500)
    assert run.done()["executed"]["link"] == 1


@pytest.mark.slow
def test_a_full_disk_fails_nothing(run: Runner) -> None:
    cache = run.folder / "cache"
    cache.mkdir(mode=0o700)
    mount = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=128k,mode=700", "tmpfs", cache], check=False, timeout=60
    )
    if mount.returncode != 0:
        pytest.skip("mounting a file system needs rights that this user does not have")
    try:
        assert run.done()["executed"]["link"] == 1
        assert run.done()["executed"]["link"] == 1
    finally:
        subprocess.run(["umount", "-l", cache], check=True, timeout=60)


def test_processes_that_ask_for_the_same_do_it_once(compiled: Runner) -> None:
    (compiled.folder / "model.relay").write_text(MODEL.replace("1f", "2f"))

    def one(number: int) -> subprocess.CompletedProcess[str]:
        return compiled(output=f"{number}/model.so")

    with ThreadPoolExecutor(3) as pool:
        results = list(pool.map(one, range(3)))
    assert [result.returncode for result in results] == [0, 0, 0]
    summaries = [compiled.summary(f"{number}/model.so") for number in range(3)]
    assert sorted(summary["executed"]["link"] for summary in summaries) == [0, 0, 1]
    assert len({compiled.library(f"{number}/model.so") for number in range(3)}) == 1
