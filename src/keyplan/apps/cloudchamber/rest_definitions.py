"""Definitions over HTTP: what an inventory says of a rack, PDU, TOR or blade, of the zone and the region.

The original has no such routes: its own answer what they did. Each definition is a resource of its own with an ETag, and is
written under a condition alone: If-Match changes what was seen, If-None-Match: * makes what is not there.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any, Final

from keyplan.apps.cloudchamber.conditions import NEW, REQUIRED, RevisionCondition, at_revision
from keyplan.apps.cloudchamber.inventory_parts import Part, PartKind, PartRecord
from keyplan.apps.cloudchamber.layout_keys import BLADE_NUMBER_MAX, DEVICE_NUMBER_MAX
from keyplan.apps.cloudchamber.namespace_store import DeletePolicy, InUseError, PartsExistError, PartsLeftError
from keyplan.apps.cloudchamber.rack_writer import NoPartError, NoPlaceError, NoRackError, RulesOfRackError
from keyplan.apps.cloudchamber.readable import DEFAULT_ZONE
from keyplan.apps.cloudchamber.records import Blade, Pdu, Rack, Region, Tor, Zone
from keyplan.apps.cloudchamber.refusals import RefusedError, invalid, not_found, quoted
from keyplan.apps.cloudchamber.rest_routes import Resource, Who, etag, rest
from keyplan.apps.cloudchamber.rest_stored import ONE_RACK, WRITES, read_row
from keyplan.apps.cloudchamber.rest_words import Name, number_of_path, revision_of
from keyplan.apps.cloudchamber.validation import problems_of
from keyplan.errors import AlreadyExistsError, InvalidInputError, NotFoundError, StaleRecordError
from keyplan.operations import PRESENT, Answered, Change, In, Place, Schema, Whole, WordForm

__all__ = ["Definitions", "IfSeen", "Number", "can_be", "in_words", "missing", "named", "numbered"]

_RACK: Final = f"{ONE_RACK}/definition"
_BLADE: Final = f"{ONE_RACK}/blades/{{number}}/definition"
_PDU: Final = f"{ONE_RACK}/pdus/{{number}}/definition"
_TOR: Final = f"{ONE_RACK}/tors/{{number}}/definition"
_ZONE: Final = "/api/zone/definition"
_REGION: Final = "/api/region/definition"

_READ: Final[dict[str, Any]] = {"headers": {"ETag": "what a change of it says in If-Match"}}
_WRITE: Final[dict[str, Any]] = {**_READ, **WRITES, "also": {201: "It was made."}}
_WRITE_FAILURES: Final = (404, 409, 412, 413, 428)
_DELETE_FAILURES: Final = (404, 409, 412, 428)
_PROBLEM_PREFIX: Final = "CloudChamber: "


# ---- what is to be there ---------------------------------------------------------------------------------------------------


def _read_match(argument: str, given: str) -> RevisionCondition:
    if given.strip() == "*":
        return REQUIRED
    revision = revision_of(argument, given)
    if revision < 1:
        raise invalid(f"match value {quoted(given)} is no ETag")
    return at_revision(revision)


def _read_none_match(_argument: str, given: str) -> RevisionCondition:
    if given.strip() != "*":
        raise invalid(f"none-match value {quoted(given)} is not understood; it can be * alone")
    return NEW


IfSeen = Annotated[
    RevisionCondition | None,
    In("If-Match", WordForm(_read_match, str), Place.HEADER),
    Schema("the ETag of what is changed, or * for whatever is there", pattern='^("[1-9][0-9]{0,17}"|\\*)$'),
]
IfAbsent = Annotated[
    RevisionCondition | None,
    In("If-None-Match", WordForm(_read_none_match, str), Place.HEADER),
    Schema("* for what is not there yet", pattern="^\\*$"),
]
Number = Annotated[str, Schema(pattern="^[0-9]{1,8}$")]
Cascade = Annotated[bool, In(form=PRESENT), Schema("delete what is in the rack, too")]
Steps = Annotated[bool, In(form=PRESENT), Schema("in several commits where the store takes no more in one")]


def _condition(seen: RevisionCondition | None, absent: RevisionCondition | None = None) -> RevisionCondition:
    """What has to be true. Raises RefusedError (428) where nobody says: a change would undo what others wrote meanwhile."""
    if seen is not None and absent is not None:
        raise invalid("If-Match and If-None-Match stand against each other: send one of them")
    condition = seen or absent
    if condition is None:
        remedy = "send If-Match with the ETag of what you have seen, or If-None-Match: * for what is new"
        raise RefusedError(428, f"the request does not say what is to be there; {remedy}")
    return condition


# ---- parts -----------------------------------------------------------------------------------------------------------------


def _rack(name: str) -> Part:
    return Part(PartKind.RACK, name)


def numbered(kind: PartKind, rack: str, given: str) -> Part:
    """Return the part of a rack that a path names. Raises RefusedError (400) for no number."""
    return Part(kind, rack, number_of_path(given))


_ZONE_PART: Final = Part(PartKind.ZONE)
_REGION_PART: Final = Part(PartKind.REGION)


def named(part: Part) -> str:
    """Return a part in words: `blade 2 of rack "ada"`."""
    if part.is_in_rack:
        return f"{part.kind} {part.number} of rack {quoted(part.rack)}"
    return f"{part.kind} {quoted(part.rack or DEFAULT_ZONE)}"


def missing(part: Part) -> RefusedError:
    """There is no such part."""
    if part.is_in_rack:
        return RefusedError(404, f"{part.kind} {part.number} not found in rack {quoted(part.rack)}")
    return not_found(str(part.kind), part.rack or DEFAULT_ZONE)


def parts_left(subject: str, part: str) -> RefusedError:
    """Parts of a rack are there, and the rack is not."""
    return RefusedError(
        409, f"{subject} is not there, and parts of it are, as {part}: a DELETE with ?cascade deletes them"
    )


def can_be(part: Part) -> bool:
    """Tell whether a key can have the number of a part."""
    most = BLADE_NUMBER_MAX if part.kind is PartKind.BLADE else DEVICE_NUMBER_MAX
    return 0 <= part.number <= most


@contextmanager
def in_words(part: Part, subject: str = "") -> Iterator[None]:
    """Refuse in words what a write finds, misses, or comes too late for. `subject` is what is written, if not the part."""
    subject = subject or named(part)
    try:
        yield
    except AlreadyExistsError as error:
        revision = int(str(error.facts["revision"]))
        raise RefusedError(412, f"{subject} is there already", headers=etag(revision)) from error
    except NoPlaceError as error:
        raise RefusedError(404, f"the store's layout keeps no {part.kind}") from error
    except NoRackError as error:
        raise not_found("rack", part.rack) from error
    except NoPartError as error:
        raise missing(part) from error
    except NotFoundError as error:
        raise RefusedError(412, f"{subject} is not there") from error
    except StaleRecordError as error:
        actual = int(str(error.facts["actual_revision"]))
        if not actual:
            raise RefusedError(412, f"{subject} is not there") from error
        text = f"{subject} is at {actual}, not at {error.facts['expected_revision']}: read it again"
        raise RefusedError(412, text, headers=etag(actual)) from error
    except InUseError as error:
        raise RefusedError(409, f"{subject} is in use: {error.facts['problem']}") from error
    except PartsExistError as error:
        raise RefusedError(409, f"{subject} is not empty; ?cascade deletes what is in it, too") from error
    except PartsLeftError as error:
        raise parts_left(subject, str(error.facts["part"])) from error
    except (InvalidInputError, RulesOfRackError) as error:
        text = "\n".join(problems_of(error)).removeprefix(_PROBLEM_PREFIX)
        raise RefusedError(409 if isinstance(error, RulesOfRackError) else 400, text) from error


class Definitions(Resource):
    """The operations on definitions. A rack's name is as written where there is such a rack, else in lower case (5.1)."""

    # ---- racks -----------------------------------------------------------------------------------------------------------

    @rest("GET", _RACK, Who.LOGGED_IN, 404, 500, **_READ)
    def read_rack(self, rack: Name) -> Answered[Rack]:
        """Read the definition of a rack."""
        return self._read(_rack(rack))

    @rest("PUT", _RACK, Who.INVENTORY_MODIFIER, *_WRITE_FAILURES, **_WRITE, change=Change("define rack", "{rack}"))
    def write_rack(
        self, rack: Name, record: Whole[Rack], *, seen: IfSeen = None, absent: IfAbsent = None
    ) -> Answered[Rack]:
        """Define a rack; its parts have definitions of their own."""
        return self._write(_rack(rack), record, _condition(seen, absent))

    @rest("DELETE", _RACK, Who.INVENTORY_MODIFIER, *_DELETE_FAILURES, 413, change=Change("delete rack", "{rack}"))
    def delete_rack(self, rack: Name, *, cascade: Cascade = False, steps: Steps = False, seen: IfSeen = None) -> str:
        """Delete a rack: an empty one, or with all that is in it; also what is left of one that is not there any more."""
        policy = DeletePolicy.CASCADE if cascade else DeletePolicy.RESTRICT
        return self._delete(_rack(rack), _condition(seen), policy, in_steps=steps)

    # ---- blades ----------------------------------------------------------------------------------------------------------

    @rest("GET", _BLADE, Who.LOGGED_IN, 404, 500, **_READ)
    def read_blade(self, rack: Name, number: Number) -> Answered[Blade]:
        """Read the definition of a blade."""
        return self._read(numbered(PartKind.BLADE, rack, number))

    @rest(
        "PUT",
        _BLADE,
        Who.INVENTORY_MODIFIER,
        *_WRITE_FAILURES,
        **_WRITE,
        change=Change("define blade", "{rack}/blades/{number}"),
    )
    def write_blade(
        self, rack: Name, number: Number, record: Whole[Blade], *, seen: IfSeen = None, absent: IfAbsent = None
    ) -> Answered[Blade]:
        """Define a blade of a rack."""
        return self._write(numbered(PartKind.BLADE, rack, number), record, _condition(seen, absent))

    @rest(
        "DELETE",
        _BLADE,
        Who.INVENTORY_MODIFIER,
        *_DELETE_FAILURES,
        change=Change("delete blade", "{rack}/blades/{number}"),
    )
    def delete_blade(self, rack: Name, number: Number, *, seen: IfSeen = None) -> str:
        """Delete a blade."""
        return self._delete(numbered(PartKind.BLADE, rack, number), _condition(seen))

    # ---- PDUs and TORs ---------------------------------------------------------------------------------------------------

    @rest("GET", _PDU, Who.LOGGED_IN, 404, 500, **_READ)
    def read_pdu(self, rack: Name, number: Number) -> Answered[Pdu]:
        """Read the definition of a PDU; a rack's first is number 0."""
        return self._read(numbered(PartKind.PDU, rack, number))

    @rest(
        "PUT",
        _PDU,
        Who.INVENTORY_MODIFIER,
        *_WRITE_FAILURES,
        **_WRITE,
        change=Change("define pdu", "{rack}/pdus/{number}"),
    )
    def write_pdu(
        self, rack: Name, number: Number, record: Whole[Pdu], *, seen: IfSeen = None, absent: IfAbsent = None
    ) -> Answered[Pdu]:
        """Define a PDU of a rack, with a port for each blade at least."""
        return self._write(numbered(PartKind.PDU, rack, number), record, _condition(seen, absent))

    @rest(
        "DELETE", _PDU, Who.INVENTORY_MODIFIER, *_DELETE_FAILURES, change=Change("delete pdu", "{rack}/pdus/{number}")
    )
    def delete_pdu(self, rack: Name, number: Number, *, seen: IfSeen = None) -> str:
        """Delete a PDU."""
        return self._delete(numbered(PartKind.PDU, rack, number), _condition(seen))

    @rest("GET", _TOR, Who.LOGGED_IN, 404, 500, **_READ)
    def read_tor(self, rack: Name, number: Number) -> Answered[Tor]:
        """Read the definition of a TOR; a rack's first is number 0."""
        return self._read(numbered(PartKind.TOR, rack, number))

    @rest(
        "PUT",
        _TOR,
        Who.INVENTORY_MODIFIER,
        *_WRITE_FAILURES,
        **_WRITE,
        change=Change("define tor", "{rack}/tors/{number}"),
    )
    def write_tor(
        self, rack: Name, number: Number, record: Whole[Tor], *, seen: IfSeen = None, absent: IfAbsent = None
    ) -> Answered[Tor]:
        """Define a TOR of a rack, with a port for each blade at least."""
        return self._write(numbered(PartKind.TOR, rack, number), record, _condition(seen, absent))

    @rest(
        "DELETE", _TOR, Who.INVENTORY_MODIFIER, *_DELETE_FAILURES, change=Change("delete tor", "{rack}/tors/{number}")
    )
    def delete_tor(self, rack: Name, number: Number, *, seen: IfSeen = None) -> str:
        """Delete a TOR."""
        return self._delete(numbered(PartKind.TOR, rack, number), _condition(seen))

    # ---- the zone that is served, and its region: under the Go program's keys ----------------------------------------------

    @rest("GET", _ZONE, Who.LOGGED_IN, 404, 500, **_READ)
    def read_zone(self) -> Answered[Zone]:
        """Read the definition of the zone that is served; the document's keys have no place for one."""
        return self._read(_ZONE_PART)

    @rest("PUT", _ZONE, Who.INVENTORY_MODIFIER, 400, *_WRITE_FAILURES, **_WRITE, change=Change("define zone"))
    def write_zone(self, record: Whole[Zone], *, seen: IfSeen = None, absent: IfAbsent = None) -> Answered[Zone]:
        """Define the zone that is served."""
        return self._write(_ZONE_PART, record, _condition(seen, absent))

    @rest("GET", _REGION, Who.LOGGED_IN, 404, 500, **_READ)
    def read_region(self) -> Answered[Region]:
        """Read the definition of the region that is served; the document's keys have no place for one."""
        return self._read(_REGION_PART)

    @rest("PUT", _REGION, Who.INVENTORY_MODIFIER, 400, *_WRITE_FAILURES, **_WRITE, change=Change("define region"))
    def write_region(self, record: Whole[Region], *, seen: IfSeen = None, absent: IfAbsent = None) -> Answered[Region]:
        """Define the region that is served."""
        return self._write(_REGION_PART, record, _condition(seen, absent))

    # ---- all -------------------------------------------------------------------------------------------------------------

    def _read(self, part: Part) -> Answered[Any]:
        row = self.web.rack_writer.find(part) if can_be(part) else None
        if row is None:
            raise missing(part)
        return read_row(row)

    def _write(self, part: Part, record: PartRecord, condition: RevisionCondition) -> Answered[Any]:
        with in_words(part):
            written = self.web.rack_writer.write(part, record, condition)
        return Answered(written.record, 201 if written.is_new else 200, etag(written.revision))

    def _delete(
        self,
        part: Part,
        condition: RevisionCondition,
        policy: DeletePolicy = DeletePolicy.RESTRICT,
        *,
        in_steps: bool = False,
    ) -> str:
        # Why looked for first: what is not there is not found, whatever was expected of it.
        if not can_be(part):
            raise missing(part)
        if self.web.rack_writer.find(part) is None:
            left = self.web.rack_writer.part_left(part) if part.kind is PartKind.RACK else None
            if left is None:
                raise missing(part)
            if policy is DeletePolicy.RESTRICT:
                raise parts_left(named(part), left)
        with in_words(part):
            self.web.rack_writer.delete(part, condition, delete_policy=policy, in_steps=in_steps)
        subject = named(part)
        return f"{subject[0].upper()}{subject[1:]} deleted."
