"""What the keys of all steps of a compilation share: relaybuild's code and what others bring; knows no step."""

from __future__ import annotations

from relaybuild.artifact.own_code import StaleCode
from relaybuild.artifact.request import Request
from relaybuild.build.trees import TreeInputs
from relaybuild.compilation.actions import Actions
from relaybuild.compilation.code import CodeDigests
from relaybuild.compilation.plugins import Plugins
from relaybuild.dataclass import dataclass


@dataclass(frozen=True)
class Known:
    """The digests of code and of plug-ins; `objection` says why no step can be looked up, empty where they can."""

    codes: CodeDigests
    plugins: Plugins
    objection: str = ""

    @classmethod
    def of(cls, request: Request, actions: Actions) -> Known:
        """What is known for a request; nothing is read where no step is looked up."""
        cache = actions.cache if actions.has_cache else None
        inputs = TreeInputs(cache.records if cache is not None else None)
        codes = CodeDigests(cache, inputs)
        if cache is None:
            return cls(codes, Plugins())
        try:
            codes.check()
        except (StaleCode, OSError) as reason:
            return cls(codes, Plugins(), str(reason))
        return cls(codes, Plugins.find(request.passes.required, inputs))
