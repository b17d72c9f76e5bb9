"""The history of definitions (S27): what held for a scope before, numbered, kept in the commit that replaces or removes it."""

from collections.abc import Iterator
from typing import Final
from uuid import UUID

from keyplan.apps.runm.deployment import Deployment, State
from keyplan.apps.runm.layout import DefinitionVersion, Replaced
from keyplan.apps.runm.read_ahead import Scope
from keyplan.apps.runm.readable import readable
from keyplan.apps.runm.records import ObjectDefinition

__all__ = ["VERSIONS_MAX", "keep_version", "versions_of"]

VERSIONS_MAX: Final = 100
"""Kept of each scope, the latest. Why: a program that sets its definition at each start must not fill the store."""

_EVERY_PARTITION: Final = UUID(int=0)
_EVERY_SUB_TYPE: Final = "default"


def keep_version(deployment: Deployment, state: State, scope: Scope, replaced: ObjectDefinition, user: str) -> None:
    """Keep what held for a scope, as a part of the transaction that replaces it."""
    table, place = state.beside.definition_versions, _place(scope)
    latest = next(table.keys(*place, limit=1, reverse=True), None)
    number = 1 if latest is None else latest.number + 1
    record = Replaced(replaced, int(deployment.clock.wall()), user)
    table.insert(DefinitionVersion(*place, number), record)
    if number > VERSIONS_MAX:
        table.delete(DefinitionVersion(*place, number - VERSIONS_MAX))


def versions_of(state: State, scope: Scope) -> Iterator[tuple[int, Replaced]]:
    """Yield what held for exactly a scope before, with its numbers, the latest first."""
    found = readable(state.beside.definition_versions.rows(*_place(scope), reverse=True))
    return ((key.number, replaced) for key, replaced in found)


def _place(scope: Scope) -> tuple[UUID, str, str]:
    return scope.partition or _EVERY_PARTITION, scope.object_type, scope.sub_type or _EVERY_SUB_TYPE
