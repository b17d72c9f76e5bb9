"""Workloads over HTTP (5.4), under the document's keys. The original stored nothing here.

Reading takes a session, writing the right to modify workloads. Names are kept as they are created: a name in another case is
found when the one as written is not there.
"""

from collections.abc import Sequence

from starlette.responses import Response

from keyplan.apps.cloudchamber.chamber import DeletePolicy, PartsExistError
from keyplan.apps.cloudchamber.records import Workload
from keyplan.apps.cloudchamber.refusals import RefusedError, not_found, quoted
from keyplan.apps.cloudchamber.rest_bodies import (
    Difference,
    DifferenceList,
    DifferingField,
    NamedEntry,
    WorkloadList,
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
from keyplan.apps.cloudchamber.rest_uris import WORKLOADS, workload_uri
from keyplan.apps.cloudchamber.workloads import differences_of
from keyplan.layout import Versioned

__all__ = ["workload_operations"]


def workload_operations(handler: Handler) -> Sequence[Operation]:
    """Return the operations on workloads."""
    on_workloads = _Workloads(handler)
    steps = Query("steps", "delete in several commits where the store takes no more in one")
    restrict = Query("restrict", "refuse while there are instances, rather than delete them too")
    return [
        Operation("GET", WORKLOADS, on_workloads.list, "List the workloads.", WorkloadList, has_slash=True),
        Operation(
            "POST", ONE_WORKLOAD, on_workloads.create, "Create a workload.", body=Workload, failures=WRITE_FAILURES
        ),
        Operation("GET", ONE_WORKLOAD, on_workloads.read, "Read a workload.", Workload, failures=READ_FAILURES),
        Operation(
            "PUT",
            ONE_WORKLOAD,
            on_workloads.update,
            "Replace a workload.",
            Workload,
            Workload,
            needs_match=True,
            failures=WRITE_FAILURES,
        ),
        Operation(
            "DELETE",
            ONE_WORKLOAD,
            on_workloads.delete,
            "Delete a workload with its instances; If-Match may be left out.",
            needs_match=True,
            queries=(restrict, steps),
            failures=WRITE_FAILURES,
        ),
        Operation(
            "GET",
            f"{ONE_WORKLOAD}/differences",
            on_workloads.differences,
            "List the instances whose actual state is not their target.",
            DifferenceList,
            failures=READ_FAILURES,
        ),
    ]


class _Workloads(StoredOperations):
    async def list(self, request: AuthenticatedRequest) -> Response:
        request.require_session()
        names = await self.run(lambda: list(self.layout.workloads.keys()))
        entries = [NamedEntry(name=name, uri=workload_uri(name)) for name in names]
        return message_answer(WorkloadList(workloads=entries))

    async def create(self, request: AuthenticatedRequest) -> Response:
        await self.require_right(request)
        name = request.literal()
        record = await message_of(request.http, Workload, is_strict=False)
        record = record if record.name else _named(record, name)

        def act() -> int:
            return self.layout.workloads.insert(name, record)

        revision = await self.run(self.worded, "workload", name, act)
        return text_answer(f"Workload {quoted(name)} created", headers=etag(revision))

    async def read(self, request: AuthenticatedRequest) -> Response:
        request.require_session()

        def act() -> Versioned[str, Workload] | None:
            return self.layout.workloads.versioned(self.workload(request))

        found = await self.run(act)
        if found is None:
            raise not_found("workload", request.name())
        return message_answer(found.record, revision=found.revision)

    async def update(self, request: AuthenticatedRequest) -> Response:
        await self.require_right(request)
        expected = revision_expected(request.http)
        record = await message_of(request.http, Workload, is_strict=False)

        def act() -> tuple[Workload, int]:
            name = self.workload(request)
            written = record if record.name else _named(record, name)
            return written, self.update_record("workloads", name, written, expected)

        written, revision = await self.run(self.worded, "workload", request.name(), act)
        return message_answer(written, revision=revision)

    async def delete(self, request: AuthenticatedRequest) -> Response:
        await self.require_right(request)
        expected = revision_if_given(request)
        delete_policy = DeletePolicy.RESTRICT if "restrict" in request.http.query_params else DeletePolicy.CASCADE

        def act() -> str:
            name = self.workload(request)
            try:
                self.handler.chamber.delete_workload(
                    name,
                    delete_policy=delete_policy,
                    expected_revision=expected,
                    missing_ok=False,
                    in_steps="steps" in request.http.query_params,
                )
            except PartsExistError as error:
                raise RefusedError(409, f"workload {quoted(name)} has instances") from error
            return name

        name = await self.run(self.worded, "workload", request.name(), act)
        return text_answer(f"Workload {quoted(name)} deleted.")

    async def differences(self, request: AuthenticatedRequest) -> Response:
        request.require_session()

        def act() -> DifferenceList:
            name = self.workload(request)
            self.layout.workloads.require(name)
            return DifferenceList(
                differences=[
                    Difference(
                        instance=found.key.instance,
                        damaged=found.is_damaged,
                        fields=[
                            DifferingField(name=field, wanted=str(wanted), found=str(found.found[field]))
                            for field, wanted in found.wanted.items()
                        ],
                    )
                    for found in differences_of(self.layout, name)
                ]
            )

        return message_answer(await self.run(self.worded, "workload", request.name(), act))


def _named(workload: Workload, name: str) -> Workload:
    return Workload(
        name=name,
        affinity=workload.affinity,
        instances=workload.instances,
        unknown_fields=workload.unknown_fields,
    )
