"""What should not be committed: notes to oneself, skips without a reason, places on one machine, registry hosts."""

import ast
import re
from collections.abc import Iterator
from typing import Final

from tests.tidy.sources import Finding, Source

# Why: the words are put together here, so that this file does not find itself.
_NOTES: Final = (
    (re.compile(r"\bFIX" + r"ME\b"), "a note to oneself", "a mended place, or an issue"),
    (re.compile(r"\bbreak" + r"point\("), "a stop for the debugger", "a test"),
    (
        re.compile(r"\bTO" + r"DO\b(?!\([a-z]+\): \S)"),
        "an open end without an owner",
        "TO" + "DO(owner): what, and which issue",
    ),
)
_MACHINE: Final = re.compile(r"(?<![\w.])/(?:work|root|home)/")
_HOSTS: Final = re.compile(
    r"\b(?:"
    + "|".join(
        name + r"\." + zone
        for name, zone in (
            ("pypi", "org"),
            ("pythonhosted", "org"),
            ("npmjs", "(?:org|com)"),
            ("crates", "io"),
            ("proxy.golang", "org"),
            ("ghcr", "io"),
            ("docker", "io"),
        )
    )
    + r")\b"
)


def notes(source: Source) -> Iterator[Finding]:
    """Leftovers of work in progress."""
    for number, line in enumerate(source.lines, start=1):
        for pattern, problem, use in _NOTES:
            if pattern.search(line):
                yield Finding(source.path, number, problem, use)


def machine_places(source: Source) -> Iterator[Finding]:
    """Folders and hosts that only this machine knows."""
    for number, line in enumerate(source.lines, start=1):
        if _MACHINE.search(line):
            yield Finding(source.path, number, "a folder of one machine", "a path relative to the repository")
        if _HOSTS.search(line):
            yield Finding(source.path, number, "the host of a package registry", "the package's name")


def silent_skips(source: Source) -> Iterator[Finding]:
    """A skip or an expected failure says why."""
    for node in source.nodes:
        decorators = getattr(node, "decorator_list", [])
        for bare in decorators:
            if isinstance(bare, ast.Attribute) and bare.attr in {"skip", "xfail"}:
                yield Finding(source.path, bare.lineno, f"a {bare.attr} without a reason", "reason=")
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        words = ast.unparse(node.func)
        has_reason = any(keyword.arg == "reason" for keyword in node.keywords)
        if (
            words in {"pytest.mark.skip", "pytest.skip", "pytest.xfail", "pytest.mark.xfail"}
            and not has_reason
            and not node.args
        ):
            yield Finding(source.path, node.lineno, f"{words} without a reason", "reason=")
        if words in {"pytest.mark.skipif", "pytest.mark.xfail"} and node.args and not has_reason:
            yield Finding(source.path, node.lineno, f"{words} without a reason", "reason=")
