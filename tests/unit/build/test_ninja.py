"""The ninja writer's text, and real ninja runs: escaping, progress, failures."""

from __future__ import annotations

import shlex
import sys
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from relaybuild.build import ninja as ninja_module
from relaybuild.build.ninja import (
    Durations,
    FinishedEdge,
    NinjaWriter,
    Ref,
    RunningNinja,
    Word,
    find_ninja,
    run_ninja,
)
from relaybuild.errors import InternalError, ToolError, UserError

DUMP = "import sys, json; json.dump(sys.argv[2:], open(sys.argv[1], 'w'))"


def test_the_text_of_each_construct() -> None:
    writer = NinjaWriter()
    writer.comment("two\nlines")
    writer.variable("cc", ("/opt/my cc/gcc", "-DX=$Y"))
    writer.variable("note", " costs 5$")
    writer.blank()
    writer.pool("heavy", 1)
    writer.rule(
        "compile",
        (Ref("cc"), "-MF", Ref("out", suffix=".d"), Ref("flags"), "-c", Ref("in")),
        description=("object", Ref("in")),
        depfile=(Ref("out", suffix=".d"),),
        deps="gcc",
        restat=True,
        pool="heavy",
    )
    writer.build(
        ["a b.o"],
        "compile",
        ["c:\\x$.c"],
        implicit=["stamp"],
        order_only=["dir"],
        variables={"flags": ("-O3", "-Da b")},
    )
    writer.default(["a b.o"])
    assert writer.text() == (
        "# two\n"
        "# lines\n"
        "cc = '/opt/my cc/gcc' '-DX=$$Y'\n"
        "note = $ costs 5$$\n"
        "\n"
        "pool heavy\n"
        "  depth = 1\n"
        "rule compile\n"
        "  command = ${cc} -MF ${out}.d ${flags} -c ${in}\n"
        "  description = object ${in}\n"
        "  depfile = ${out}.d\n"
        "  deps = gcc\n"
        "  restat = 1\n"
        "  pool = heavy\n"
        "build a$ b.o: compile c$:\\x$$.c | stamp || dir\n"
        "  flags = -O3 '-Da b'\n"
        "default a$ b.o\n"
    )


def test_long_lines_are_broken_between_tokens() -> None:
    writer = NinjaWriter()
    inputs = [f"obj/kernel number {i}.o" for i in range(40)]
    writer.build(["library"], "link", inputs)
    lines = writer.text().splitlines()
    assert max(map(len, lines)) < 120
    assert all(line.endswith(" $") for line in lines[:-1])
    joined = "".join(line[:-1].lstrip() if line.endswith("$") else line.lstrip() for line in lines)
    assert joined == "build library: link " + " ".join(path.replace(" ", "$ ") for path in inputs)


@pytest.mark.parametrize("path", ["a\nb", "", "a|b"])
def test_a_path_that_ninja_cannot_express_is_our_error(path: str) -> None:
    with pytest.raises(InternalError):
        NinjaWriter().build([path], "compile")


def test_a_line_break_in_a_value_is_our_error() -> None:
    with pytest.raises(InternalError, match="line break"):
        NinjaWriter().variable("flags", ("-DX=a\nb",))


def test_a_name_that_ninja_cannot_express_is_our_error() -> None:
    with pytest.raises(InternalError, match="cannot be the name"):
        NinjaWriter().rule("my rule", ("true",))


TEXT = st.text(st.characters(exclude_categories=("Cc", "Cs", "Zl", "Zp")), max_size=12)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(words=st.lists(TEXT, min_size=1, max_size=30), flags=st.lists(TEXT, max_size=8))
def test_every_word_arrives_as_it_was_given(tmp_path: Path, words: list[str], flags: list[str]) -> None:
    import json

    writer = NinjaWriter()
    command: list[Word] = [sys.executable, "-c", DUMP, Ref("out"), *words, Ref("flags")]
    writer.rule("dump", command)
    writer.build(["the out$put.json"], "dump", variables={"flags": flags} if flags else {})
    (tmp_path / "build.ninja").write_text(writer.text(), encoding="utf-8")
    (tmp_path / "the out$put.json").unlink(missing_ok=True)
    run_ninja(tmp_path, 1, None)
    assert json.loads((tmp_path / "the out$put.json").read_text(encoding="utf-8")) == [*words, *flags]


def project(folder: Path, commands: dict[str, str]) -> None:
    """A ninja project in which each output is made by a shell command."""
    writer = NinjaWriter()
    for name, command in commands.items():
        writer.rule(name, ("sh", "-c", command), description=("object", Ref("out")))
        writer.build([name], name)
    (folder / "build.ninja").write_text(writer.text(), encoding="utf-8")


def test_progress_counts_what_had_to_be_done(tmp_path: Path) -> None:
    project(tmp_path, {name: f"touch {name}" for name in ("a", "b", "c")})
    calls: list[tuple[int, int]] = []
    edges = run_ninja(tmp_path, 1, lambda finished, total: calls.append((finished, total)))
    assert calls == [(1, 3), (2, 3), (3, 3)]
    assert [edge.description for edge in edges] == ["object a", "object b", "object c"]
    assert sorted(edge.seconds for edge in edges) == [edge.seconds for edge in edges]
    (tmp_path / "b").unlink()
    calls.clear()
    assert [edge.description for edge in run_ninja(tmp_path, None, lambda f, t: calls.append((f, t)))] == ["object b"]
    assert calls == [(1, 1)]
    assert run_ninja(tmp_path, None, None) == ()


