"""Targets: what each name means, what is refused and with which words, and what the building machine is."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from relaybuild import target as target_module
from relaybuild.errors import UserError
from relaybuild.target import Target

V2_FLAGS = frozenset("cx16 lahf_lm popcnt pni sse4_1 sse4_2 ssse3".split())
V3_FLAGS = V2_FLAGS | frozenset("avx avx2 bmi1 bmi2 f16c fma abm movbe xsave".split())
V4_FLAGS = V3_FLAGS | frozenset("avx512f avx512bw avx512cd avx512dq avx512vl".split())


def pretend_machine(monkeypatch: pytest.MonkeyPatch, machine: str, flags: frozenset[str]) -> None:
    monkeypatch.setattr("platform.machine", lambda: machine)
    monkeypatch.setattr(target_module, "_linux_cpu_flags", lambda: flags)


@pytest.mark.parametrize(
    ("name", "arch", "level", "lanes", "registers", "fma"),
    [
        ("c", "c", "", 1, 16, False),
        ("aarch64", "aarch64", "", 4, 32, True),
        ("x86-64", "x86-64", "", 4, 16, False),
        ("x86-64-v2", "x86-64", "v2", 4, 16, False),
        ("x86-64-v3", "x86-64", "v3", 8, 16, True),
        ("x86-64-v4", "x86-64", "v4", 16, 32, True),
    ],
)
def test_levels(name: str, arch: str, level: str, lanes: int, registers: int, fma: bool) -> None:
    target = Target.parse(name)
    assert (str(target), target.name, target.features) == (name, name, ())
    assert (target.arch, target.level) == (arch, level)
    assert (target.vector_lanes, target.num_vector_registers, target.has_fma) == (lanes, registers, fma)


@pytest.mark.parametrize(
    ("name", "cflags"),
    [
        ("c", ()),
        ("aarch64", ("-march=armv8-a",)),
        ("x86-64-v2+fma", ("-march=x86-64-v2", "-mavx", "-mfma")),
        ("x86-64-v3", ("-march=x86-64-v3",)),
        ("x86-64-v4+avx512vnni", ("-march=x86-64-v4", "-mprefer-vector-width=512", "-mavx512vnni")),
    ],
)
def test_cflags(name: str, cflags: tuple[str, ...]) -> None:
    assert Target.parse(name).cflags == cflags


@pytest.mark.parametrize(
    ("text", "name", "levels"),
    [
        ("x86-64-multi", "x86-64-multi", ["x86-64-v2", "x86-64-v3", "x86-64-v4"]),
        ("x86-64-multi[v4, v2,v3]", "x86-64-multi", ["x86-64-v2", "x86-64-v3", "x86-64-v4"]),
        (" x86-64-multi[v3,v2,v3] ", "x86-64-multi[v2,v3]", ["x86-64-v2", "x86-64-v3"]),
        ("x86-64-multi[v1,v4]", "x86-64-multi[v1,v4]", ["x86-64", "x86-64-v4"]),
    ],
)
def test_several_levels_are_one_target_that_all_of_them_run(text: str, name: str, levels: list[str]) -> None:
    target = Target.parse(text)
    assert (target.name, list(target.levels)) == (name, levels)
    assert target.parts == tuple(map(Target.parse, levels))
    least = target.parts[0]
    assert (target.cflags, target.cpu_features) == (least.cflags, least.cpu_features)


def test_one_level_of_several_is_that_level() -> None:
    target = Target.parse("x86-64-multi[v3]")
    assert target == Target.parse("x86-64-v3")
    assert target.parts == (target,)


def test_what_a_cpu_must_have_grows_with_the_level() -> None:
    needed = [set(Target.parse(f"x86-64-v{level}").cpu_features.split()) for level in (2, 3, 4)]
    assert needed[0] < needed[1] < needed[2]
    assert {"avx2", "fma"} <= needed[1] - needed[0]
    assert "avx512f" in needed[2] - needed[1]
    assert "avx512vnni" in Target.parse("x86-64-v4+avx512vnni").cpu_features.split()


@pytest.mark.parametrize("name", ["c", "aarch64"])
def test_targets_that_every_cpu_of_the_architecture_runs_need_nothing(name: str) -> None:
    assert Target.parse(name).cpu_features == ""


def test_features_are_sorted_and_what_the_level_has_is_dropped() -> None:
    canonical = Target.parse("x86-64-v4+avx512bf16+avx512vnni")
    assert Target.parse(" x86-64-v4+avx512vnni+fma+avx512bf16+avx512vnni ") == canonical
    assert canonical.name == "x86-64-v4+avx512bf16+avx512vnni"


def test_a_feature_widens_vectors_and_brings_fma() -> None:
    target = Target.parse("x86-64-v2+fma")
    assert (target.vector_lanes, target.has_fma) == (8, True)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "x86-64-v5",
            "unknown target: 'x86-64-v5'; did you mean 'x86-64-v4'? "
            "(known: c, aarch64, x86-64, x86-64-v2, x86-64-v3, x86-64-v4, x86-64-multi, native)",
        ),
        ("", "unknown target: '' (known: c, aarch64, x86-64, x86-64-v2, x86-64-v3, x86-64-v4, x86-64-multi, native)"),
        (
            "x86-64-v3+avxvni",
            "unknown feature of target 'x86-64-v3': 'avxvni'; did you mean 'avxvnni'? (known: avxvnni)",
        ),
        (
            "x86-64-v3+avx512vnni",
            "feature 'avx512vnni' needs target 'x86-64-v4' or later, but the target is 'x86-64-v3'; "
            "features that 'x86-64-v3' can have: avxvnni",
        ),
        (
            "aarch64+fma",
            "feature 'fma' needs target 'x86-64-v2' or later, but the target is 'aarch64'; "
            "features that 'aarch64' can have: none",
        ),
        (
            "x86-64-multi[v2,v9]",
            "unknown level of target 'x86-64-multi': 'v9'; did you mean 'v4'? (known: v1, v2, v3, v4)",
        ),
        ("x86-64-multi[]", "unknown level of target 'x86-64-multi': '' (known: v1, v2, v3, v4)"),
        ("c+", "unknown feature of target 'c': '' (known: none)"),
        (
            "native+fma",
            "target 'native+fma' adds features to 'native', which already stands for all of this machine; "
            "write 'native' alone or a level with features",
        ),
    ],
)
def test_what_is_refused(text: str, message: str) -> None:
    with pytest.raises(UserError) as caught:
        Target.parse(text)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("machine", "flags", "name"),
    [
        ("x86_64", V4_FLAGS | {"avx512_vnni"}, "x86-64-v4"),
        ("x86_64", V4_FLAGS - {"avx512vl"}, "x86-64-v3"),
        ("x86_64", V3_FLAGS - {"fma"}, "x86-64-v2"),
        ("x86_64", frozenset({"sse2"}), "x86-64"),
        ("x86_64", frozenset(), "x86-64-v2"),
        ("AMD64", V3_FLAGS, "x86-64-v3"),
        ("aarch64", frozenset(), "aarch64"),
        ("arm64", frozenset(), "aarch64"),
        ("riscv64", frozenset(), "c"),
    ],
)
def test_the_host_is_the_level_of_the_machine(
    monkeypatch: pytest.MonkeyPatch, machine: str, flags: frozenset[str], name: str
) -> None:
    pretend_machine(monkeypatch, machine, flags)
    assert Target.host() == Target.parse(name)


def test_native_is_the_level_and_what_the_machine_has_beyond_it(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend_machine(monkeypatch, "x86_64", V4_FLAGS | {"avx512_vnni", "avx512_bf16", "avx_vnni", "amx_tile"})
    assert Target.parse("native").name == "x86-64-v4+avx512bf16+avx512vnni+avxvnni"


def test_native_of_a_machine_between_levels(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend_machine(monkeypatch, "x86_64", V3_FLAGS - {"avx2", "bmi2"})
    assert Target.parse("native").name == "x86-64-v2+avx+bmi+f16c+fma"


def test_native_of_this_machine_is_never_keyed_as_native() -> None:
    target = Target.parse("native")
    assert "native" not in target.name
    assert Target.parse(target.name) == target


def test_a_machine_without_cpuinfo_has_no_flags(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreadable(*args: object, **kwargs: object) -> str:
        raise FileNotFoundError

    monkeypatch.setattr(Path, "read_text", unreadable)
    assert target_module._linux_cpu_flags.__wrapped__() == frozenset()


def test_the_current_target_is_the_innermost_of_the_thread() -> None:
    assert Target.current() is None
    with target_module.create("x86-64-v3") as outer:
        assert Target.current() is outer
        with target_module.create("c"):
            assert Target.current() == Target.parse("c")
        assert Target.current() is outer
        seen: list[Target | None] = []
        thread = threading.Thread(target=lambda: seen.append(Target.current()))
        thread.start()
        thread.join()
        assert seen == [None]
    assert Target.current() is None


def test_the_target_asked_for() -> None:
    c = Target.parse("c")
    assert target_module.chosen("c") == c
    assert target_module.chosen(c) is c
    assert target_module.chosen(None) == Target.host()
    with c:
        assert target_module.chosen(None) is c
        assert target_module.chosen("aarch64") == Target.parse("aarch64")


def test_a_name_of_another_tool_is_refused() -> None:
    with pytest.raises(UserError, match=r"^unknown target: 'llvm' \(known: c, aarch64, x86-64, x86-64-v2, "):
        target_module.create("llvm")


def test_machines_with_equal_features_have_equal_targets(monkeypatch: pytest.MonkeyPatch) -> None:
    """What else a processor reports, and whose it is, is in no key."""
    found = set()
    for others in ({"avx512_vnni", "sha_ni", "amd_lbr_v2"}, {"avx512_vnni", "pdcm", "hle"}):
        pretend_machine(monkeypatch, "x86_64", V4_FLAGS | others)
        found.add(Target.parse("native"))
    assert found == {Target.parse("x86-64-v4+avx512vnni")}
