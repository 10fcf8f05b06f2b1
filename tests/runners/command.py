"""Runs `relaybuild compile` in processes of its own, from a copy of the package that nobody edits meanwhile.

Knows where a test keeps model, outputs and cache, and nothing of what it asks for.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import relaybuild

CHECKOUT = Path(relaybuild.__file__).parents[1]
DIGITS = CHECKOUT / "examples" / "digits" / "digits.onnx"
TIMEOUT = 240

MODEL = """#[version = "0.0.5"]
def @main(%x: Tensor[(2, 3), float32]) {
  nn.relu(add(%x, 1f))
}
"""


def copy_package(folder: Path) -> Path:
    """A copy of what runs, in `folder`: what is edited in the checkout while tests run is not another compiler."""
    ignored = shutil.ignore_patterns("*.pyc.*", "_share")
    shutil.copytree(CHECKOUT / "relaybuild", folder / "relaybuild", ignore=ignored)
    shutil.copytree(CHECKOUT / "cmake", folder / "cmake")
    shutil.copy(CHECKOUT / "config.cmake", folder)
    return folder


@dataclass
class Runner:
    """Compiles `model.relay` of a folder to `out/model.so`, with the cache in `cache`."""

    package: Path
    folder: Path
    environ: dict[str, str] = field(default_factory=dict)
    cache: str = "cache"

    def __call__(
        self,
        *options: str | Path,
        model: str | Path = "model.relay",
        output: str = "out/model.so",
        environ: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        code: tuple[str, ...] = ("-m", "relaybuild"),
    ) -> subprocess.CompletedProcess[str]:
        process = self.start(*options, model=model, output=output, environ=environ, cwd=cwd, code=code)
        try:
            out, err = process.communicate(timeout=TIMEOUT)
        finally:
            process.kill()
            process.wait()
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def start(
        self,
        *options: str | Path,
        model: str | Path = "model.relay",
        output: str = "out/model.so",
        environ: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        code: tuple[str, ...] = ("-m", "relaybuild"),
    ) -> subprocess.Popen[str]:
        """The process that compiles; its summary will be beside the output. The caller has to wait for it."""
        path = self.folder / output
        path.parent.mkdir(parents=True, exist_ok=True)
        arguments = ["compile", self.folder / model, "-o", path, "--cache-dir", self.folder / self.cache, "--explain"]
        arguments += ["--summary", self.summary_path(output), *([] if "--target" in options else ["--target", "c"])]
        return subprocess.Popen(
            [sys.executable, *code, *map(str, arguments), *map(str, options)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=cwd or self.folder,
            env={**os.environ, "PYTHONPATH": str(self.package), **self.environ, **(environ or {})},
        )

    def done(self, *options: str | Path, output: str = "out/model.so", **places: Any) -> dict[str, Any]:
        """The summary of a compilation that succeeds."""
        result = self(*options, output=output, **places)
        assert result.returncode == 0, result.stderr
        return self.summary(output)

    def lacking(self, *options: str | Path, **places: Any) -> list[str]:
        """Names of what makes the artifact another one than the last, of a compilation that may find and not make."""
        result = self("--require-hit", *options, **places)
        assert result.returncode == 1, result.stderr
        found = re.search(r"artifact/library: changed \(([^)]*)\)", result.stderr)
        assert found is not None, result.stderr
        return found[1].split(", ")

    def copied(self, folder: Path) -> Runner:
        """The same in another folder: copies of models, outputs and cache."""
        shutil.copytree(self.folder, folder, dirs_exist_ok=True)
        return replace(self, folder=folder)

    def beginning_with(self, cache: Path) -> Runner:
        """This one; its cache is a copy of another."""
        shutil.copytree(cache, self.folder / self.cache)
        return self

    def summary_path(self, output: str = "out/model.so") -> Path:
        return (self.folder / output).with_suffix(".json")

    def summary(self, output: str = "out/model.so") -> dict[str, Any]:
        summary: dict[str, Any] = json.loads(self.summary_path(output).read_text())
        return summary

    def library(self, output: str = "out/model.so") -> bytes:
        return (self.folder / output).read_bytes()


def has_executed_nothing(summary: Mapping[str, Any]) -> bool:
    """Whether a compilation found the whole artifact."""
    return not any(summary["executed"].values()) and summary["cached"]["link"] == 1 and summary["misses"] == []