def test_a_failing_step_shows_its_command_and_output_alone(tmp_path: Path) -> None:
    commands = {"a": "echo from a; touch a", "b": "echo from b; echo 'b: error: wrong' >&2; exit 1", "c": "echo from c"}
    project(tmp_path, commands)
    with pytest.raises(ToolError) as caught:
        run_ninja(tmp_path, 1, None)
    error = caught.value
    assert error.message == "the build step 'object b' failed"
    assert error.command == ["sh", "-c", commands["b"]]
    assert (error.returncode, error.output) == (1, "from b\nb: error: wrong")


def test_what_a_succeeding_step_prints_is_no_failure(tmp_path: Path) -> None:
    project(tmp_path, {"a": "echo 'warning: odd'; touch a"})
    assert len(run_ninja(tmp_path, 1, None)) == 1


def test_a_project_that_ninja_rejects_is_a_tool_error(tmp_path: Path) -> None:
    (tmp_path / "build.ninja").write_text("build a: nothing\n", encoding="utf-8")
    with pytest.raises(ToolError, match="unknown build rule 'nothing'"):
        run_ninja(tmp_path, 1, None)


def test_an_interrupt_ends_ninja_and_its_steps(tmp_path: Path) -> None:
    project(tmp_path, {"a": "touch a", "b": "sleep 60"})

    def interrupt(finished: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_ninja(tmp_path, 1, interrupt)


def test_ninja_is_found_without_a_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert Path(find_ninja()).exists()


def test_no_ninja_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setattr(ninja_module, "_packaged_ninja", lambda: None)
    with pytest.raises(UserError, match="pip install ninja"):
        find_ninja()


def test_the_packaged_ninja_is_used_when_none_is_beside_python(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", "")
    assert Path(find_ninja()).name == "ninja"


def test_the_commands_of_errors_can_be_typed(tmp_path: Path) -> None:
    project(tmp_path, {"a": "exit 3 # it's odd"})
    with pytest.raises(ToolError) as caught:
        run_ninja(tmp_path, 1, None)
    assert shlex.split(shlex.join(caught.value.command)) == ["sh", "-c", "exit 3 # it's odd"]


def depending(folder: Path) -> None:
    """A project whose steps copy files and say what they read, as compilers do."""
    program = (
        "import sys, pathlib; out, source, *more = sys.argv[1:]; pathlib.Path(out).write_text('x');"
        "pathlib.Path(out + '.d').write_text(f'{out}: {source} {more[0]}\\n')"
    )
    writer = NinjaWriter()
    writer.rule(
        "copy",
        (sys.executable, "-c", program, Ref("out"), Ref("in"), f"{folder}/myheader.h"),
        depfile=(Ref("out", suffix=".d"),),
        deps="gcc",
    )
    for name in ("a", "b"):
        (folder / f"{name}.c").touch()
        writer.build([f"{name}.o"], "copy", [f"{name}.c"])
    (folder / "myheader.h").touch()
    (folder / "build.ninja").write_text(writer.text(), encoding="utf-8")


def test_how_long_steps_took(tmp_path: Path) -> None:
    depending(tmp_path)
    durations = Durations(tmp_path)
    assert durations.of("a.o") == 0.0
    run_ninja(tmp_path, 1, None, ["a.o"])
    first = durations.of("a.o")
    assert durations.of("b.o") == 0.0
    run_ninja(tmp_path, 1, None)
    assert durations.of("a.o") == first
    assert all(0.0 < durations.of(name) < 60.0 for name in ("a.o", "b.o"))


def test_steps_are_told_of_when_they_have_ended_well(tmp_path: Path) -> None:
    writer = NinjaWriter()
    writer.rule("touch", ("touch", Ref("out")), description=("touch", Ref("out")))
    writer.rule("fail", ("false",), description=("fail", Ref("out")))
    for name in ("a", "b", "c"):
        writer.build([name], "touch")
    writer.build(["d"], "fail", ["a", "b", "c"])
    (tmp_path / "build.ninja").write_text(writer.text(), encoding="utf-8")
    told: list[str] = []

    def tell(edge: FinishedEdge) -> None:
        assert (tmp_path / edge.description.partition(" ")[2]).exists()
        told.append(edge.description)

    running = RunningNinja(tmp_path, 1)
    with pytest.raises(ToolError, match="the build step 'fail d' failed"):
        running.finish(None, tell)
    assert told == ["touch a", "touch b", "touch c"]
    told.clear()
    (tmp_path / "a").unlink()
    assert [edge.description for edge in RunningNinja(tmp_path, 1, ["a"]).finish(None, tell)] == told == ["touch a"]


def test_steps_that_have_ended_are_told_of_while_others_run(tmp_path: Path) -> None:
    writer = NinjaWriter()
    writer.rule("touch", ("touch", Ref("out")), description=("touch", Ref("out")))
    writer.rule("wait", ("sh", "-c", "while ! test -e go; do sleep 0.01; done; touch end"), description=("wait",))
    writer.build(["a"], "touch")
    writer.build(["b"], "touch", ["a"])
    writer.build(["end"], "wait", ["b"])
    (tmp_path / "build.ninja").write_text(writer.text(), encoding="utf-8")
    told: list[str] = []
    running = RunningNinja(tmp_path, 1)
    end = time.monotonic() + 60
    while not told and time.monotonic() < end:
        running.advance(lambda edge: told.append(edge.description))
        time.sleep(0.01)
    assert told == ["touch a"]
    (tmp_path / "go").touch()
    running.finish(None, lambda edge: told.append(edge.description))
    assert told == ["touch a", "touch b", "wait"]


def test_only_the_targets_named_are_made(tmp_path: Path) -> None:
    depending(tmp_path)
    assert len(run_ninja(tmp_path, 1, None, ["a.o"])) == 1
    assert (tmp_path / "a.o").exists()
    assert not (tmp_path / "b.o").exists()
