"""Makes src/keyplan/layout/async_access.py, the awaited operations, of access.py.

After a change there: `python scripts/make_async.py`. A class gets the prefix Async, an operation `async`, an iterator becomes
an asynchronous one. What awaiting adds to the words stands in DIFFERENCES, which is all that a person writes. A test asks that
the file in the repository is what this makes.
"""

import re
import subprocess
import sys
from pathlib import Path
from typing import Final

LAYOUT: Final = Path(__file__).resolve().parents[1] / "src" / "keyplan" / "layout"
SOURCE: Final = LAYOUT / "access.py"
TARGET: Final = LAYOUT / "async_access.py"

CLASSES: Final = ("Changes", "TableView", "UniqueView", "IndexView", "CounterView", "Binding")
"""What gets the prefix Async. All else that the operations name is the same in both uses."""

HEAD: Final = '''\
"""The operations of access.py, awaited: those of a layout whose binding is asynchronous. Only interfaces stand here.

Made of access.py by scripts/make_async.py: change that file, or what awaiting adds there.

Cancelling what is awaited ends it: a read leaves nothing behind; a write that was not sent yet was not made, and of one that
was sent the outcome is unknown, as after CommitOutcomeUnknownError. A call on another event loop than the store's raises
InvalidInputError.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator, Iterable
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar

from keyplan.layout.bound import BoundCounter, BoundIndex, BoundTable
from keyplan.layout.modes import Async, Bindable
from keyplan.layout.rows import Change, Damaged, ExpectedRevision, LeaseHandle, Page, Versioned

__all__ = [
    "AsyncBinding",
    "AsyncChanges",
    "AsyncCounterView",
    "AsyncIndexView",
    "AsyncTableView",
    "AsyncUniqueView",
]
'''
"""In the place of the source's module docstring, imports and list of names."""

DIFFERENCES: Final = (
    # ---- changes ----
    (
        """    Iterating waits for the next change, without end: until `close` is called, here or in another thread.""",
        """\
    `async with chamber.racks.watch() as changes` begins before the block; so does `changes = await chamber.racks.watch()`;
    else it begins when it is first iterated. Iterating waits for the next change, without end: until `close` is called, or
    the store is closed. A wait that is cancelled or timed out loses nothing: the next one goes on there.""",
    ),
    ("Apart from `close`, for one thread at a time.", "Apart from `close`, for one task at a time."),
    (
        "    def __iter__(self) -> Iterator[Change[K, V]]: ...\n\n    def __next__",
        '''    def __await__(self) -> Generator[Any, None, Self]:
        """Begin to watch, and return this."""
        ...

    def __aiter__(self) -> Self: ...

    async def __anext__''',
    ),
    (
        "The place behind everything delivered so far, for `watch(after=...)`; empty while `follow` lists.",
        "The place behind all that was delivered, for `watch(after=...)`; empty before it began, and while `follow` lists.",
    ),
    ("End the watch, from any thread.", "End the watch, from any task."),
    ("    def __enter__", "    async def __aenter__"),
    ("    def __exit__", "    async def __aexit__"),
    # ---- tables and indexes ----
    (
        "        `change` may be called more than once and must not write.",
        "        `change` is a plain function, called in the event loop's thread, perhaps more than once. It must not write.",
    ),
    (
        "read as it goes: a long list holds a snapshot until it is exhausted or\n        closed;",
        "read in parts as it goes: a long list holds a snapshot until it is\n        exhausted or closed (`aclosing`);",
    ),
    (
        "None: from\n        now on. Bound to a store only,",
        "None: from\n        when it begins. Bound to a store only,",
    ),
    # ---- bindings ----
    ("Bindable[Sync]", "Bindable[Async]"),
    (
        'type[Sync]:\n        """Sync."""\n        return Sync',
        'type[Async]:\n        """Async."""\n        return Async',
    ),
    ("What a layout can be bound to: a store,", "What a layout of `keyplan.aio` can be bound to: a store,"),
    (
        'def revision(self) -> int:\n        """The latest revision known: of',
        'def revision(self) -> Awaitable[int]:\n        """The latest revision known, awaited: of',
    ),
    ("AbstractContextManager", "AbstractAsyncContextManager"),
    (
        'def attempt(self, work: Callable[["Binding"], R]) -> R:',
        'def attempt(self, work: Callable[["Binding"], Awaitable[R]]) -> Coroutine[Any, Any, R]:',
    ),
)
"""What awaiting changes beyond the rules of `awaited`: each occurs in the source, or this ends with an error."""

_NOT_AWAITED: Final = frozenset({"watch", "follow", "use", "revision", "token", "begin", "pinned", "attempt"})


def awaited(source: str) -> str:
    """Return the text of async_access.py for that of access.py. Raises ValueError for a difference that is not there."""
    body = source[source.index("\nK = TypeVar(") :]
    for plain, other in DIFFERENCES:
        if plain not in body:
            raise ValueError(f"access.py no longer says {plain!r}: change DIFFERENCES in scripts/make_async.py")
        body = body.replace(plain, other)
    body = re.sub(r"^    def (\w+)(\((?:[^()]|\n)*?\)) -> ([^:]+):", _operation, body, flags=re.MULTILINE)
    body = re.sub(rf"\b({'|'.join(CLASSES)})\b(?! as they are)", r"Async\1", body)
    return formatted(HEAD + body)


def _operation(found: re.Match[str]) -> str:
    name, given, answer = found.groups()
    if answer.startswith("Iterator["):
        items = answer.removeprefix("Iterator[").removesuffix("]")
        return f"    def {name}{given} -> AsyncGenerator[{items}, None]:"
    is_awaited = name not in _NOT_AWAITED and not name.startswith("_") and not name.endswith("_view")
    return f"    {'async ' if is_awaited else ''}def {name}{given} -> {answer}:"


def formatted(text: str) -> str:
    """Return Python as the project formats it."""
    # Why safe: the words are our own.
    command = [sys.executable, "-m", "ruff", "format", "--stdin-filename", str(TARGET), "-"]
    return subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout  # noqa: S603


if __name__ == "__main__":
    TARGET.write_text(awaited(SOURCE.read_text()))
