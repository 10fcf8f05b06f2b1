from collections.abc import Sequence
from typing import Any, TypedDict

import numpy as np
from typing_extensions import Self

Array = np.ndarray[Any, np.dtype[Any]]

class Description(TypedDict):
    abi_version: int
    name: str
    target: str
    cpu_features: str
    inputs: tuple[tuple[str, tuple[int, ...], str], ...]
    outputs: tuple[tuple[str, tuple[int, ...], str], ...]
    arena_bytes: int
    scratch_bytes: int
    weight_bytes: int
    metadata: str

class NativeModel:
    def __new__(cls, path: str, threads: int = 0) -> Self: ...
    def __call__(self, *inputs: object, **named: object) -> Any: ...
    def describe(self) -> Description: ...
    def run_list(self, inputs: Sequence[object]) -> tuple[Array, ...]: ...
    def run_into(self, inputs: Sequence[object], outputs: Sequence[object]) -> None: ...
    @property
    def num_threads(self) -> int: ...
    @property
    def num_instances(self) -> int: ...
