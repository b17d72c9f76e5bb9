"""Workloads and their instances over HTTP (5.4), under the document's keys. The original stored nothing here.

Reading takes a session, writing the right to modify workloads. Names are kept as they are created: a name in another case is
found when the one as written is not there.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

from starlette.responses import Response

from keyplan.apps.cloudchamber.accounts import rights_of
from keyplan.apps.cloudchamber.chamber import OnParts, PartsExistError
from keyplan.apps.cloudchamber.layout import CloudChamber, InstanceKey
from keyplan.apps.cloudchamber.proto_json import Message
from keyplan.apps.cloudchamber.records import Instance, InstanceActual, InstanceTarget, Workload
from keyplan.apps.cloudchamber.refusals import (
    RefusedError,
    already_exists,
    newer_version,
    not_found,
    permission_denied,
    quoted,
)
from keyplan.apps.cloudchamber.rest_bodies import (
    Difference,
    DifferenceList,
    DifferingField,
    InstanceCreation,
    InstanceList,
    NamedEntry,
    WorkloadList,
    etag,
    message_answer,
    message_of,
    revision_expected,
    text_answer,
)
from keyplan.apps.cloudchamber.rest_routes import Asked, Desk, Operation, Query
from keyplan.apps.cloudchamber.rest_uris import WORKLOADS, instance_uri, workload_uri
from keyplan.apps.cloudchamber.workloads import (
    create_instance,
    delete_instance,
    differences_of,
    list_instances,
    write_target,
)
from keyplan.errors import AlreadyExistsError, NotFoundError, StaleRecordError
from keyplan.layout import Versioned

__all__ = ["workload_operations"]

_READ: Final = "403 404"
_WRITE: Final = "400 403 404 409 413"
_ONE: Final = f"{WORKLOADS}/{{name}}"
_INSTANCES: Final = f"{_ONE}/instances"
_INSTANCE: Final = f"{_INSTANCES}/{{instance}}"


def workload_operations(desk: Desk) -> Sequence[Operation]:
    """Return the operations on workloads and instances."""
    return [*_on_workloads(_Workloads(desk)), *_on_instances(_Instances(desk))]


def _on_workloads(on_workloads: "_Workloads") -> Sequence[Operation]:
    restrict = Query("restrict", "refuse while there are instances, rather than delete them too")
    return [
        Operation("GET", WORKLOADS, on_workloads.list, "List the workloads.", WorkloadList, has_slash=True),
        Operation("POST", _ONE, on_workloads.create, "Create a workload.", body=Workload, failures=_WRITE),
        Operation("GET", _ONE, on_workloads.read, "Read a workload.", Workload, failures=_READ),
        Operation(
            "PUT",
            _ONE,
            on_workloads.update,
            "Replace a workload.",
            Workload,
            Workload,
            needs_match=True,
            failures=_WRITE,
        ),
        Operation(
            "DELETE",
            _ONE,
            on_workloads.delete,
            "Delete a workload with its instances; If-Match may be left out.",
            needs_match=True,
            queries=(restrict,),
            failures=_WRITE,
        ),
        Operation(
            "GET",
            f"{_ONE}/differences",
            on_workloads.differences,
            "List the instances whose actual state is not their target.",
            DifferenceList,
            failures=_READ,
        ),
    ]


def _on_instances(on_instances: "_Instances") -> Sequence[Operation]:
    derive = Query("derive", "list instances that have a state and no description, too")
    return [
        Operation(
            "GET",
            _INSTANCES,
            on_instances.list,
            "List the instances of a workload.",
            InstanceList,
            queries=(derive,),
            failures=_READ,
            has_slash=True,
        ),
        Operation(
            "POST",
            _INSTANCE,
            on_instances.create,
            "Create an instance: description, target and, when given, actual state.",
            body=InstanceCreation,
            failures=_WRITE,
        ),
        Operation("GET", _INSTANCE, on_instances.read, "Read an instance's description.", Instance, failures=_READ),
        Operation(
            "PUT",
            _INSTANCE,
            on_instances.update,
            "Replace an instance's description.",
            Instance,
            Instance,
            needs_match=True,
            failures=_WRITE,
        ),
        Operation(
            "DELETE",
            _INSTANCE,
            on_instances.delete,
            "Delete an instance with its target and actual state; If-Match may be left out.",
            needs_match=True,
            failures=_WRITE,
        ),
        *on_instances.state_operations("target", InstanceTarget),
        *on_instances.state_operations("actual", InstanceActual),
    ]


class _Base:
    """What both have in common: rights, names, and conflicts in words."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._layout = desk.chamber.layout
        self._run = desk.context.run

    async def _require_right(self, asked: Asked) -> None:
        user = await self._desk.context.read(self._desk.accounts.find, asked.caller())
        if user is None or not user.record.enabled or not rights_of(user.record).can_modify_workloads:
            raise permission_denied()

    def _spelled(self, name: str, exists: Callable[[str], bool]) -> str:
        """A name as written when there is such a thing, else in lower case (5.1)."""
        return name if name == name.lower() or exists(name) else name.lower()

    def _workload(self, asked: Asked) -> str:
        return self._spelled(asked.literal(), self._layout.workloads.exists)

    def _worded(self, kind: str, name: str, act: Callable[[], Any]) -> Any:
        try:
            return act()
        except AlreadyExistsError as error:
            raise already_exists(kind, name) from error
        except NotFoundError as error:
            raise not_found(kind, name) from error
        except StaleRecordError as error:
            if error.facts.get("actual_revision") == 0:
                raise not_found(kind, name) from error
            raise newer_version(kind, name) from error

    def _update(self, table: str, key: Any, record: Message, expected: int) -> int:
        def work(transaction: CloudChamber) -> CloudChamber:
            view = transaction.view(table)
            there = view.versioned(key)
            if there is None:
                raise NotFoundError(table=table, key=key)
            if there.revision != expected:
                raise StaleRecordError(table=table, key=key, expected_revision=expected, actual_revision=there.revision)
            view.put(key, record)
            return transaction

        return self._layout.run(work).revision


