"""Names that say nothing: abbreviations, and modules without a noun."""

import ast
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Final

from tests.tidy.sources import Finding, Source

ABBREVIATIONS: Final = {
    "txn": "transaction",
    "ks": "keyspace",
    "cfg": "configuration",
    "mgr": "the noun of what it manages",
    "impl": "the noun of what it does",
}
MODULES: Final = ("utils", "util", "helpers", "helper", "common", "core", "misc", "base", "manager")


def _bound_names(source: Source) -> Iterator[tuple[str, int]]:
    """Names that the file itself gives: of functions, classes, arguments, variables and fields."""
    for node in source.nodes:
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name, node.lineno
            case ast.arg(arg=name, lineno=line):
                yield name, line
            case (
                ast.Name(id=name, ctx=ast.Store(), lineno=line) | ast.Attribute(attr=name, ctx=ast.Store(), lineno=line)
            ):
                yield name, line
            case ast.alias(asname=str(name), lineno=line):
                yield name, line
            case _:
                pass


def abbreviations(source: Source) -> Iterator[Finding]:
    """Words that a newcomer must guess."""
    for name, line in _bound_names(source):
        for word in name.lower().strip("_").split("_"):
            if word in ABBREVIATIONS:
                yield Finding(source.path, line, f"the abbreviation {word} in {name}", ABBREVIATIONS[word])


def nameless_modules(source: Source) -> Iterator[Finding]:
    """A thing without a noun has no place yet."""
    path = PurePosixPath(source.path)
    for word in (*path.parts[:-1], path.stem):
        if word in MODULES:
            yield Finding(source.path, 1, f"the name {word}", "the noun of what is inside")
