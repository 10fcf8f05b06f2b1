"""What runs a compiled model: the C sources that go into every library, and the loader for Python."""

from __future__ import annotations

from relaybuild.runtime.csource import CSourceModule, csource_module_create
from relaybuild.runtime.header import c_identifier, model_header, standalone_header
from relaybuild.runtime.library import Library, Model, describe_model, load_model
from relaybuild.runtime.module import Module, load_module
from relaybuild.runtime.modules import DataModule, load_from_binary
from relaybuild.runtime.sources import include_dir, model_sources, module_sources, packed_sources, source_dir
from relaybuild.runtime.spec import Signature, TensorSpec

__all__ = [
    "CSourceModule",
    "DataModule",
    "Library",
    "Model",
    "Module",
    "Signature",
    "TensorSpec",
    "c_identifier",
    "csource_module_create",
    "describe_model",
    "include_dir",
    "load_from_binary",
    "load_model",
    "load_module",
    "model_header",
    "model_sources",
    "module_sources",
    "packed_sources",
    "source_dir",
    "standalone_header",
]
