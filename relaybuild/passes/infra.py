"""The machinery of passes under one name: what is imported from here stays; knows no pass.

A pass maps a module to a module. `disabled_pass` is honoured wherever a pass runs; `opt_level` gates the children of a
Sequential, at any depth, while a pass that is called runs. What a pass requires is run before it, transitively, and not
again while the module it left is unchanged.
"""

from __future__ import annotations

from relaybuild.passes._base import (
    FunctionPass,
    ModulePass,
    Pass,
    PrintIR,
    Sequential,
    all_passes,
    builtin_passes,
    get_pass,
    is_left_alone,
    pass_info,
    pass_name,
    register_pass,
    required_order,
    run_required,
)
from relaybuild.passes._config import PRECISE, ConfigKey, register_config_key
from relaybuild.passes._context import (
    PassContext,
    PassInfo,
    PassInstrument,
    Rewrite,
    RewriteCounter,
    pass_instrument,
)
from relaybuild.passes._decorators import function_pass, module_pass
from relaybuild.passes._reporter import ErrorReporter
from relaybuild.passes._rewrite import allowed, rewrite_under

__all__ = [
    "PRECISE",
    "ConfigKey",
    "ErrorReporter",
    "FunctionPass",
    "ModulePass",
    "Pass",
    "PassContext",
    "PassInfo",
    "PassInstrument",
    "PrintIR",
    "Rewrite",
    "RewriteCounter",
    "Sequential",
    "all_passes",
    "allowed",
    "builtin_passes",
    "function_pass",
    "get_pass",
    "is_left_alone",
    "module_pass",
    "pass_info",
    "pass_instrument",
    "pass_name",
    "register_config_key",
    "register_pass",
    "required_order",
    "rewrite_under",
    "run_required",
]
