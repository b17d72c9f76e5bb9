"""The inputs that are kept: a file for each target, a line for each input, as Python writes bytes."""

import ast
import sys
from collections.abc import Iterable
from pathlib import Path
from types import FrameType
from typing import Any, Final

from tests.fuzz.targets import Target
from tests.fuzz.watchdog import run_watched

__all__ = ["keep", "kept", "reached"]

FOLDER: Final = Path(__file__).resolve().parent / "corpus"
_PRODUCT: Final = str(Path("src", "keyplan"))

Arcs = frozenset[tuple[str, int, int]]


def kept(name: str) -> list[bytes]:
    """Return the inputs that are kept for the target of that name."""
    file = FOLDER / f"{name}.txt"
    return [ast.literal_eval(line) for line in file.read_text().splitlines()] if file.exists() else []


def keep(name: str, inputs: Iterable[bytes]) -> None:
    """Write the inputs as those that are kept."""
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / f"{name}.txt").write_text("".join(f"{raw!r}\n" for raw in inputs))


def reached(target: Target, data: bytes) -> Arcs:
    """Return the steps from line to line of keyplan that the input makes it take: what tells inputs apart."""
    arcs: set[tuple[str, int, int]] = set()

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        if _PRODUCT not in frame.f_code.co_filename:
            return None
        name, last = frame.f_code.co_filename, frame.f_lineno

        def trace_lines(inner: FrameType, event: str, argument: Any) -> Any:
            nonlocal last
            arcs.add((name, last, inner.f_lineno))
            last = inner.f_lineno
            return trace_lines

        return trace_lines

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        run_watched(target, data)
    finally:
        sys.settrace(before)
    return frozenset(arcs)
