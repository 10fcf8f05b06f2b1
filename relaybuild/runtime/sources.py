"""Where the shipped C headers and sources are; knows nothing of what is in them."""

from __future__ import annotations

from pathlib import Path


def include_dir() -> Path:
    """The folder to pass to `-I`; `relaybuild/model.h` and its neighbours are in it."""
    return Path(__file__).parent / "include"


def source_dir() -> Path:
    """The folder of the C sources that are compiled into libraries."""
    return Path(__file__).parent / "src"


def packed_sources() -> tuple[Path, ...]:
    """The C sources of a library of packed functions; they need the headers of `include_dir` alone."""
    return tuple(source_dir() / name for name in ("checks.c", "packed.c"))


def model_sources() -> tuple[Path, ...]:
    """The C sources of a model library beside its program: those of packed functions are among them."""
    return (*packed_sources(), *(source_dir() / name for name in ("runtime.c", "cpu.c", "regions.c", "pool.c")))


def module_sources() -> tuple[Path, ...]:
    """The C++ sources of `relaybuild/module.h`; who has them needs those of packed functions too."""
    return (source_dir() / "module.cc",)


def cxx_sources() -> tuple[Path, ...]:
    """The sources of every shared library that has C++ in it."""
    return (source_dir() / "cxx_runtime.cc",)
