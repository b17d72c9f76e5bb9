"""What the checks read, and what they say: a source file with its syntax tree, and a finding."""

import ast
import gc
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path, PurePosixPath
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]


class Finding(NamedTuple):
    """Something to mend: where, what is wrong, and what to do instead."""

    path: str
    line: int
    problem: str
    use: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: error: {self.problem}, use {self.use}"


class Source(NamedTuple):
    """A text file by its path within the repository."""

    path: str
    text: str

    @property
    def lines(self) -> list[str]:
        return self.text.splitlines()

    @property
    def tree(self) -> ast.Module:
        return _parsed(self.path, self.text)

    @property
    def nodes(self) -> tuple[ast.AST, ...]:
        """All nodes of the tree. Kept: a dozen checks walk the same thousand trees."""
        return _walked(self.path, self.text)

    @property
    def module(self) -> str:
        """`src/keyplan/codec/text.py` is keyplan.codec.text; an `__init__.py` is its package. Empty outside src."""
        parts = PurePosixPath(self.path).with_suffix("").parts
        if parts[0] != "src":
            return ""
        return ".".join(parts[1:-1] if parts[-1] == "__init__" else parts[1:])

    def within(self, *folders: str) -> bool:
        """Tell whether the file is one of `folders` or stands below one."""
        return any(self.path == folder or self.path.startswith(folder.rstrip("/") + "/") for folder in folders)


@contextmanager
def trees_kept() -> Iterator[None]:
    """Parse whatever is Python, once, for all the checks of a block.

    Why apart from the collector: a thousand trees are a million objects, none of them garbage, and it would go through them
    again and again, which takes twice as long as the parsing; and no test after the block is to pay for them.
    """
    gc.collect()
    gc.disable()
    try:
        for source in python_files(*_FOLDERS):
            _ = source.nodes
        gc.freeze()
    finally:
        gc.enable()
    try:
        yield
    finally:
        _walked.cache_clear()
        _parsed.cache_clear()
        gc.unfreeze()


@cache
def _parsed(path: str, text: str) -> ast.Module:
    return ast.parse(text, filename=path)


@cache
def _walked(path: str, text: str) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(_parsed(path, text)))


@cache
def text_files() -> tuple[Source, ...]:
    """Every text file that is committed or about to be: what git lists, without what .gitignore names."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=False,
    )
    if listed.returncode == 0:
        names = sorted(name for name in listed.stdout.decode().split("\0") if name)
    else:  # an unpacked archive: no git, hence no list
        names = sorted(str(path.relative_to(ROOT)) for folder in _FOLDERS for path in (ROOT / folder).rglob("*"))
    return tuple(_readable(names))


_FOLDERS = ("src", "tests", "scripts", "docs", "examples")


def _readable(names: list[str]) -> Iterator[Source]:
    for name in names:
        path = ROOT / name
        if not path.is_file():
            continue
        try:
            yield Source(name, path.read_text(encoding="utf-8"))
        except UnicodeDecodeError:
            continue  # not a text


def python_files(*folders: str) -> tuple[Source, ...]:
    """The Python files in these folders, those with planted type errors left out."""
    return tuple(
        source
        for source in text_files()
        if source.path.endswith(".py") and source.within(*folders) and not source.within("tests/typing/cases")
    )
