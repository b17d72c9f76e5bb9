"""How long functions and files may be. A ratchet lists those that are longer; a listed number may only shrink."""

import ast
from collections.abc import Iterator, Mapping
from typing import Final

from tests.tidy.sources import Finding, Source

FUNCTION_LINES_MAX: Final = 70
FILE_LINES_MAX: Final = 500

Function = ast.FunctionDef | ast.AsyncFunctionDef


def functions(tree: ast.Module) -> Iterator[tuple[str, Function]]:
    """Every function with its dotted name within the module, inner ones too."""

    def below(node: ast.AST, prefix: str) -> Iterator[tuple[str, Function]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, Function):
                yield prefix + child.name, child
            if isinstance(child, Function | ast.ClassDef):
                yield from below(child, prefix + child.name + ".")
            else:
                yield from below(child, prefix)

    return below(tree, "")


def code_lines(source: Source, function: Function) -> int:
    """The lines of a function that are neither blank, nor comments, nor its docstring."""
    first = function.body[0]
    has_docstring = ast.get_docstring(function, clean=False) is not None
    prose = range(first.lineno, (first.end_lineno or first.lineno) + 1) if has_docstring else range(0)
    numbered = enumerate(source.lines[function.lineno - 1 : function.end_lineno], start=function.lineno)
    return sum(
        1 for number, line in numbered if number not in prose and line.strip() and not line.lstrip().startswith("#")
    )


def _ratcheted(
    sizes: Mapping[str, tuple[Source, int, int]], maximum: int, listed: Mapping[str, int], use: str
) -> Iterator[Finding]:
    for name, (source, line, size) in sizes.items():
        allowed = listed.get(name, maximum)
        if size > allowed:
            yield Finding(source.path, line, f"{name} has {size} lines, {allowed} are allowed", use)
        elif name in listed and size < allowed:
            yield Finding(
                source.path, line, f"the ratchet allows {name} {allowed} lines", f"{size}, or no entry below {maximum}"
            )
    for name in listed.keys() - sizes.keys():
        yield Finding("tests/tidy/ratchet.toml", 1, f"the ratchet lists {name}, which is not there", "no entry")


def long_functions(sources: tuple[Source, ...], listed: Mapping[str, int]) -> Iterator[Finding]:
    """Functions of more than 70 code lines; `listed` maps `path::name` to what it may still have."""
    sizes = {
        f"{source.path}::{name}": (source, function.lineno, code_lines(source, function))
        for source in sources
        for name, function in functions(source.tree)
    }
    return _ratcheted(sizes, FUNCTION_LINES_MAX, listed, "smaller functions, each with one job")


def long_files(sources: tuple[Source, ...], listed: Mapping[str, int]) -> Iterator[Finding]:
    """Files of more than 500 lines; `listed` maps a path to what it may still have."""
    sizes = {source.path: (source, 1, len(source.lines)) for source in sources}
    return _ratcheted(sizes, FILE_LINES_MAX, listed, "a folder of that name whose __init__ is a table of contents")
