"""Counting the Python frames of ours that a piece of work enters.

Counted with `sys.setprofile`, whose event `call` comes for each function that is entered and for each generator that is entered
or resumed: both cost what a frame costs. Ours are those of src/keyplan and those that keyplan generated, whose files are named
`<keyplan ...>`. Functions written in C, msgspec's and LMDB's, the standard library's and the test's own are not counted.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Final

import keyplan

__all__ = ["GENERATED", "SOURCE", "frames_of", "is_ours"]

SOURCE: Final = f"{Path(keyplan.__file__).parent}/"
"""What the names of our files begin with."""
GENERATED: Final = "<keyplan "
"""What the names of files begin with that generated functions seem to come from."""


def is_ours(code: CodeType) -> bool:
    """True for code of keyplan, written or generated."""
    return code.co_filename.startswith((SOURCE, GENERATED))


def frames_of(work: Callable[[], object]) -> list[str]:
    """Return the names of the frames of ours that `work` enters in this thread, in order. Call it once before, to be warm."""
    entered: list[CodeType] = []

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and is_ours(frame.f_code):
            entered.append(frame.f_code)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(before)
    return [code.co_qualname for code in entered]
