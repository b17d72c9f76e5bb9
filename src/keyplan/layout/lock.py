"""The lock file of a layout: its description, kept in a repository, so that a change is compared with what was there before.

    {
     "digest": SHA-256 of the description, as JSON with sorted names and without spaces,
     "fingerprint": what a store knows the layout by; null where a root's parameter has no default,
     "format": "keyplan-lock/1",
     "layout": the description
    }

Names are sorted, one to a line: equal layouts have equal files, and a review sees what changed.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Final

from keyplan.errors import InvalidInputError, InvalidKeyError
from keyplan.layout.bound import bind_layout
from keyplan.layout.describe import describe, layout_of_description
from keyplan.layout.spec import LayoutSpec

__all__ = ["layout_of_bytes", "layout_of_file", "lock_text"]

_NAME: Final = "keyplan-lock"
_VERSION: Final = 1


def lock_text(spec: LayoutSpec) -> str:
    """Return the lock file of a layout: the same text for the same layout, whoever writes it."""
    described = describe(spec)
    lock = {
        "digest": _digest(described),
        "fingerprint": _fingerprint(spec),
        "format": f"{_NAME}/{_VERSION}",
        "layout": described,
    }
    return json.dumps(lock, sort_keys=True, indent=1) + "\n"


def layout_of_bytes(content: bytes, *, source: str) -> LayoutSpec:
    """Return the layout that a file holds, as `layout_of_file`. Raises InvalidInputError for what is no JSON object, too."""
    try:
        described = json.loads(content)
    except (ValueError, RecursionError) as error:
        problem = f"not JSON: {error}"
        if b"\n<<<<<<< " in b"\n" + content:
            problem = "it has the marks of a merge conflict: take the whole file of the side that is in production"
        raise InvalidInputError(source=source, problem=problem) from error
    if not isinstance(described, dict):
        raise InvalidInputError(source=source, problem="not a layout description: no JSON object")
    return layout_of_file(described, source=source)


def layout_of_file(content: Mapping[str, Any], *, source: str) -> LayoutSpec:
    """Return the layout that a file holds: a lock file, or a description alone.

    Raises InvalidInputError for a lock file of a newer keyplan, for one that somebody changed by hand, and for what is
    neither; and the errors of `layout_of_description`.
    """
    name, _, version = str(content.get("format")).partition("/")
    if name != _NAME:
        return layout_of_description(content)
    if version != str(_VERSION):
        problem = f"a lock file of format {name}/{version}; this keyplan reads {_NAME}/{_VERSION}: upgrade keyplan"
        raise InvalidInputError(source=source, problem=problem)
    described = content.get("layout")
    if not isinstance(described, Mapping):
        raise InvalidInputError(source=source, problem="a lock file without a layout")
    if content.get("digest") != _digest(described):
        problem = "the lock was changed by hand, its digest is another one: bring it back as it was released"
        raise InvalidInputError(source=source, problem=problem)
    return layout_of_description(described)


def _digest(described: Mapping[str, Any]) -> str:
    content = json.dumps(described, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(content.encode()).hexdigest()


def _fingerprint(spec: LayoutSpec) -> str | None:
    try:
        return bind_layout(spec).fingerprint
    except InvalidKeyError:
        return None
