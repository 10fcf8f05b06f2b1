"""Imports ONNX models; the only folder that knows ONNX. What tells a model's structure by its bytes needs no onnx."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from relaybuild.frontend.onnx.importer import ImportedModel, import_model

__all__ = ["ImportedModel", "import_model"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    from relaybuild.frontend.onnx import importer

    return getattr(importer, name)
