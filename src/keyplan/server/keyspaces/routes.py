"""The registry of key spaces over HTTP: its declared operations, and what five of their answers have beyond them."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final
from urllib.parse import quote

from msgspec import structs
from starlette.requests import Request
from starlette.responses import Response

from keyplan.access import OnKeySpace, OnPrefix
from keyplan.errors import InvalidArgumentError, KeySpaceNotFoundError
from keyplan.keyspace import (
    DeleteProgress,
    Ensured,
    KeySpace,
    KeySpaceIdentity,
    KeySpaces,
    RegistryOperations,
    State,
    bytes_of_hex,
)
from keyplan.keyspace import Role as RegistryRole
from keyplan.operations import Act, CallerKind, OnKind, Operation, operations_of
from keyplan.server.access import Caller, Role, caller_of, require_admin
from keyplan.server.answers import AnswerError, JsonAnswer
from keyplan.server.keyspaces.sweeping import Sweeping
from keyplan.server.operations import Responder
from keyplan.server.service import ServiceContext

__all__ = ["OPERATIONS", "RegistryResponder"]

OPERATIONS: Final = operations_of(RegistryOperations)

_CALLERS_MAX: Final = 64


class RegistryResponder(Responder):
    """The HTTP contract over one registry. Each request acts as its caller: role and name go into the registry's audit log."""

    def __init__(self, context: ServiceContext, registry: KeySpaces, sweeping: Sweeping) -> None:
        super().__init__(context)
        self._registry = registry
        self._sweeping = sweeping
        # Why: as many callers as there are tokens, each with many requests; making one costs as much as a read.
        self._acting_as = lru_cache(_CALLERS_MAX)(self._made_for)
        self._own = {
            "create": self._create,
            "get": self._get,
            "delete": self._delete,
            "sweep": self._sweep,
        }

    async def admit(self, request: Request, operation: Operation) -> KeySpaces:
        caller = _caller(request)
        if self.context.access.policy is None:
            if operation.caller is CallerKind.ADMINISTRATOR:
                require_admin(request)
        elif _is_administration(operation):
            caller = caller._replace(role=Role.ADMIN)
        return self._acting_as(caller)

    async def application_of(self, request: Request, keyspace: str) -> str | None:
        found = await self.context.read(_found, self._registry, keyspace)
        request.state.keyspace = found
        return found.application if found else None

    async def perform(
        self, request: Request, operation: Operation, target: Any, arguments: Mapping[str, Any]
    ) -> Response:
        if any(parameter.name == "expected" for parameter in operation.parameters):
            arguments = _expecting(request, arguments)
        own = self._own.get(operation.attribute)
        return await (
            own(request, target, arguments) if own else super().perform(request, operation, target, arguments)
        )

    def _made_for(self, caller: Caller) -> KeySpaces:
        role = RegistryRole.ADMIN if caller.role is Role.ADMIN else RegistryRole.CLIENT
        access = self.context.access

        def sees(name: str, application: str | None) -> bool:
            return access.allows(caller, Act.READ, OnKeySpace(name, application))

        return self._registry.acting_as(role, caller.name, sees=sees)

    async def _create(self, request: Request, registry: KeySpaces, arguments: Mapping[str, Any]) -> Response:
        prefix = arguments.get("prefix")
        if prefix is not None and self.context.access.policy is not None:
            # Why apart from the application: whoever has a prefix made their own keeps everybody else from what comes there.
            self.context.access.require(_caller(request), Act.ADMINISTER, OnPrefix(bytes_of_hex(prefix)))
        keyspace, is_new = await self.context.run(_created, registry, **arguments)
        # Why: the header names the resource also when it was there already; only the status tells.
        location = {"Location": f"/keyspaces/{quote(keyspace.name, safe='')}"}
        return JsonAnswer(keyspace.to_json(), 201 if is_new else 200, headers=location)

    async def _get(self, _request: Request, registry: KeySpaces, arguments: Mapping[str, Any]) -> Response:
        keyspace = await self.context.read(_shown, registry, **arguments)
        return JsonAnswer(keyspace.to_json())

    async def _delete(self, _request: Request, registry: KeySpaces, arguments: Mapping[str, Any]) -> Response:
        keyspace = await self.context.run(registry.delete, **arguments)
        self._sweeping.look_soon()
        return JsonAnswer(keyspace.to_json(), 202)

    async def _sweep(self, request: Request, registry: KeySpaces, arguments: Mapping[str, Any]) -> Response:
        by = _caller(request).name
        progress = await self.context.run(self._sweeping.take_further, registry, **arguments, by=by)
        return JsonAnswer(progress.to_json())


def _caller(request: Request) -> Caller:
    caller = caller_of(request)
    if caller is None:
        raise AnswerError(401, "unauthorized", "a token is needed")
    return caller


def _found(registry: KeySpaces, name: str) -> KeySpace | None:
    try:
        return registry.get(name)
    except KeySpaceNotFoundError:
        return None


def _is_administration(operation: Operation) -> bool:
    """Tell whether whoever is granted what an operation needs performs it as an administrator.

    Not where that is on an application: who makes a key space for it may take no data that is there already, and is a client.
    """
    need = operation.needs
    is_on_one = need.on.kind in {OnKind.KEY_SPACE, OnKind.OPERATION}
    return operation.caller is CallerKind.ADMINISTRATOR or (need.act is not Act.READ and is_on_one)


def _expecting(request: Request, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    """The arguments with the identity of the key space for which a grant was found: by now the name may be another's."""
    found: KeySpace | None = getattr(request.state, "keyspace", None)
    if found is None:
        return arguments
    if (given := arguments.get("expected")) is not None:
        given.require(found)
    return {**arguments, "expected": KeySpaceIdentity(found.generation, found.application)}


def _created(registry: KeySpaces, *, if_not_exists: bool, **asked: Any) -> Ensured:
    """Make what was asked for, and tell whether it is new."""
    if not if_not_exists:
        return Ensured(registry.create(**asked), is_new=True)
    if asked.pop("adopt_existing_data") | asked.pop("allow_legacy_prefix"):
        problem = "a prefix that is in use is adopted once: without if_not_exists"
        raise InvalidArgumentError(argument="if_not_exists", problem=problem)
    return registry.ensure(**asked)


def _shown(registry: KeySpaces, name: str) -> KeySpace:
    """Return a key space with, while it is being deleted, how far that is."""
    keyspace = registry.get(name)
    deletion = registry.deletion(name) if keyspace.state is State.DELETING else None
    if deletion is None:
        return keyspace
    return structs.replace(
        keyspace, delete_progress=DeleteProgress(deleted_keys=deletion.deleted_keys, cursor=deletion.cursor)
    )
