"""What every server answers beside its services: is it well, which is it, its figures, its description."""

import asyncio
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Annotated, Any, ClassVar, Final

import msgspec
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.requests import Request
from starlette.routing import BaseRoute

from keyplan.audit_log import AuditLog, AuditLogOperations, AuditRecord
from keyplan.engine import Area, KeyRange
from keyplan.errors import InvalidInputError
from keyplan.operations import (
    ITSELF,
    NOTHING,
    Act,
    Answered,
    AnswerForm,
    CallerKind,
    Contract,
    Need,
    Operation,
    Schema,
    described,
    needs_of,
    operation,
    operations_of,
)
from keyplan.server.access import require_admin
from keyplan.server.answers import AnswerError
from keyplan.server.openapi import SHARED, merged
from keyplan.server.operations import Responder
from keyplan.server.service import Service, ServiceContext

__all__ = ["DESCRIPTION", "NEEDS", "Shell", "ShellOperations"]


class Health(msgspec.Struct):
    """That the server can read its store."""

    schema_name: ClassVar[str] = "ServerHealth"
    status: Annotated[str, Schema(const="ok")] = "ok"


class Version(msgspec.Struct):
    """Which program answers, and what it serves."""

    schema_name: ClassVar[str] = "ServerVersion"
    program: Annotated[str, Schema(const="keyplan")]
    version: str
    services: list[str]


class ShellOperations(AuditLogOperations):
    """The operations that every server has."""

    @operation("GET", "/health", name="getHealth", needs=Need(Act.READ, NOTHING), answers="It can.")
    async def health(self) -> Health:
        """Tell whether the server can read its store."""
        raise NotImplementedError

    @operation("GET", "/version", name="getVersion", needs=Need(Act.READ, NOTHING), answers="The version.")
    async def version(self) -> Version:
        """Name the program, its version and its services."""
        raise NotImplementedError

    @operation(
        "GET",
        "/metrics",
        name="getMetrics",
        needs=Need(Act.READ, ITSELF),
        answers="The figures.",
        answer=AnswerForm(bytes, bytes, str, "text/plain"),
    )
    async def metrics(self) -> Answered[bytes]:
        """Give the server's figures in the text form of Prometheus."""
        raise NotImplementedError

    @operation("GET", "/openapi.json", name="getDescription", needs=Need(Act.READ, ITSELF), answers="It.")
    async def description(self) -> dict[str, Any]:
        """Give this description."""
        raise NotImplementedError


OPERATIONS: Final = operations_of(ShellOperations)

NEEDS: Final = needs_of(ShellOperations)
"""What each needs, for `keyplan.access`."""
_OPEN: Final = ("health", "version")
_LOOKED_AT: Final = b"\x00"
_CONTRACT: Final = Contract("server", always=(), without_token=[OPERATIONS[name].name for name in _OPEN])


def _description() -> dict[str, Any]:
    found = described(OPERATIONS.values(), _CONTRACT)
    return {**found, "components": {**SHARED, "schemas": {**SHARED["schemas"], **found["components"]["schemas"]}}}


DESCRIPTION: Final = _description()
"""The shell's part, and what the parts of all services refer to."""


class Shell(ShellOperations):
    """The operations over one server's services."""

    def __init__(self, context: ServiceContext, services: Sequence[Service]) -> None:
        self._context = context
        # Why a key that is none: what is asked is whether the store answers.
        self._own = context.own(Area(KeyRange.of_key(_LOOKED_AT)))
        self._names = sorted(service.name for service in services)
        self.program_version = version("keyplan")
        parts: list[tuple[str, Mapping[str, Any]]] = [("server", DESCRIPTION)]
        parts += [(service.name, service.openapi) for service in services]
        self._description = merged(parts, version=self.program_version)
        responder = _ShellResponder(context, self)
        self.open_routes: list[BaseRoute] = responder.routes(OPERATIONS[name] for name in _OPEN)
        self.routes: list[BaseRoute] = responder.routes(one for name, one in OPERATIONS.items() if name not in _OPEN)

    async def health(self) -> Health:
        def read() -> None:
            with self._own.snapshot() as snapshot:
                snapshot.get(_LOOKED_AT)

        await self._context.run(read)
        return Health()

    async def version(self) -> Version:
        return Version("keyplan", self.program_version, self._names)

    async def metrics(self) -> Answered[bytes]:
        # Why in a thread: services may read the store for their figures. Why in none of the workers: they are a figure.
        text = await asyncio.to_thread(generate_latest, self._context.metrics)
        return Answered(text, headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def description(self) -> dict[str, Any]:
        return self._description

    def audit_log(self, *, after: int = 0, limit: int = 100) -> list[AuditRecord]:
        log = self._context.audit.log
        if not isinstance(log, AuditLog):
            raise AnswerError(404, "not_found", "this server keeps no audit log: it was started without --audit-log")
        try:
            return log.lines_behind(after, limit=limit)
        except InvalidInputError as error:
            # Why without its words: they name files, which are nothing to an auditor.
            raise AnswerError(503, "audit_log_unreadable", "the audit log cannot be read") from error


class _ShellResponder(Responder):
    """Everybody who comes through the gate may ask, of the audit log administrators; words of the query are passed over."""

    knows_all_words = False

    def __init__(self, context: ServiceContext, shell: Shell) -> None:
        super().__init__(context)
        self._shell = shell

    async def admit(self, request: Request, operation: Operation) -> Shell:
        if operation.caller is CallerKind.ADMINISTRATOR and self.context.access.policy is None:
            require_admin(request)
        return self._shell
