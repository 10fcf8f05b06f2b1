"""Imports ONNX models; the only folder that knows ONNX."""

from relaybuild.frontend.onnx.importer import ImportedModel, import_model

__all__ = ["ImportedModel", "import_model"]
