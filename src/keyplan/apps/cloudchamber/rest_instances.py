"""Instances of workloads over HTTP (5.4): description, target and actual state, under the document's keys."""

from typing import Annotated, Any, Final

from keyplan.apps.cloudchamber.layout import ServedLayout
from keyplan.apps.cloudchamber.layout_keys import InstanceKey
from keyplan.apps.cloudchamber.placement import on_chosen_blade
from keyplan.apps.cloudchamber.records import Instance, InstanceActual, InstanceTarget
from keyplan.apps.cloudchamber.refusals import RefusedError, not_found, quoted
from keyplan.apps.cloudchamber.rest_bodies import InstanceCreation, InstanceList, NamedEntry
from keyplan.apps.cloudchamber.rest_routes import Who, etag, rest
from keyplan.apps.cloudchamber.rest_stored import ONE_WORKLOAD, WRITES, StoredResource, instance_uri, known, worded
from keyplan.apps.cloudchamber.rest_words import IfMatch, IfMatchOrNone, Name
from keyplan.apps.cloudchamber.workloads import (
    WrittenTarget,
    create_instance,
    delete_instance,
    insert_target,
    list_instances,
    write_description,
    write_target,
)
from keyplan.errors import CorruptionError
from keyplan.operations import PRESENT, Answered, Change, In, Schema, Whole

__all__ = ["Instances"]

_INSTANCES: Final = f"{ONE_WORKLOAD}/instances"
_INSTANCE: Final = f"{_INSTANCES}/{{instance}}"
_SUBJECT: Final = "{name}/{instance}"

_Place = Annotated[
    bool, In(form=PRESENT), Schema("choose the blade that it fits best on, in the target's rack where it names one")
]


