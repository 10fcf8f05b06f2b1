"""The recipes for CI in docs/caching.md are run: the services are imitated, the shell lines are as they stand."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from environments import ROOT, write_command, write_relaybuild
from runners.small_networks import Network

PAGE = (ROOT / "docs" / "caching.md").read_text(encoding="utf-8")
_BLOCKS = re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
GITHUB, GITLAB = (next(block for block in _BLOCKS if mark in block) for mark in ("runs-on:", "$CI_COMMIT_BRANCH"))
MODEL = "examples/digits/digits.onnx"
CACHE = ".relaybuild-cache"

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler called cc")


@dataclass(frozen=True)
class Step:
    """A step of a job of GitHub: what stands behind its keys, at any depth."""

    values: Mapping[str, str]

    @property
    def only_on_push(self) -> bool:
        return "github.event_name == 'push'" in self.values.get("if", "")


def github_steps() -> list[Step]:
    _, _, text = GITHUB.partition("    steps:\n")
    return [
        Step(dict(re.findall(r"^\s*([\w-]+): (\S.*)$", block.replace("- ", "  ", 1), re.MULTILINE)))
        for block in re.findall(r"^      - .*\n(?:        .*\n)*", text, re.MULTILINE)
    ]


def gitlab_script() -> list[str]:
    _, _, text = GITLAB.partition("  script:\n")
    return re.findall(r"^    - (.+)$", text, re.MULTILINE)


@dataclass
class Service:
    """A CI service: it checks out, runs shell lines, and keeps folders by name between jobs."""

    folder: Path
    package: Path
    kept: dict[str, Path] = field(default_factory=dict)
    jobs: int = 0

    def __post_init__(self) -> None:
        write_relaybuild(self.folder / "bin")
        write_command(self.folder / "bin", "pip", "exit 0")

    def checkout(self) -> Job:
        self.jobs += 1
        place = self.folder / f"job {self.jobs}"
        (place / MODEL).parent.mkdir(parents=True)
        Network((4,)).save(place / MODEL)
        return Job(self, place, str(self.jobs))

    def save(self, name: str, folder: Path, *, replace: bool) -> None:
        assert replace or name not in self.kept
        self.kept[name] = Path(shutil.copytree(folder, self.folder / f"kept {self.jobs}"))

    def restore(self, prefix: str, folder: Path) -> None:
        """Put the newest folder there whose name begins like this, if there is one."""
        found = [name for name in self.kept if name.startswith(prefix)]
        if found:
            shutil.copytree(self.kept[found[-1]], folder)


@dataclass
class Job:
    """A checkout with the files by which a job of GitHub talks to the service."""

    service: Service
    place: Path
    run_id: str

    @property
    def cache(self) -> Path:
        return self.place / CACHE

    def shell(self, line: str) -> str:
        path = os.pathsep.join([str(self.service.folder / "bin"), os.environ["PATH"]])
        told = {name: str(self.place / name) for name in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY")}
        environ = {**os.environ, "PATH": path, "PYTHONPATH": str(self.service.package), "RELAYBUILD_CACHE_DIR": CACHE}
        command = ["bash", "-euo", "pipefail", "-c", line]
        done = subprocess.run(
            command, cwd=self.place, env={**environ, **told}, capture_output=True, text=True, check=False, timeout=300
        )
        assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def last_run(self) -> Mapping[str, Any]:
        facts: Mapping[str, Any] = json.loads(self.shell("relaybuild cache stats --last --json"))
        return facts

    def told(self, name: str) -> str:
        return (self.place / name).read_text(encoding="utf-8")


@pytest.fixture
def service(tmp_path: Path, package: Path) -> Service:
    return Service(tmp_path, package)


def run_on_github(service: Service, *, is_push: bool) -> Job:
    """Do what the steps of the recipe say, in order."""
    job: Job | None = None
    for step in github_steps():
        uses = step.values.get("uses", "")
        if step.only_on_push and not is_push:
            continue
        if uses.startswith("actions/checkout@"):
            job = service.checkout()
            continue
        assert job is not None, "the checkout comes first: it would remove what was restored"
        if uses:
            _use(job, uses, step)
        else:
            job.shell(step.values["run"])
    assert job is not None
    return job


def _use(job: Job, action: str, step: Step) -> None:
    outputs = dict(line.split("=", 1) for line in job.told("GITHUB_OUTPUT").splitlines())
    assert step.values["path"] == CACHE

    def filled(text: str) -> str:
        text = text.replace("${{ github.run_id }}", job.run_id)
        text = re.sub(r"\$\{\{ steps\.cache\.outputs\.(\w+) \}\}", lambda match: outputs[match[1]], text)
        assert "${{" not in text
        return text

    if action.startswith("actions/cache/restore@"):
        job.service.restore(filled(step.values["restore-keys"]), job.cache)
    else:
        assert action.startswith("actions/cache/save@")
        job.service.save(filled(step.values["key"]), job.cache, replace=False)


def test_on_github_pull_requests_find_what_the_main_branch_has_saved_and_save_nothing(service: Service) -> None:
    first = run_on_github(service, is_push=True)
    assert first.last_run()["executed"]["link"] == 1
    assert first.told("GITHUB_STEP_SUMMARY").startswith("### Cache of relaybuild: ")
    saved = list(service.kept)
    assert len(saved) == 1
    request = run_on_github(service, is_push=False)
    assert (request.last_run()["executed"], request.last_run()["misses"]) == ({}, {})
    assert (request.place / "digits.so").read_bytes() == (first.place / "digits.so").read_bytes()
    assert list(service.kept) == saved
    later = run_on_github(service, is_push=True)
    assert later.last_run()["executed"] == {}
    assert len(service.kept) == 2


def test_only_pushes_to_the_default_branch_save() -> None:
    (saving,) = [step for step in github_steps() if step.values.get("uses", "").startswith("actions/cache/save@")]
    wanted = "github.event_name == 'push' && github.ref_name == github.event.repository.default_branch"
    assert saving.values["if"] == wanted
    assert "actions/cache@" not in GITHUB, "it would save in any job"


def run_on_gitlab(service: Service, *, policy: str) -> Job:
    job = service.checkout()
    (name,) = re.findall(r"^    key: (\S+)$", GITLAB, re.MULTILINE)
    assert f"    paths: [{CACHE}]\n    policy: $CACHE_POLICY\n" in GITLAB
    service.restore(name, job.cache)
    for line in gitlab_script():
        job.shell(line)
    if policy == "pull-push":
        service.save(name, job.cache, replace=True)
    return job


def test_on_gitlab_merge_requests_find_what_the_main_branch_has_saved(service: Service) -> None:
    default, on_main = re.findall(r"CACHE_POLICY: (\S+)$", GITLAB, re.MULTILINE)
    assert (
        "    - if: $CI_COMMIT_BRANCH == $CI_DEFAULT_BRANCH\n      variables:\n        CACHE_POLICY: pull-push" in GITLAB
    )
    first = run_on_gitlab(service, policy=on_main)
    request = run_on_gitlab(service, policy=default)
    assert (default, list(service.kept)) == ("pull", ["relaybuild"])
    assert (request.last_run()["executed"], request.last_run()["misses"]) == ({}, {})
    assert (request.place / "digits.so").read_bytes() == (first.place / "digits.so").read_bytes()
