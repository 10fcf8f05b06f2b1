"""The C runtime by itself: under the sanitizers, in static libraries, and on processors that lack a feature."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from relaybuild.errors import UserError
from relaybuild.runtime import include_dir, load_module, model_header, source_dir
from relaybuild.target import Target

from .building import DATA, INPUTS, OUTPUTS, RUNTIME, STRICT, build_consumer, build_library, cc, compiled

BUILDS = {
    "plain": (),
    "portable wait": ("-DRB_PORTABLE_WAIT=1",),
    "address and undefined": ("-fsanitize=address,undefined", "-fno-sanitize-recover=all"),
    "thread": ("-fsanitize=thread",),
    "thread, portable wait": ("-fsanitize=thread", "-DRB_PORTABLE_WAIT=1"),
}

TRIED = [pytest.param(build, marks=pytest.mark.slow if build == "portable wait" else ()) for build in BUILDS]
"""Builds: that wait is seen where a sanitizer looks at it, too."""


@pytest.mark.parametrize("build", TRIED)
def test_stress(build: str, tmp_path: Path) -> None:
    run_consumer("stress", build, tmp_path, *(["--no-fork"] if build.startswith("thread") else []))


@pytest.mark.parametrize("build", TRIED)
def test_thread_pools_of_the_application(build: str, tmp_path: Path) -> None:
    run_consumer("pools", build, tmp_path)


def run_consumer(name: str, build: str, folder: Path, *words: str) -> None:
    program = build_consumer(folder, name, model_header("sample", INPUTS, OUTPUTS), BUILDS[build])
    done = subprocess.run([program, *words], capture_output=True, text=True, timeout=60)
    if "unexpected memory mapping" in done.stderr:
        pytest.skip("this kernel's address layout is not the thread sanitizer's")
    assert (done.returncode, done.stderr) == (0, "")


def test_public_layout_never_changes(tmp_path: Path) -> None:
    cc(*STRICT, f"-I{include_dir()}", "-c", DATA / "layout.c", "-o", tmp_path / "layout.o")


def test_exports_only_the_interface(sample_library: Path) -> None:
    lines = subprocess.check_output(["nm", "-D", "--defined-only", sample_library], text=True).splitlines()
    functions = ("api", "create", "run", "destroy", "describe", "last_error", "num_threads")
    fixed = {"relaybuild_model_v1", "relaybuild_last_error_v1", "__tvm_ffi_main"}
    assert {line.split()[-1] for line in lines} == fixed | {f"sample_{name}" for name in functions}


def test_needs_only_the_c_library(sample_library: Path) -> None:
    lines = subprocess.check_output(["readelf", "-d", sample_library], text=True).splitlines()
    needed = {line.split("[")[1].rstrip("]") for line in lines if "(NEEDED)" in line}
    libraries = {name.split(".")[0] for name in needed if not name.startswith("ld-")}
    assert libraries <= {"libc", "libm", "libpthread"}


def test_static_libraries_of_two_models_share_a_program(tmp_path: Path) -> None:
    for model, scale in (("first", "0.5f"), ("second", "4.0f")):
        defines = (f"-DMODEL={model}", f"-DSCALE={scale}", "-DSTATIC_MODEL")
        objects = [compiled(DATA / "program.c", "-fvisibility=hidden", *defines)]
        objects += [compiled(source, "-fvisibility=hidden") for source in RUNTIME]
        subprocess.check_call(["ar", "rcs", tmp_path / f"{model}.a", *objects])
        (tmp_path / f"{model}.h").write_text(model_header(model, INPUTS, OUTPUTS))
    (tmp_path / "main.c").write_text(
        """
        #include "first.h"
        #include "second.h"
        static float x[FIRST_INPUT_X_SIZE] = {1}, bias[FIRST_INPUT_THE_BIAS_SIZE], y[FIRST_OUTPUT_Y_SIZE], total[2];
        int main(void) {
          const RbModelInfo *info = first_describe();
          DLTensor a = rb_tensor(&info->inputs[0], x), b = rb_tensor(&info->inputs[1], bias);
          DLTensor c = rb_tensor(&info->outputs[0], y), d = rb_tensor(&info->outputs[1], total);
          const DLTensor *inputs[] = {&a, &b};
          DLTensor *outputs[] = {&c, &d};
          RbInstance *first, *second;
          if (first_create(1, &first) || second_create(2, &second)) return 1;
          if (first_run(first, inputs, 2, outputs, 2) || total[0] + total[1] != 2.0f * 0.5f * 2.0f) return 2;
          if (second_run(second, inputs, 2, outputs, 2) || total[0] + total[1] != 2.0f * 4.0f * 2.0f) return 3;
          first_destroy(first);
          second_destroy(second);
          return 0;
        }
        """
    )
    archives = (tmp_path / "first.a", tmp_path / "second.a")
    cc(*STRICT, f"-I{include_dir()}", tmp_path / "main.c", *archives, "-o", tmp_path / "main", "-pthread")
    assert subprocess.run([tmp_path / "main"]).returncode == 0


@pytest.fixture(scope="module")
def known_features(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[int, bool]]:
    """The level that brings a feature, and whether this processor offers it."""
    if Target.host().arch != "x86-64":
        pytest.skip("features have names on x86-64 only")
    program = tmp_path_factory.mktemp("features") / "features"
    others = [compiled(source) for source in RUNTIME if source.name != "cpu.c"]
    flags = ("-std=gnu11", "-Wall", f"-I{include_dir()}", f"-I{source_dir()}")
    cc(*flags, DATA / "features.c", *others, "-o", program, "-pthread")
    lines = [line.split() for line in subprocess.check_output([program], text=True).splitlines()]
    return {name: (int(level), offered == "1") for name, level, offered in lines}


@pytest.fixture(scope="module")
def features(known_features: dict[str, tuple[int, bool]]) -> dict[str, bool]:
    return {name: offered for name, (_, offered) in known_features.items()}


def test_features_agree_with_the_kernel(features: dict[str, bool]) -> None:
    info = Path("/proc/cpuinfo")
    if not info.exists():
        pytest.skip("there is no /proc/cpuinfo")
    line = next(line for line in info.read_text().splitlines() if line.startswith("flags"))
    flags = {flag.replace("_", "").replace("-", "") for flag in line.split(":")[1].split()}
    renamed = {"sse3": "pni", "pclmul": "pclmulqdq", "bmi": "bmi1", "lzcnt": "abm"}
    wanted = {name: renamed.get(name, name.replace("-", "").replace("_", "").replace(".", "")) for name in features}
    kernel = {name: wanted[name] in {flag.replace(".", "") for flag in flags} for name in features}
    assert features == kernel


@pytest.mark.parametrize("level", [2, 3, 4])
def test_knows_which_level_brings_the_features_of_a_target(
    level: int, known_features: dict[str, tuple[int, bool]]
) -> None:
    needed = set(Target.parse(f"x86-64-v{level}").cpu_features.split())
    brought = {name for name, (least, _) in known_features.items() if 2 <= least <= level}
    # what a compiler never uses unless it is asked to
    assert needed == brought - {"cx16", "lahf_lm"}


def test_host_target_is_accepted(features: dict[str, bool]) -> None:
    assert all(features[name] for name in Target.parse("native").cpu_features.split())


def test_lesser_processor_is_refused_with_a_sentence(tmp_path: Path) -> None:
    library = build_library(tmp_path / "future.so", defines=['CPU_FEATURES="avx4096 fma"'])
    with pytest.raises(UserError, match="was compiled for target 'c', which needs the processor feature 'avx4096'"):
        load_module(library)


def test_no_memory_is_an_error(tmp_path: Path) -> None:
    library = build_library(tmp_path / "large.so", defines=["ARENA_BYTES=((size_t)1<<60)"])
    with pytest.raises(UserError, match="out of memory: model 'sample' needs an arena of 1152921504606846976 bytes"):
        load_module(library)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="counts threads in /proc")
def test_no_threads_is_an_error_and_leaves_none(sample_library: Path) -> None:
    script = f"""
import os, resource, numpy
from relaybuild.errors import UserError
from relaybuild.runtime import load_module
before = len(os.listdir("/proc/self/task"))
load_module({str(sample_library)!r}, threads=2)
size = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_STACK, (8 << 20, resource.getrlimit(resource.RLIMIT_STACK)[1]))
resource.setrlimit(resource.RLIMIT_AS, (size + (100 << 20), -1))
try:
    load_module({str(sample_library)!r}, threads=1000)
except UserError as error:
    print(error)
assert len(os.listdir("/proc/self/task")) == before
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stderr == ""
    assert done.stdout.startswith("cannot start thread ")
    assert "of 1000 for model 'sample': Resource temporarily unavailable" in done.stdout
