"""Fetch the models that tests and benchmarks run on; knows where they come from, not what is done with them.

    python tools/fetch_models.py [--dir .models] [--zoo FOLDER] [NAME ...]

Models that stand in the table below are unpacked from pinned wheels and verified by digest. Benchmark models come from
a zoo folder, when `--zoo` or the environment variable RELAYBUILD_ZOO names one: it holds a script `fill.py` and one
NAME.graph.onnx.gz per model. Without names everything is fetched. What is there already is left alone.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shlex
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[1]
# The script also runs in a checkout into which nothing has been installed yet.
sys.path.append(str(CHECKOUT))

from relaybuild.errors import RelayBuildError, ToolError, UserError  # noqa: E402

DEFAULT_DIRECTORY = CHECKOUT / ".models"
ZOO_VARIABLE = "RELAYBUILD_ZOO"
GRAPH_SUFFIX = ".graph.onnx.gz"
CHUNK_BYTES = 1 << 20


@dataclass(frozen=True)
class WheelModel:
    """One model inside a wheel: `member` is its path in the archive, `sha256` the digest of that file."""

    name: str
    package: str
    version: str
    member: str
    sha256: str

    @property
    def requirement(self) -> str:
        return f"{self.package}=={self.version}"


WHEEL_MODELS = (
    WheelModel(
        "ch_PP-OCRv4_det_infer",
        "rapidocr-onnxruntime",
        "1.4.4",
        "rapidocr_onnxruntime/models/ch_PP-OCRv4_det_infer.onnx",
        "d2a7720d45a54257208b1e13e36a8479894cb74155a5efe29462512d42f49da9",
    ),
    WheelModel(
        "ch_PP-OCRv4_rec_infer",
        "rapidocr-onnxruntime",
        "1.4.4",
        "rapidocr_onnxruntime/models/ch_PP-OCRv4_rec_infer.onnx",
        "48fc40f24f6d2a207a2b1091d3437eb3cc3eb6b676dc3ef9c37384005483683b",
    ),
    WheelModel(
        "ch_ppocr_mobile_v2.0_cls_infer",
        "rapidocr-onnxruntime",
        "1.4.4",
        "rapidocr_onnxruntime/models/ch_ppocr_mobile_v2.0_cls_infer.onnx",
        "e47acedf663230f8863ff1ab0e64dd2d82b838fceb5957146dab185a89d6215c",
    ),
    WheelModel(
        "320n",
        "nudenet",
        "3.4.2",
        "nudenet/320n.onnx",
        "c15d8273adad2d0a92f014cc69ab2d6c311a06777a55545f2c4eb46f51911f0f",
    ),
    WheelModel(
        "silero_vad_op18_ifless",
        "silero-vad",
        "6.2.3",
        "silero_vad/data/silero_vad_op18_ifless.onnx",
        "7671cd04b004e9076da0d4a7b1a5aec36adf161c39230c1cb94a4fd5db6bbd28",
    ),
)


def model_file(name: str, directory: Path) -> Path:
    """Where the model `name` lies in `directory`, whether or not it is there."""
    return directory / f"{name}.onnx"


def model_path(name: str, directory: Path = DEFAULT_DIRECTORY) -> Path:
    """The file of a fetched model. Raises UserError, with the command that fetches it, when it is not there."""
    path = model_file(name, directory)
    if not path.is_file():
        raise UserError(
            f"model '{name}' is not in '{directory}'; "
            f"fetch it with `python tools/fetch_models.py --dir {shlex.quote(str(directory))} {shlex.quote(name)}`"
        )
    return path


def file_digest(path: Path) -> str:
    """The SHA-256 of a file, in hexadecimal."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def is_present(model: WheelModel, directory: Path) -> bool:
    """Whether the model lies in `directory` with the digest that the table demands."""
    path = model_file(model.name, directory)
    return path.is_file() and file_digest(path) == model.sha256


def unpack(model: WheelModel, wheel: Path, directory: Path) -> Path:
    """Copy the model out of a wheel into `directory`, verified, by rename; returns its path.

    Raises UserError, and leaves nothing behind, when the wheel is damaged, lacks the member, or holds other bytes.
    """
    target = model_file(model.name, directory)
    with tempfile.TemporaryDirectory(prefix=".unpack-", dir=directory) as folder:
        part = Path(folder) / target.name
        try:
            with zipfile.ZipFile(wheel) as archive:
                part.write_bytes(archive.read(model.member))
        except KeyError:
            raise UserError(f"no member '{model.member}' in it", where=wheel.name) from None
        except zipfile.BadZipFile as error:
            raise UserError(f"not a readable wheel: {error}", where=wheel.name) from None
        found = file_digest(part)
        if found != model.sha256:
            raise UserError(
                f"'{model.member}' has sha256 {found}, expected {model.sha256}; "
                f"the package index served another {model.requirement} than the one pinned here",
                where=wheel.name,
            )
        os.replace(part, target)
    return target


