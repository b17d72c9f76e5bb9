"""Under whose keys a store is served: the document's, or the Go program's. What it holds decides, or who starts the server.

One that holds keys of both is served when it is said which: the absence of something never decides. One that holds neither
becomes the document's.
"""

from typing import NamedTuple

from keyplan.apps.cloudchamber.layout import LayoutSide
from keyplan.apps.cloudchamber.namespaces import ranges_of
from keyplan.engine import Engine, Snapshot
from keyplan.errors import InvalidInputError
from keyplan.jobs import command_line
from keyplan.layout import shown_key

__all__ = ["ChosenLayout", "choose_layout", "first_key_of", "held_sides", "require_document"]


class ChosenLayout(NamedTuple):
    """Under whose keys a name space is served, and why."""

    side: LayoutSide
    why: str


def choose_layout(
    engine: Engine, namespace: str, wanted: LayoutSide | None, *, remedy: str, is_emptied: bool = False
) -> ChosenLayout:
    """Return under whose keys a name space is worked with; read its first keys, from one state, and write nothing.

    `is_emptied`: what it holds is removed before it is served. Raises InvalidInputError for one with keys of both while none is
    wanted; `remedy` is how that is said.
    """
    if wanted is not None:
        return ChosenLayout(wanted, "it was asked for")
    held = held_sides(engine, namespace)
    if len(held) == 1:
        ((side, key),) = held.items()
        return ChosenLayout(side, f"the store has keys of it, as {key}, and none of the other")
    if not held or is_emptied:
        why = "the store has keys of neither" if not held else "the store has keys of both, and is emptied"
        return ChosenLayout(LayoutSide.DOCUMENT, why)
    named = (
        f"it has keys of the document, as {held[LayoutSide.DOCUMENT]}, and of the Go program, as {held[LayoutSide.GO]}"
    )
    problem = f"{named}: say which are meant, {remedy}"
    raise InvalidInputError(source="the store", problem=problem)


def held_sides(engine: Engine, namespace: str) -> dict[LayoutSide, str]:
    """Return the layouts that a name space has keys of, each with the first of these, as of one state."""
    with engine.snapshot() as snapshot:
        first = {side: _first_key(snapshot, namespace, side) for side in LayoutSide}
    return {side: key for side, key in first.items() if key is not None}


def first_key_of(engine: Engine, namespace: str, side: LayoutSide) -> str | None:
    """Return the first key that a name space has of a layout; None without any."""
    with engine.snapshot() as snapshot:
        return _first_key(snapshot, namespace, side)


def require_document(engine: Engine, namespace: str, *, who: str, url: str = "") -> None:
    """Return unless a name space has keys of the Go program alone, which `who` cannot read. Raises InvalidInputError.

    `url` names the store, without its secrets, in the command that is told then; empty where it is not known.
    """
    held = held_sides(engine, namespace)
    if held.keys() == {LayoutSide.GO}:
        named_space = ("--namespace", namespace.rstrip("/")) if namespace else ()
        command = command_line(("cloudchamber", "migrate", "--from", "go", "--to", "document", *named_space), url)
        problem = (
            f"it has keys of the Go program alone, as {held[LayoutSide.GO]}, and a {who} works under the document's:"
            f" `{command}` brings it there, is_beside_go=True begins beside it"
        )
        raise InvalidInputError(source="the store", problem=problem)


def _first_key(snapshot: Snapshot, namespace: str, side: LayoutSide) -> str | None:
    for part in ranges_of(namespace, side):
        for entry in snapshot.scan(part, limit=1, keys_only=True):
            return shown_key(entry.key)
    return None
