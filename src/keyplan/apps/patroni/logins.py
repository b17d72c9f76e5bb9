"""What a cluster's programs log in with, by kind; what of it may be replaced; and how a role's name goes on.

PostgreSQL has one password for a role, and nobody changes it at one moment on all nodes. So nothing gets another password:
another role takes its place, `postgres_2` that of `postgres`, and the former one ends when nobody uses it any more.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from enum import StrEnum
from typing import Final, NamedTuple

from keyplan.apps.patroni.records import InstanceState
from keyplan.apps.patroni.refusals import RefusedError

__all__ = [
    "BINDINGS",
    "FIELDS",
    "KEEP_SECONDS",
    "KEEP_SECONDS_MAX",
    "ROLES",
    "LoginKind",
    "Rotation",
    "kinds_in",
    "login_base",
    "login_number",
    "logins_made_at",
    "rotation_of",
]

KEEP_SECONDS: Final = 300.0
KEEP_SECONDS_MAX: Final = 30 * 86_400.0
"""Why: a login that counts for longer was not replaced."""

BINDINGS: Final = "bindings"
_BINDING: Final = "binding:"
_NUMBERED: Final = re.compile(r"(?P<base>.+?)(?:_(?P<number>[0-9]{1,9}))?")


class LoginKind(StrEnum):
    """What of an instance is replaced at once: all its nodes are told together."""

    SUPERUSER = "superuser"
    REPLICATION = "replication"
    REWIND = "rewind"
    REST = "rest"
    TOKEN = "token"  # noqa: S105  # Why: it is the word for one.


FIELDS: Final[Mapping[LoginKind, str]] = {
    LoginKind.SUPERUSER: "superuser_credentials",
    LoginKind.REPLICATION: "replication_credentials",
    LoginKind.REWIND: "rewind_credentials",
    LoginKind.REST: "admin_credentials",
    LoginKind.TOKEN: "store_credentials",
}
"""Where each stands in an instance's record."""

ROLES: Final[Mapping[LoginKind, str]] = {
    LoginKind.SUPERUSER: "postgres",
    LoginKind.REPLICATION: "replicator",
    LoginKind.REWIND: "rewinder",
}
"""The kinds that are roles of PostgreSQL, with the names that they begin with."""


class Rotation(NamedTuple):
    """What is replaced: kinds of the instance's own logins, and bindings by id."""

    kinds: tuple[LoginKind, ...]
    bindings: tuple[str, ...]

    @property
    def needs_all_nodes(self) -> bool:
        """Whether every node must be told before it ends. A token needs none: nodes hear of it when they are back."""
        return bool({*self.kinds} - {LoginKind.TOKEN})


def rotation_of(words: Sequence[str], state: InstanceState, bindings: Collection[str]) -> Rotation:
    """Return what words ask for; everything that there is, without words. Raises RefusedError (400) for what there is not."""
    has_token = bool(state.store_credentials.username)
    if not words:
        return Rotation(tuple(kind for kind in LoginKind if has_token or kind is not LoginKind.TOKEN), tuple(bindings))
    chosen: set[str] = set()
    for word in words:
        if word == BINDINGS:
            chosen.update(bindings)
        elif word.startswith(_BINDING):
            chosen.add(word.removeprefix(_BINDING))
        elif word not in {*LoginKind}:
            known = ", ".join([*LoginKind, BINDINGS])
            raise RefusedError(400, f"{word[:100]} is nothing that can be rotated; {known} and {_BINDING}ID are")
    for one in sorted(chosen.difference(bindings)):
        raise RefusedError(400, f"the instance has no binding {one[:255]} that is ready")
    if LoginKind.TOKEN in words and not has_token:
        raise RefusedError(400, "the cluster has no token: no server of its store has an access file")
    kinds = tuple(kind for kind in LoginKind if kind in words)
    return Rotation(kinds, tuple(one for one in bindings if one in chosen))


def kinds_in(text: str) -> tuple[LoginKind, ...]:
    """Return the kinds that a step's target names."""
    return tuple(LoginKind(word) for word in text.split(","))


def logins_made_at(state: InstanceState) -> dict[LoginKind, float]:
    """Return since when each login that an instance has is what it is, as far as is known, in seconds of Unix time."""
    found = {
        kind: state.rotated_at.get(kind, state.created_at)
        for kind in LoginKind
        if getattr(state, FIELDS[kind]).username
    }
    return {kind: at for kind, at in found.items() if at}


def login_base(role: str) -> str:
    """Return the name that a role's began with: `postgres` of `postgres_3`."""
    found = _NUMBERED.fullmatch(role)
    return found["base"] if found else role


def login_number(role: str) -> int:
    """Return how many roles have had the place of this one, itself included: 3 of `postgres_3`, 1 of `postgres`."""
    found = _NUMBERED.fullmatch(role)
    return int(found["number"]) if found and found["number"] else 1
