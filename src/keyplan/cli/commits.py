"""A commit that would be made, printed: for people as keyplan.store explains it, as JSON its guards and mutations."""

from collections.abc import Callable
from typing import Any

from keyplan.cli.output import print_json, print_text
from keyplan.engine import (
    Commit,
    Delete,
    DeleteRange,
    Guard,
    KeyAbsent,
    KeyRange,
    KeyUnchanged,
    Mutation,
    Put,
    RangeEmpty,
    RangeUnchanged,
)
from keyplan.layout import Layout, shown_key
from keyplan.store import Store

__all__ = ["print_commit"]


def print_commit(store: Store, layout: Layout, write: Callable[[Layout], object], *, json: bool) -> None:
    """Print the commit that `write`, called with the layout, would make now. Nothing is written, and no record is shown."""
    explanation = store.explain(lambda transaction: write(layout.over(transaction)))
    if json:
        print_json(_plain_commit(explanation.commit))
    else:
        print_text(str(explanation))


def _plain_commit(commit: Commit) -> dict[str, Any]:
    return {
        "guards": [_plain_guard(guard) for guard in commit.guards],
        "mutations": [_plain_mutation(mutation) for mutation in commit.mutations],
    }


def _plain_guard(guard: Guard) -> dict[str, Any]:
    match guard:
        case KeyAbsent(key):
            return {"guard": "key absent", "key": shown_key(key)}
        case KeyUnchanged(key, revision):
            return {"guard": "key unchanged", "key": shown_key(key), "revision": revision}
        case RangeEmpty(key_range):
            return {"guard": "range empty", **_plain_range(key_range)}
        case RangeUnchanged(key_range, revision, keys):
            shown = [shown_key(key) for key in keys]
            return {"guard": "range unchanged", **_plain_range(key_range), "revision": revision, "keys": shown}


def _plain_mutation(mutation: Mutation) -> dict[str, Any]:
    match mutation:
        case Put(key, value, lease):
            return {"mutation": "put", "key": shown_key(key), "bytes": len(value), "lease": lease}
        case Delete(key):
            return {"mutation": "delete", "key": shown_key(key)}
        case DeleteRange(key_range):
            return {"mutation": "delete range", **_plain_range(key_range)}


def _plain_range(key_range: KeyRange) -> dict[str, Any]:
    return {"start": shown_key(key_range.start), "end": None if key_range.end is None else shown_key(key_range.end)}