def run_command(command: Sequence[str], failure: str) -> None:
    """Run a command and swallow its output. Raises ToolError, with the output, when it fails."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
    if done.returncode != 0:
        raise ToolError(failure, command=command, returncode=done.returncode, output=done.stdout)


def download(requirement: str, folder: Path) -> Path:
    """Download one pinned wheel, without its dependencies, into an empty folder; returns its path."""
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download"]
    command = [*pip, "--no-deps", "--only-binary=:all:", "--dest", str(folder), requirement]
    run_command(command, f"cannot download '{requirement}'")
    (wheel,) = folder.glob("*.whl")
    return wheel


def fetch_from_wheels(models: Iterable[WheelModel], directory: Path) -> None:
    """Bring wheel models into `directory`, each package downloaded once."""
    missing: dict[str, list[WheelModel]] = {}
    for model in models:
        if is_present(model, directory):
            print(f"{model.name}: already there")
        else:
            missing.setdefault(model.requirement, []).append(model)
    for requirement, members in missing.items():
        with tempfile.TemporaryDirectory() as folder:
            wheel = download(requirement, Path(folder))
            for model in members:
                print(f"{model.name}: {unpack(model, wheel, directory)} (from {requirement})")


def zoo_names(zoo: Path) -> list[str]:
    """The models that a zoo folder can fill, sorted. Raises UserError when it is no zoo."""
    if not (zoo / "fill.py").is_file():
        raise UserError(
            f"no 'fill.py' in the zoo folder '{zoo}'; give --zoo (or {ZOO_VARIABLE}) the folder that has it"
        )
    return sorted(path.name.removesuffix(GRAPH_SUFFIX) for path in zoo.glob(f"*{GRAPH_SUFFIX}"))


def fill_from_zoo(names: Iterable[str], zoo: Path, directory: Path) -> None:
    """Let the zoo's script write models into `directory`, one at a time, each moved in place when complete."""
    for name in names:
        target = model_file(name, directory)
        if target.is_file():
            print(f"{name}: already there")
            continue
        with tempfile.TemporaryDirectory(prefix=".fill-", dir=directory) as folder:
            command = [sys.executable, str(zoo / "fill.py"), folder, name]
            run_command(command, f"the zoo cannot fill '{name}'")
            part = model_file(name, Path(folder))
            if not part.is_file():
                raise UserError(f"the script wrote no '{part.name}'", where=str(zoo / "fill.py"))
            os.replace(part, target)
        print(f"{name}: {target} (from the zoo)")


def fetch(names: Sequence[str], directory: Path, zoo: Path | None = None) -> None:
    """Bring the named models, or all of them, into `directory` (made if need be); what is there already stays.

    Raises UserError naming every unknown model before anything is fetched.
    """
    wheel_models = {model.name: model for model in WHEEL_MODELS}
    zoo_models = zoo_names(zoo) if zoo is not None else []
    unknown = [name for name in names if name not in wheel_models and name not in zoo_models]
    if unknown:
        known = ", ".join([*wheel_models, *zoo_models])
        hint = "" if zoo is not None else f"; benchmark models need --zoo FOLDER or {ZOO_VARIABLE}"
        quoted = ", ".join(f"'{name}'" for name in unknown)
        raise UserError(f"unknown model {quoted}; known here: {known}{hint}")
    directory.mkdir(parents=True, exist_ok=True)
    wanted = set(names or [*wheel_models, *zoo_models])
    fetch_from_wheels((model for model in WHEEL_MODELS if model.name in wanted), directory)
    if zoo is not None:
        fill_from_zoo((name for name in zoo_models if name in wanted), zoo, directory)


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The command line: `names`, `dir` and `zoo` (a path or None)."""
    parser = argparse.ArgumentParser(description="Fetch the models that tests and benchmarks run on.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="models to fetch; default: all")
    parser.add_argument("--dir", type=Path, default=DEFAULT_DIRECTORY, help="folder to put them in (default: .models)")
    parser.add_argument(
        "--zoo",
        type=Path,
        default=os.environ.get(ZOO_VARIABLE) or None,
        help=f"folder with the benchmark models' fill.py (default: ${ZOO_VARIABLE})",
    )
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Fetch what the command line asks for; returns the exit code."""
    options = parse_arguments(arguments)
    try:
        fetch(options.names, options.dir, options.zoo)
    except RelayBuildError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