class _Workloads(_Base):
    async def list(self, asked: Asked) -> Response:
        asked.require_session()
        names = await self._run(lambda: list(self._layout.workloads.keys()))
        entries = [NamedEntry(name=name, uri=workload_uri(name)) for name in names]
        return message_answer(WorkloadList(workloads=entries))

    async def create(self, asked: Asked) -> Response:
        await self._require_right(asked)
        name = asked.literal()
        record = await message_of(asked.request, Workload, is_strict=False)
        record = record if record.name else _named(record, name)

        def act() -> int:
            return self._layout.workloads.insert(name, record)

        revision = await self._run(self._worded, "workload", name, act)
        return text_answer(f"Workload {quoted(name)} created", headers=etag(revision))

    async def read(self, asked: Asked) -> Response:
        asked.require_session()

        def act() -> Versioned[str, Workload] | None:
            return self._layout.workloads.versioned(self._workload(asked))

        found = await self._run(act)
        if found is None:
            raise not_found("workload", asked.name())
        return message_answer(found.record, revision=found.revision)

    async def update(self, asked: Asked) -> Response:
        await self._require_right(asked)
        expected = revision_expected(asked.request)
        record = await message_of(asked.request, Workload, is_strict=False)

        def act() -> tuple[Workload, int]:
            name = self._workload(asked)
            written = record if record.name else _named(record, name)
            return written, self._update("workloads", name, written, expected)

        written, revision = await self._run(self._worded, "workload", asked.name(), act)
        return message_answer(written, revision=revision)

    async def delete(self, asked: Asked) -> Response:
        await self._require_right(asked)
        expected = _revision_if_given(asked)
        on_parts = OnParts.RESTRICT if "restrict" in asked.request.query_params else OnParts.CASCADE

        def act() -> str:
            name = self._workload(asked)
            try:
                self._desk.chamber.delete_workload(
                    name, on_parts=on_parts, expected_revision=expected, missing_ok=False
                )
            except PartsExistError as error:
                raise RefusedError(409, f"workload {quoted(name)} has instances") from error
            return name

        name = await self._run(self._worded, "workload", asked.name(), act)
        return text_answer(f"Workload {quoted(name)} deleted.")

    async def differences(self, asked: Asked) -> Response:
        asked.require_session()

        def act() -> DifferenceList:
            name = self._workload(asked)
            self._layout.workloads.require(name)
            return DifferenceList(
                differences=[
                    Difference(
                        instance=found.key.instance,
                        fields=[
                            DifferingField(name=field, wanted=str(wanted), found=str(found.found[field]))
                            for field, wanted in found.wanted.items()
                        ],
                    )
                    for found in differences_of(self._layout, name)
                ]
            )

        return message_answer(await self._run(self._worded, "workload", asked.name(), act))


