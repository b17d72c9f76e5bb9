"""Instances of workloads over HTTP (5.4): description, target and actual state, under the document's keys."""

from collections.abc import Sequence
from typing import Any, Final

from starlette.responses import Response

from keyplan.apps.cloudchamber.layout import CloudChamber, InstanceKey
from keyplan.apps.cloudchamber.records import Instance, InstanceActual, InstanceTarget
from keyplan.apps.cloudchamber.refusals import RefusedError, not_found, quoted
from keyplan.apps.cloudchamber.rest_bodies import (
    InstanceCreation,
    InstanceList,
    NamedEntry,
    etag,
    message_answer,
    message_of,
    revision_expected,
    text_answer,
)
from keyplan.apps.cloudchamber.rest_routes import AuthenticatedRequest, Handler, Operation, Query
from keyplan.apps.cloudchamber.rest_stored import (
    ONE_WORKLOAD,
    READ_FAILURES,
    WRITE_FAILURES,
    StoredOperations,
    revision_if_given,
)
from keyplan.apps.cloudchamber.rest_uris import instance_uri
from keyplan.apps.cloudchamber.workloads import create_instance, delete_instance, list_instances, write_target
from keyplan.errors import CorruptionError
from keyplan.protobuf import Message

__all__ = ["instance_operations"]

_INSTANCES: Final = f"{ONE_WORKLOAD}/instances"
_INSTANCE: Final = f"{_INSTANCES}/{{instance}}"


def instance_operations(handler: Handler) -> Sequence[Operation]:
    """Return the operations on instances."""
    on_instances = _Instances(handler)
    derive = Query("derive", "list instances that have a state and no description, too")
    return [
        Operation(
            "GET",
            _INSTANCES,
            on_instances.list,
            "List the instances of a workload.",
            InstanceList,
            queries=(derive,),
            failures=READ_FAILURES,
            has_slash=True,
        ),
        Operation(
            "POST",
            _INSTANCE,
            on_instances.create,
            "Create an instance: description, target and, when given, actual state.",
            body=InstanceCreation,
            failures=WRITE_FAILURES,
        ),
        Operation(
            "GET", _INSTANCE, on_instances.read, "Read an instance's description.", Instance, failures=READ_FAILURES
        ),
        Operation(
            "PUT",
            _INSTANCE,
            on_instances.update,
            "Replace an instance's description.",
            Instance,
            Instance,
            needs_match=True,
            failures=WRITE_FAILURES,
        ),
        Operation(
            "DELETE",
            _INSTANCE,
            on_instances.delete,
            "Delete an instance with its target and actual state; If-Match may be left out.",
            needs_match=True,
            failures=WRITE_FAILURES,
        ),
        *on_instances.state_operations("target", InstanceTarget),
        *on_instances.state_operations("actual", InstanceActual),
    ]


class _Instances(StoredOperations):
    async def list(self, request: AuthenticatedRequest) -> Response:
        request.require_session()
        derive = "derive" in request.http.query_params

        def act() -> InstanceList:
            workload = self.workload(request)
            names = list_instances(self.layout, workload, derive=derive)
            if not names:
                self.layout.workloads.require(workload)
            return InstanceList(
                instances=[NamedEntry(name=name, uri=instance_uri(InstanceKey(workload, name))) for name in names]
            )

        return message_answer(await self.run(self.worded, "workload", request.name(), act))

    async def create(self, request: AuthenticatedRequest) -> Response:
        await self.require_right(request)
        body = await message_of(request.http, InstanceCreation, is_strict=False)
        name = request.literal("instance")

        def act() -> int:
            workload = self.workload(request)
            if not self.layout.workloads.exists(workload):
                raise not_found("workload", request.name())
            return create_instance(
                self.layout,
                InstanceKey(workload, name),
                body.description or Instance(),
                body.target or InstanceTarget(),
                body.actual,
                needs_workload=True,
            )

        revision = await self.run(self.worded, "instance", name, act)
        return text_answer(f"Instance {quoted(name)} created", headers=etag(revision))

    async def read(self, request: AuthenticatedRequest) -> Response:
        return await self._read_of(request, "instances")

    async def update(self, request: AuthenticatedRequest) -> Response:
        return await self._write_of(request, "instances", Instance)

    async def delete(self, request: AuthenticatedRequest) -> Response:
        await self.require_right(request)
        expected = revision_if_given(request)

        def act() -> str:
            key = self._key(request)
            delete_instance(self.layout, key, expected_revision=expected, missing_ok=False)
            return key.instance

        name = await self.run(self.worded, "instance", request.name("instance"), act)
        return text_answer(f"Instance {quoted(name)} deleted.")

    def state_operations(self, part: str, kind: type[InstanceTarget] | type[InstanceActual]) -> Sequence[Operation]:
        """The operations on the target or the actual state of an instance."""
        table = f"instance_{part}"

        async def read(request: AuthenticatedRequest) -> Response:
            return await self._read_of(request, table)

        async def write(request: AuthenticatedRequest) -> Response:
            return await self._write_of(request, table, kind)

        path = f"{_INSTANCE}/{part}"
        words = f"an instance's {'target' if part == 'target' else 'actual state'}"
        return [
            Operation("GET", path, read, f"Read {words}.", kind, failures=READ_FAILURES),
            Operation(
                "PUT",
                path,
                write,
                f"Write {words}; without If-Match only where there is none yet.",
                kind,
                kind,
                needs_match=True,
                failures=WRITE_FAILURES,
            ),
        ]

    def _key(self, request: AuthenticatedRequest) -> InstanceKey:
        workload = self.workload(request)

        def exists(name: str) -> bool:
            key = InstanceKey(workload, name)
            return self.layout.instances.exists(key) or self.layout.instance_target.exists(key)

        return InstanceKey(workload, self.spelled(request.literal("instance"), exists))

    async def _read_of(self, request: AuthenticatedRequest, table: str) -> Response:
        request.require_session()

        def act() -> Any:
            return self.layout.view(table).versioned(self._key(request))

        found = await self.run(act)
        if found is None:
            raise not_found("instance", request.name("instance"))
        return message_answer(found.record, revision=found.revision)

    async def _write_of(self, request: AuthenticatedRequest, table: str, kind: type[Message]) -> Response:
        await self.require_right(request)
        is_first = table != "instances" and "if-match" not in request.http.headers
        expected = 0 if is_first else revision_expected(request.http)
        record = await message_of(request.http, kind, is_strict=False)

        def act() -> tuple[Message, int]:
            key = self._key(request)
            if is_first:
                return self._first(table, key, record)
            if isinstance(record, InstanceTarget):
                try:
                    written = write_target(self.layout, key, record, expected_revision=expected)
                except CorruptionError as error:
                    name = quoted(request.name("instance"))
                    text = f"the target of instance {name} cannot be read: {error.facts['advice']}"
                    raise RefusedError(500, text) from error
                return written.record, written.revision
            return record, self.update_record(table, key, record, expected)

        written, revision = await self.run(self.worded, "instance", request.name("instance"), act)
        return message_answer(written, revision=revision)

    def _first(self, table: str, key: InstanceKey, record: Message) -> tuple[Message, int]:
        def work(transaction: CloudChamber) -> CloudChamber:
            transaction.instances.require(key)
            transaction.view(table).insert(key, record)
            return transaction

        return record, self.layout.run(work).revision
