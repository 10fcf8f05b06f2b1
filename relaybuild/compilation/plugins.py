"""What others than relaybuild bring that may decide what is compiled, as parts of the keys of those steps that it takes
part in; knows no plug-in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field

from relaybuild.artifact.extensions import Unidentified, extensions, registered_folders
from relaybuild.artifact.own_code import StaleCode
from relaybuild.backends.installed import UnknownCode, installed_backends, is_source
from relaybuild.build.cache.action import ActionBuilder
from relaybuild.build.trees import TreeInputs
from relaybuild.compilation.code import CodeDigests
from relaybuild.dataclass import dataclass
from relaybuild.digest import Digest
from relaybuild.partition.backend import CODEGEN_PREFIX, Backend

_OWN = "relaybuild."
# What is registered for partitioning and code generation, which no pass before them looks at.
_OF_BACKENDS = ("function/", "backend/", "supports/", "patterns/", "folder/", "installed/")


@dataclass(frozen=True)
class Plugins:
    """Digests by kind and name, or an objection to every key that they would be part of."""

    digests: Mapping[str, Digest] = field(default_factory=dict)
    objection: str = ""

    @classmethod
    def find(cls, required_passes: Iterable[str], inputs: TreeInputs) -> Plugins:
        """Those of this process and of installed packages."""
        try:
            found = dict(extensions(required_passes))
            for tag, folder in registered_folders().items():
                found[f"folder/{tag}"] = inputs.tree(folder, is_source)[0]
            found |= {f"installed/{name}": digest for name, digest in installed_backends(inputs).items()}
            return cls(found)
        except (Unidentified, UnknownCode, StaleCode, OSError) as reason:
            return cls(objection=str(reason))

    def add_to_pass(self, builder: ActionBuilder) -> None:
        """Add what passes may use."""
        self._add(builder, (name for name in self.digests if not name.startswith(_OF_BACKENDS)))

    def add_to_partition(self, builder: ActionBuilder) -> None:
        """Add all: backends say what they take, and passes run while a module is cut."""
        self._add(builder, self.digests)

    def add_to_codegen(self, builder: ActionBuilder, tag: str) -> None:
        """Add what one backend is made of; what is installed may belong to any."""
        own = (f"backend/{tag}", f"folder/{tag}", f"function/{CODEGEN_PREFIX}{tag}")
        self._add(builder, (name for name in self.digests if name.startswith((*own, "installed/"))))

    def _add(self, builder: ActionBuilder, names: Iterable[str]) -> None:
        for name in sorted(names):
            builder.input(f"plugin/{name}", self.digests[name])


def add_backend_code(builder: ActionBuilder, backend: Backend, codes: CodeDigests) -> None:
    """Add the code of a backend that comes with relaybuild; that of others is a plug-in's."""
    module = getattr(backend.codegen, "__module__", "")
    if module.startswith(_OWN):
        # a backend is a folder: its code generator, its patterns and its predicates
        package = ".".join(module.split(".")[:3])
        builder.input(f"impl/{backend.tag}", codes.of(package))