class Instances(StoredResource):
    """The operations on instances: their descriptions, and their targets and actual states."""

    @rest("GET", _INSTANCES, Who.LOGGED_IN, 404, has_slash=True)
    def list(
        self,
        name: Name,
        *,
        derive: Annotated[
            bool, In(form=PRESENT), Schema("list instances that have a state and no description, too")
        ] = False,
    ) -> InstanceList:
        """List the instances of a workload."""
        with worded("workload", name.lower()):
            workload = self.workload(name)
            names = list_instances(self.layout, workload, derive=derive)
            if not names:
                self.layout.workloads.require(workload)
        return InstanceList(
            instances=[NamedEntry(name=one, uri=instance_uri(InstanceKey(workload, one))) for one in names]
        )

    @rest("POST", _INSTANCE, Who.WORKLOAD_MODIFIER, 404, 409, 413, **WRITES, change=Change("create instance", _SUBJECT))
    def create(
        self, name: Name, instance: Name, records: Whole[InstanceCreation], *, place: _Place = False
    ) -> Answered[str]:
        """Create an instance: description, target and, when given, actual state; on a blade where the target names one."""
        with worded("instance", instance):
            workload = self.workload(name)
            if not self.layout.workloads.exists(workload):
                raise not_found("workload", name.lower())
            key = InstanceKey(workload, instance)
            records = known(records)
            description = records.description or Instance()

            def write(target: InstanceTarget) -> WrittenTarget:
                revision = create_instance(self.layout, key, description, target, records.actual, needs_workload=True)
                return WrittenTarget(target, revision)

            target = records.target or InstanceTarget()
            if place:
                written = on_chosen_blade(self.layout, key, description, target, write)
                where = f" on blade {written.record.bladeid} in rack {quoted(written.record.rackid)}"
            else:
                written, where = write(target), ""
        return Answered(f"Instance {quoted(instance)} created{where}", headers=etag(written.revision))

    @rest("GET", _INSTANCE, Who.LOGGED_IN, 404, 500)
    def read(self, name: Name, instance: Name) -> Answered[Instance]:
        """Read an instance's description."""
        return self._read("instances", name, instance)

    @rest("PUT", _INSTANCE, Who.WORKLOAD_MODIFIER, 404, 409, 413, **WRITES, change=Change("update instance", _SUBJECT))
    def update(self, name: Name, instance: Name, record: Whole[Instance], *, expected: IfMatch) -> Answered[Instance]:
        """Replace an instance's description."""
        with worded("instance", instance.lower()):
            key = self._key(name, instance)
            written = self.replacing("instances", key, record, expected)
            revision = write_description(self.layout, key, written, expected_revision=expected)
        return Answered(written, headers=etag(revision))

    @rest("DELETE", _INSTANCE, Who.WORKLOAD_MODIFIER, 404, 409, change=Change("delete instance", _SUBJECT))
    def delete(self, name: Name, instance: Name, *, expected: IfMatchOrNone = None) -> str:
        """Delete an instance with its target and actual state; If-Match may be left out."""
        with worded("instance", instance.lower()):
            key = self._key(name, instance)
            delete_instance(self.layout, key, expected_revision=expected, missing_ok=False)
        return f"Instance {quoted(key.instance)} deleted."

    # ---- targets and actual states ---------------------------------------------------------------------------------------

    @rest("GET", f"{_INSTANCE}/target", Who.LOGGED_IN, 404, 500)
    def read_target(self, name: Name, instance: Name) -> Answered[InstanceTarget]:
        """Read an instance's target."""
        return self._read("instance_target", name, instance)

    @rest(
        "PUT",
        f"{_INSTANCE}/target",
        Who.WORKLOAD_MODIFIER,
        404,
        409,
        413,
        **WRITES,
        change=Change("set target", _SUBJECT),
    )
    def write_target(
        self,
        name: Name,
        instance: Name,
        record: Whole[InstanceTarget],
        *,
        place: _Place = False,
        expected: IfMatchOrNone = None,
    ) -> Answered[InstanceTarget]:
        """Write an instance's target; without If-Match only where there is none yet. A blade that it names must have room."""
        with worded("instance", instance.lower()):
            key = self._key(name, instance)
            record = known(record) if expected is None else self.replacing("instance_target", key, record, expected)

            def write(target: InstanceTarget) -> WrittenTarget:
                if expected is None:
                    return insert_target(self.layout, key, target)
                return write_target(self.layout, key, target, expected_revision=expected)

            try:
                if place:
                    description = self.layout.instances.require(key)
                    written = on_chosen_blade(self.layout, key, description, record, write)
                else:
                    written = write(record)
            except CorruptionError as error:
                if "advice" not in error.facts:
                    raise
                text = f"the target of instance {quoted(instance.lower())} cannot be read: {error.facts['advice']}"
                raise RefusedError(500, text) from error
        return Answered(written.record, headers=etag(written.revision))

    @rest("GET", f"{_INSTANCE}/actual", Who.LOGGED_IN, 404, 500)
    def read_actual(self, name: Name, instance: Name) -> Answered[InstanceActual]:
        """Read an instance's actual state."""
        return self._read("instance_actual", name, instance)

    @rest(
        "PUT",
        f"{_INSTANCE}/actual",
        Who.WORKLOAD_MODIFIER,
        404,
        409,
        413,
        **WRITES,
        change=Change("set actual", _SUBJECT),
    )
    def write_actual(
        self, name: Name, instance: Name, record: Whole[InstanceActual], *, expected: IfMatchOrNone = None
    ) -> Answered[InstanceActual]:
        """Write an instance's actual state; without If-Match only where there is none yet."""
        with worded("instance", instance.lower()):
            key = self._key(name, instance)
            if expected is None:
                return self._first_actual(key, known(record))
            written, revision = self.update_record("instance_actual", key, record, expected)
        return Answered(written, headers=etag(revision))

    def _key(self, name: str, instance: str) -> InstanceKey:
        workload = self.workload(name)

        def exists(spelled: str) -> bool:
            key = InstanceKey(workload, spelled)
            return self.layout.instances.exists(key) or self.layout.instance_target.exists(key)

        return InstanceKey(workload, self.spelled(instance, exists))

    def _read(self, table: str, name: str, instance: str) -> Answered[Any]:
        found = self.read_record(table, self._key(name, instance))
        if found is None:
            raise not_found("instance", instance.lower())
        return found

    def _first_actual(self, key: InstanceKey, record: InstanceActual) -> Answered[InstanceActual]:
        def work(transaction: ServedLayout) -> ServedLayout:
            transaction.instances.require(key)
            transaction.instance_actual.insert(key, record)
            return transaction

        return Answered(record, headers=etag(self.layout.run(work).revision))
