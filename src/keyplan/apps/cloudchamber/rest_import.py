"""An import over HTTP: a definition file as the body, and the plan of it as the answer; what was shown is what is done.

The original has no such route: its inventory service reads a file when it starts.
"""

from typing import Annotated, Any, Final

import msgspec

from keyplan.apps.cloudchamber.definition import parse_definition
from keyplan.apps.cloudchamber.import_plan import ImportPlan
from keyplan.apps.cloudchamber.import_report import plan_data, plan_summary
from keyplan.apps.cloudchamber.imports import ApprovedPlan, PlanChangedError, plan_digest, wanted_records
from keyplan.apps.cloudchamber.inventory import ExtraDevices, RackIds
from keyplan.apps.cloudchamber.layout import CloudChamberGo, LayoutSide
from keyplan.apps.cloudchamber.namespace_store import InUseError
from keyplan.apps.cloudchamber.reconciling import ImportOutcome, planned_import, reconcile
from keyplan.apps.cloudchamber.refusals import RefusedError, invalid, quoted
from keyplan.apps.cloudchamber.rest_routes import Resource, Who, rest
from keyplan.apps.cloudchamber.rest_words import one_of
from keyplan.apps.cloudchamber.steps import is_too_large
from keyplan.apps.cloudchamber.validation import problems_of, validated
from keyplan.errors import EngineLimitError, InvalidInputError
from keyplan.operations import PRESENT, Answered, BodyForm, Change, In, Place, Schema, WordForm

__all__ = ["DEFINITION_BYTES_MAX", "ImportAnswer", "Imports"]

DEFINITION_BYTES_MAX: Final = 8 << 20
"""Why: 6,000 blades, each spelled out; and a server that reads YAML for some seconds answers others late meanwhile."""

DEFINITION_RECORDS_MAX: Final = 100_000
"""Why: anchors let a short body state any number; a hundred full racks are planned in seconds, and fit into memory."""

_SOURCE: Final = "the definition"
_WHATEVER: Final = "*"
_YAML: Final = "application/yaml"
_DIGITS: Final = frozenset("0123456789abcdef")


def _read_plan(_argument: str, given: str) -> str:
    if given.strip() == _WHATEVER:
        return _WHATEVER
    digest = given.strip().strip('"')
    if not (len(digest) == 32 and _DIGITS.issuperset(digest)):
        raise invalid(f"match value {quoted(given)} is no ETag of a plan")
    return digest


IfPlan = Annotated[
    str | None,
    In("If-Match", WordForm(_read_plan, str), Place.HEADER),
    Schema("the ETag of the plan that was shown, or * for whatever is to do", pattern='^("[0-9a-f]{32}"|\\*)$'),
]
_BODY: Final = BodyForm(
    bytes,
    lambda body: {"definition": body},
    lambda fields: fields["definition"],
    schema=Annotated[str, Schema("a definition file")],
    content_type=_YAML,
    bytes_max=DEFINITION_BYTES_MAX,
)


_EXTRA_DEVICES: Final = one_of("way with extra devices", {str(one): str(one) for one in ExtraDevices})
_RACK_IDS: Final = one_of("form of rack ids", {str(one): str(one) for one in RackIds})

_Places = list[dict[str, Any]]


class ImportAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What an import does or did: the place of each record, of updates the fields; never a value."""

    create: Annotated[_Places, Schema("the table and the key's fields of each record that is made")]
    update: Annotated[_Places, Schema("the same of what is changed, and `fields`, which those are")]
    delete: Annotated[_Places, Schema("the same of what is deleted")]
    unchanged: Annotated[int, Schema("how many records are as the file says")]
    dry_run: Annotated[bool, Schema("nothing was written")]
    commits: Annotated[int, Schema("how many commits it took")]
    revision: Annotated[int, Schema("the store's, after it")]

    @property
    def told(self) -> str:
        """What an audit log has of it."""
        if self.dry_run:
            return "dry run"
        return f"{len(self.create)} created, {len(self.update)} updated, {len(self.delete)} deleted"


class Imports(Resource):
    """The operation on the inventory as a whole."""

    @rest(
        "PUT",
        "/api/inventory",
        Who.INVENTORY_MODIFIER,
        400,
        409,
        412,
        413,
        428,
        500,
        body=_BODY,
        headers={"ETag": "of a dry run: what names the plan, for If-Match"},
        change=Change("import inventory", "{answer.told}"),
    )
    def replace(
        self,
        definition: bytes,
        *,
        dry_run: Annotated[
            bool, In("dry-run", PRESENT), Schema("tell what would be written, and write nothing")
        ] = False,
        steps: Annotated[
            bool, In(form=PRESENT), Schema("in several commits where the store takes no more in one")
        ] = False,
        extra_devices: Annotated[
            str,
            In("extra-devices", _EXTRA_DEVICES),
            Schema("what becomes of a second PDU or TOR under the document's keys"),
        ] = ExtraDevices.REFUSE,
        rack_ids: Annotated[
            str, In("rack-ids", _RACK_IDS), Schema("how racks are named in the document's keys")
        ] = RackIds.NAME,
        agreed: IfPlan = None,
    ) -> Answered[ImportAnswer]:
        """Make the inventory what a definition file says, or show what that would do."""
        if agreed is None and not dry_run:
            raise RefusedError(428, "the request does not say which plan; send ?dry-run, then If-Match with its ETag")
        try:
            wanted = self._wanted(definition, ExtraDevices(extra_devices), RackIds(rack_ids))
        except InvalidInputError as error:
            raise invalid(_told(error)) from error
        layout: Any = self.layout
        if dry_run:
            plan = planned_import(layout, wanted)
            return Answered(_answer(ImportOutcome(plan, 0, layout.revision), is_dry_run=True), headers=_etag(plan))
        approve = None if agreed in {None, _WHATEVER} else ApprovedPlan(str(agreed))
        try:
            return Answered(_answer(reconcile(layout, wanted, approve=approve, in_steps=steps), is_dry_run=False))
        except InUseError as error:
            where = " ".join(f"{name} {error.facts[name]}" for name in ("rack", "blade") if name in error.facts)
            raise RefusedError(409, f"{where} is in use: {error.facts['problem']}") from error
        except PlanChangedError as error:
            plan = planned_import(layout, wanted)
            begun = (
                "some of it was done, and then the inventory was changed"
                if error.facts["done"]
                else "it is another plan"
            )
            left = plan_summary(plan, is_done=False)
            raise RefusedError(412, f"{begun}: {left}; send ?dry-run, and look at it again") from error
        except EngineLimitError as error:
            if not is_too_large(error):
                raise
            raise RefusedError(
                413, "the store takes less than this in one commit; ?steps has it done in several"
            ) from error

    def _wanted(self, raw: bytes, extra_devices: ExtraDevices, rack_ids: RackIds) -> Any:
        definition = validated(parse_definition(raw, source=_SOURCE, records_max=DEFINITION_RECORDS_MAX))
        side = LayoutSide.GO if isinstance(self.layout, CloudChamberGo) else LayoutSide.DOCUMENT
        return wanted_records(side, definition, extra_devices=extra_devices, rack_ids=rack_ids)


def _answer(outcome: ImportOutcome, *, is_dry_run: bool) -> ImportAnswer:
    told = plan_data(outcome.plan)
    return ImportAnswer(**told, dry_run=is_dry_run, commits=outcome.commits, revision=outcome.revision)


def _etag(plan: ImportPlan) -> dict[str, str]:
    return {"ETag": f'"{plan_digest(plan)}"'}


def _told(error: InvalidInputError) -> str:
    """What is wrong with a definition, with the line and the place where it stands."""
    where = [f"line {error.facts['line']}"] if "line" in error.facts else []
    where += [str(error.facts["place"])] if "place" in error.facts else []
    first, *further = problems_of(error)
    prefix = f"{', '.join(where)}: " if where else ""
    return "\n".join([prefix + first.removeprefix("CloudChamber: "), *further])
