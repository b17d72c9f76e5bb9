"""Stores that somebody else's program wrote: raw pairs, inferred and audited."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

import keyplan
from keyplan.engine import Snapshot
from keyplan.layout import bind_layout
from keyplan.maintenance import Inference, audit, infer

__all__ = ["inferred", "pairs_of", "stored", "templates"]

Pairs = Mapping[bytes, bytes]


def pairs_of(keys: Iterable[str], value: str = "x") -> dict[bytes, bytes]:
    """Text keys that all have one value."""
    return {key.encode(): value.encode() for key in keys}


@contextmanager
def stored(pairs: Pairs) -> Iterator[Snapshot]:
    """A snapshot of a store that holds these pairs."""
    with keyplan.open("memory:") as store:
        store.engine.load(sorted(pairs.items()))
        with store.engine.snapshot() as snapshot:
            yield snapshot


def inferred(pairs: Pairs, *, explains: float = 100.0, prefix: bytes = b"") -> Inference:
    """Infer a layout from the pairs; it has no collisions, and explains what it should."""
    with stored(pairs) as snapshot:
        found = infer(snapshot, prefix=prefix)
        report = audit(snapshot, bind_layout(found.spec), prefix=prefix)
    assert found.errors == ()
    assert report.percent == explains
    assert sum(found.table_keys.values()) + found.left_out == found.keys
    return found


def templates(found: Inference) -> list[str]:
    """The templates of an inferred layout, root included."""
    return [found.description["root"] + item["template"] for item in found.description["items"]]
