"""Element types as numpy knows them; knows nothing of tensors' shapes."""

from __future__ import annotations

from typing import Any

import numpy as np

from relaybuild.errors import UserError


def numpy_dtype(name: str) -> np.dtype[Any]:
    """The element type as numpy's; raises UserError where bfloat16 is not at hand, and for a name that numpy lacks."""
    if name == "bfloat16":
        try:
            import ml_dtypes
        except ImportError:
            raise UserError("values of bfloat16 need the package 'ml_dtypes': pip install ml_dtypes") from None
        found: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
        return found
    try:
        return np.dtype(name)
    except TypeError:
        raise UserError(f"unknown element type '{name}'") from None