class _Instances(_Base):
    async def list(self, asked: Asked) -> Response:
        asked.require_session()
        derive = "derive" in asked.request.query_params

        def act() -> InstanceList:
            workload = self._workload(asked)
            names = list_instances(self._layout, workload, derive=derive)
            if not names:
                self._layout.workloads.require(workload)
            return InstanceList(
                instances=[NamedEntry(name=name, uri=instance_uri(InstanceKey(workload, name))) for name in names]
            )

        return message_answer(await self._run(self._worded, "workload", asked.name(), act))

    async def create(self, asked: Asked) -> Response:
        await self._require_right(asked)
        body = await message_of(asked.request, InstanceCreation, is_strict=False)
        name = asked.literal("instance")

        def act() -> int:
            workload = self._workload(asked)
            if not self._layout.workloads.exists(workload):
                raise not_found("workload", asked.name())
            return create_instance(
                self._layout,
                InstanceKey(workload, name),
                body.description or Instance(),
                body.target or InstanceTarget(),
                body.actual,
                needs_workload=True,
            )

        revision = await self._run(self._worded, "instance", name, act)
        return text_answer(f"Instance {quoted(name)} created", headers=etag(revision))

    async def read(self, asked: Asked) -> Response:
        return await self._read_of(asked, "instances")

    async def update(self, asked: Asked) -> Response:
        return await self._write_of(asked, "instances", Instance)

    async def delete(self, asked: Asked) -> Response:
        await self._require_right(asked)
        expected = _revision_if_given(asked)

        def act() -> str:
            key = self._key(asked)
            delete_instance(self._layout, key, expected_revision=expected, missing_ok=False)
            return key.instance

        name = await self._run(self._worded, "instance", asked.name("instance"), act)
        return text_answer(f"Instance {quoted(name)} deleted.")

    def state_operations(self, part: str, kind: type[InstanceTarget] | type[InstanceActual]) -> Sequence[Operation]:
        """The operations on the target or the actual state of an instance."""
        table = f"instance_{part}"

        async def read(asked: Asked) -> Response:
            return await self._read_of(asked, table)

        async def write(asked: Asked) -> Response:
            return await self._write_of(asked, table, kind)

        path = f"{_INSTANCE}/{part}"
        words = f"an instance's {'target' if part == 'target' else 'actual state'}"
        return [
            Operation("GET", path, read, f"Read {words}.", kind, failures=_READ),
            Operation(
                "PUT",
                path,
                write,
                f"Write {words}; without If-Match only where there is none yet.",
                kind,
                kind,
                needs_match=True,
                failures=_WRITE,
            ),
        ]

    def _key(self, asked: Asked) -> InstanceKey:
        workload = self._workload(asked)

        def exists(name: str) -> bool:
            key = InstanceKey(workload, name)
            return self._layout.instances.exists(key) or self._layout.instance_target.exists(key)

        return InstanceKey(workload, self._spelled(asked.literal("instance"), exists))

    async def _read_of(self, asked: Asked, table: str) -> Response:
        asked.require_session()

        def act() -> Any:
            return self._layout.view(table).versioned(self._key(asked))

        found = await self._run(act)
        if found is None:
            raise not_found("instance", asked.name("instance"))
        return message_answer(found.record, revision=found.revision)

    async def _write_of(self, asked: Asked, table: str, kind: type[Message]) -> Response:
        await self._require_right(asked)
        is_first = table != "instances" and "if-match" not in asked.request.headers
        expected = 0 if is_first else revision_expected(asked.request)
        record = await message_of(asked.request, kind, is_strict=False)

        def act() -> tuple[Message, int]:
            key = self._key(asked)
            if is_first:
                return self._first(table, key, record)
            if isinstance(record, InstanceTarget):
                written = write_target(self._layout, key, record, expected_revision=expected)
                return written.record, written.revision
            return record, self._update(table, key, record, expected)

        written, revision = await self._run(self._worded, "instance", asked.name("instance"), act)
        return message_answer(written, revision=revision)

    def _first(self, table: str, key: InstanceKey, record: Message) -> tuple[Message, int]:
        def work(transaction: CloudChamber) -> CloudChamber:
            transaction.instances.require(key)
            transaction.view(table).insert(key, record)
            return transaction

        return record, self._layout.run(work).revision


def _named(workload: Workload, name: str) -> Workload:
    return Workload(
        name=name,
        affinity=workload.affinity,
        instances=workload.instances,
        unknown_fields=workload.unknown_fields,
    )


def _revision_if_given(asked: Asked) -> int | None:
    return revision_expected(asked.request) if "if-match" in asked.request.headers else None
