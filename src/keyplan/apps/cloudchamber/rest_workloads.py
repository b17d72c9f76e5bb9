"""Workloads over HTTP (5.4), under the document's keys. The original stored nothing here.

Reading takes a session, writing the right to modify workloads. Names are kept as they are created: a name in another case is
found when the one as written is not there.
"""

from typing import Annotated

from keyplan.apps.cloudchamber.layout import ServedLayout
from keyplan.apps.cloudchamber.namespace_store import (
    PARTS,
    DeletePolicy,
    PartsExistError,
    PartsLeftError,
    require_no_parts,
)
from keyplan.apps.cloudchamber.records import Workload
from keyplan.apps.cloudchamber.refusals import RefusedError, invalid, not_found, quoted
from keyplan.apps.cloudchamber.rest_bodies import (
    Difference,
    DifferenceList,
    DifferingField,
    NamedEntry,
    WorkloadList,
)
from keyplan.apps.cloudchamber.rest_routes import Who, etag, rest
from keyplan.apps.cloudchamber.rest_stored import (
    ONE_WORKLOAD,
    WORKLOADS,
    WRITES,
    StoredResource,
    known,
    worded,
    workload_uri,
)
from keyplan.apps.cloudchamber.rest_words import IfMatch, IfMatchOrNone, Name
from keyplan.apps.cloudchamber.workloads import InstanceDifference, differences_of
from keyplan.operations import PRESENT, Answered, Change, In, Schema, Whole

__all__ = ["Workloads"]


class Workloads(StoredResource):
    """The operations on workloads."""

    @rest("GET", WORKLOADS, Who.LOGGED_IN, has_slash=True)
    def list(self) -> WorkloadList:
        """List the workloads."""
        names = self.layout.workloads.keys()
        return WorkloadList(workloads=[NamedEntry(name=name, uri=workload_uri(name)) for name in names])

    @rest(
        "POST", ONE_WORKLOAD, Who.WORKLOAD_MODIFIER, 404, 409, 413, **WRITES, change=Change("create workload", "{name}")
    )
    def create(self, name: Name, record: Whole[Workload]) -> Answered[str]:
        """Create a workload."""
        written = _named(known(record), name)

        def work(transaction: ServedLayout) -> ServedLayout:
            transaction.workloads.insert(name, written)
            require_no_parts(transaction, "workloads", name, ((part, (name,)) for part in PARTS["workloads"]))
            return transaction

        with worded("workload", name):
            try:
                revision = self.layout.run(work).revision
            except PartsLeftError as error:
                left = f"is not there, and parts of it are, as {error.facts['part']}: a DELETE deletes them"
                raise RefusedError(409, f"workload {quoted(name)} {left}") from error
        return Answered(f"Workload {quoted(name)} created", headers=etag(revision))

    @rest("GET", ONE_WORKLOAD, Who.LOGGED_IN, 404, 500)
    def read(self, name: Name) -> Answered[Workload]:
        """Read a workload."""
        found = self.read_record("workloads", self.workload(name))
        if found is None:
            raise not_found("workload", name.lower())
        return found

    @rest(
        "PUT", ONE_WORKLOAD, Who.WORKLOAD_MODIFIER, 404, 409, 413, **WRITES, change=Change("update workload", "{name}")
    )
    def update(self, name: Name, record: Whole[Workload], *, expected: IfMatch) -> Answered[Workload]:
        """Replace a workload."""
        with worded("workload", name.lower()):
            key = self.workload(name)
            written, revision = self.update_record("workloads", key, _named(record, key), expected)
        return Answered(written, headers=etag(revision))

    @rest("DELETE", ONE_WORKLOAD, Who.WORKLOAD_MODIFIER, 404, 409, change=Change("delete workload", "{name}"))
    def delete(
        self,
        name: Name,
        *,
        restrict: Annotated[
            bool, In(form=PRESENT), Schema("refuse while there are instances, rather than delete them too")
        ] = False,
        steps: Annotated[
            bool, In(form=PRESENT), Schema("delete in several commits where the store takes no more in one")
        ] = False,
        expected: IfMatchOrNone = None,
    ) -> str:
        """Delete a workload with its instances, or what is left of one that is not there; If-Match may be left out."""
        with worded("workload", name.lower()):
            key = self._workload_or_left(name)
            try:
                self.web.chamber.delete_workload(
                    key,
                    delete_policy=DeletePolicy.RESTRICT if restrict else DeletePolicy.CASCADE,
                    expected_revision=expected,
                    missing_ok=False,
                    in_steps=steps,
                )
            except PartsExistError as error:
                raise RefusedError(409, f"workload {quoted(key)} has instances") from error
        return f"Workload {quoted(key)} deleted."

    def _workload_or_left(self, name: str) -> str:
        """The workload that a path names, also one that is not there any more, and has parts."""

        def exists(spelled: str) -> bool:
            return self.layout.workloads.exists(spelled) or self.web.chamber.workload_part_left(spelled) is not None

        return self.spelled(name, exists)

    @rest("GET", f"{ONE_WORKLOAD}/differences", Who.LOGGED_IN, 404)
    def differences(self, name: Name) -> DifferenceList:
        """List the instances whose actual state is not their target."""
        with worded("workload", name.lower()):
            key = self.workload(name)
            self.layout.workloads.require(key)
            return DifferenceList(differences=[_difference(found) for found in differences_of(self.layout, key)])


def _difference(found: InstanceDifference) -> Difference:
    fields = [
        DifferingField(name=field, wanted=str(wanted), found=str(found.found[field]))
        for field, wanted in found.wanted.items()
    ]
    return Difference(instance=found.key.instance, damaged=found.is_damaged, fields=fields)


def _named(workload: Workload, name: str) -> Workload:
    """The workload with its name, where none was given. Raises RefusedError (400) for another name than the path's."""
    if workload.name == name:
        return workload
    if workload.name:
        raise invalid(f"the workload's name is {quoted(workload.name)}, and the path's {quoted(name)}: leave it out")
    return Workload(
        name=name,
        affinity=workload.affinity,
        instances=workload.instances,
        unknown_fields=workload.unknown_fields,
    )
