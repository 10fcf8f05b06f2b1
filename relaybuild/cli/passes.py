"""`relaybuild passes`: the registered passes by level; runs none of them."""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import MISSING, fields, is_dataclass
from itertools import groupby
from typing import Any

import click

from relaybuild.passes.infra import Pass, all_passes, pass_info


@click.command(name="passes")
@click.option("--json", "as_json", is_flag=True, help="All of it, as JSON.")
def command(as_json: bool) -> None:
    """List the passes: by level, with what they require and their options."""
    facts = sorted(
        (_facts(factory) for factory in all_passes().values()), key=lambda each: (each["opt_level"], each["name"])
    )
    click.echo(json.dumps(facts, indent=2) if as_json else "\n".join(_lines(facts)))


def _facts(factory: Any) -> dict[str, Any]:
    info = pass_info(factory)
    is_class = isinstance(factory, type) and issubclass(factory, Pass)
    return {
        "name": info.name,
        "kind": (factory if is_class else factory()).kind.lower(),
        "opt_level": info.opt_level,
        "required": list(info.required),
        "doc": _doc(factory, info.name),
        "options": _option_facts(factory),
    }


def _doc(factory: Any, name: str) -> str:
    """What a pass does, in a sentence: its file's, where that begins with the pass's name, else its class's."""
    of_file = inspect.getdoc(sys.modules[factory.__module__]) or ""
    prefix = f"{name}: "
    text = of_file.removeprefix(prefix) if of_file.startswith(prefix) else inspect.getdoc(factory) or ""
    return " ".join(text.split("\n\n")[0].split()).split(". ")[0]


def _option_facts(factory: Any) -> list[dict[str, Any]]:
    if not is_dataclass(factory):
        return []
    return [{"name": item.name, "type": str(item.type), "default": _default(item.default)} for item in fields(factory)]


def _default(value: object) -> object:
    """A default as JSON has it; what JSON cannot say is text."""
    if value is MISSING:
        return None
    return value if isinstance(value, (bool, int, float, str, type(None))) else repr(value)


def _lines(facts: Sequence[dict[str, Any]]) -> Iterator[str]:
    for level, passes in groupby(facts, key=lambda each: each["opt_level"]):
        yield f"opt_level {level}"
        for each in passes:
            yield f"  {each['name']} ({each['kind']})"
            yield f"      {each['doc']}"
            if each["required"]:
                yield f"      requires {', '.join(each['required'])}"
            for option in each["options"]:
                yield f"      {option['name']}: {option['type']} = {option['default']!r}"
