"""The weights of a model by number, whose values nobody needs but who asks for them; knows no module and no cache.

A weight of a module is either one of the model's, known by its number, or a constant that some step made of values
that it asked for: such a constant is known by its type and content.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from relaybuild.dataclass import dataclass
from relaybuild.digest import Digest, Hasher, digest_bytes
from relaybuild.ir.dtypes import numpy_dtype
from relaybuild.ir.expr import Constant

if TYPE_CHECKING:
    from relaybuild.build.cache.memo import Inputs

Origin: TypeAlias = "int | str"
"""Where a weight comes from: its number in the model, or the digest of a constant's type and elements."""


@dataclass(frozen=True)
class Given:
    """One of a model's weights: what gives its array when it is asked for. `digest` is that of its bytes, if known.

    `is_mapped`: to load it takes no work, and can be done twice.
    """

    load: Callable[[], NDArray[Any]]
    digest: Digest | None = None
    is_mapped: bool = False


class Weights:
    """A model's weights, and the constants that steps have made; arrays are taken when they are asked for."""

    def __init__(self, given: Sequence[Given] = (), files: Inputs | None = None) -> None:
        """`files` are those that arrays are read from."""
        self.files = files
        self._given = list(given)
        self._arrays: dict[Origin, NDArray[Any]] = {}
        self._digests: dict[int, Digest] = {}
        self._origins: dict[int, Origin] = {}
        self._constants: dict[str, Callable[[], NDArray[Any]]] = {}
        self._alive: list[NDArray[Any]] = []

    @classmethod
    def of(cls, weights: Iterable[Constant]) -> Weights:
        """The weights of a module, in the order of its slots; constants that share their memory are one."""
        found = cls()
        for constant in weights:
            array = constant.array
            if id(array) not in found._origins:
                found._given.append(Given(lambda array=array: array))  # type: ignore[misc]
                found.array(len(found._given) - 1)
        return found

    def adopt(self, origin: Origin, array: NDArray[Any]) -> None:
        """Know a weight by another array, too, which holds its value."""
        self._keep(origin, array)

    def __len__(self) -> int:
        return len(self._given)

    def __contains__(self, origin: object) -> bool:
        if isinstance(origin, int):
            return 0 <= origin < len(self._given)
        return origin in self._constants or origin in self._arrays

    def array(self, origin: Origin) -> NDArray[Any]:
        """The value of a weight. Raises KeyError for a constant that was never seen, and what loading raises."""
        if origin not in self._arrays:
            load = self._constants[origin] if isinstance(origin, str) else self._given[origin].load
            self._keep(origin, _read_only(load()))
        return self._arrays[origin]

    def digest(self, origin: Origin) -> Digest:
        """The digest of a weight's elements, row-major."""
        if isinstance(origin, str):
            return Digest(origin, self.array(origin).nbytes)
        if origin not in self._digests:
            self._digests[origin] = self._given[origin].digest or digest_bytes(elements(self.array(origin)))
        return self._digests[origin]

    def digest_mapped(self) -> None:
        """Find out the digests of the weights that are mapped, beside whoever asks for them meanwhile, in order."""
        for number in reversed(range(len(self._given))):
            given = self._given[number]
            if given.is_mapped and number not in self._digests:
                self._digests[number] = given.digest or digest_bytes(elements(given.load()))

    def origin(self, constant: Constant) -> Origin:
        """Where the value of a weight comes from; one that is not known becomes a constant."""
        array = constant.array
        if id(array) not in self._origins:
            self._keep(_content(array), array)
        return self._origins[id(array)]

    def known(self, constant: Constant) -> Origin | None:
        """`origin`, None for one that is not known."""
        return self._origins.get(id(constant.array))

    def add(self, origin: str, load: Callable[[], bytes]) -> None:
        """Tell of a constant that some step has made before, and of what gives it packed."""
        self._constants.setdefault(origin, lambda: unpack(load()))

    def _keep(self, origin: Origin, array: NDArray[Any]) -> None:
        # that it is kept also keeps another array from having its id
        self._arrays.setdefault(origin, array)
        self._origins.setdefault(id(array), origin)
        self._alive.append(array)


def _read_only(array: NDArray[Any]) -> NDArray[Any]:
    # constants have read-only arrays: another one would become a view of another id
    if array.flags.writeable:
        array = array.view()
        array.flags.writeable = False
    return array


def _content(array: NDArray[Any]) -> str:
    hasher = Hasher("constant.1").field("dtype", array.dtype.name).field("shape", array.shape)
    return hasher.field("elements", digest_bytes(elements(array))).digest().hex


def elements(array: NDArray[Any]) -> memoryview:
    """The bytes of an array's elements, row-major."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def pack(array: NDArray[Any]) -> bytes:
    """An array as bytes: its type as JSON in a line, then its elements."""
    head = json.dumps({"dtype": array.dtype.name, "shape": list(array.shape)})
    return head.encode() + b"\n" + bytes(elements(array))


def unpack(data: bytes) -> NDArray[Any]:
    """The array that `pack` was given; raises ValueError or KeyError for other bytes."""
    head, _, body = data.partition(b"\n")
    found = json.loads(head)
    array: NDArray[Any] = np.frombuffer(body, numpy_dtype(found["dtype"])).reshape(found["shape"])
    return array
