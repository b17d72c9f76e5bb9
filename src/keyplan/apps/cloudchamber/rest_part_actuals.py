"""Actual states of blades, PDUs and TORs over HTTP: what a simulator says of them, beside their definitions.

The original makes such values up. Here a simulator writes them, often and alone: If-Match may be left out, and without it a
write replaces whatever is there. A rack's view shows them as `observed`.
"""

from typing import Any, Final

from keyplan.apps.cloudchamber.conditions import ANY
from keyplan.apps.cloudchamber.inventory_parts import Part, PartKind
from keyplan.apps.cloudchamber.records import PartActual
from keyplan.apps.cloudchamber.refusals import RefusedError
from keyplan.apps.cloudchamber.rest_definitions import (
    IfSeen,
    Number,
    can_be,
    in_words,
    missing,
    named,
    numbered,
)
from keyplan.apps.cloudchamber.rest_routes import Resource, Who, etag, rest
from keyplan.apps.cloudchamber.rest_stored import ONE_RACK, WRITES, read_row
from keyplan.apps.cloudchamber.rest_words import Name
from keyplan.operations import Answered, Change, Whole

__all__ = ["PartActuals"]

_BLADE: Final = f"{ONE_RACK}/blades/{{number}}/actual"
_PDU: Final = f"{ONE_RACK}/pdus/{{number}}/actual"
_TOR: Final = f"{ONE_RACK}/tors/{{number}}/actual"

_READ: Final[dict[str, Any]] = {"headers": {"ETag": "what a change of it may say in If-Match"}}
_WRITE: Final[dict[str, Any]] = {**_READ, **WRITES}


class PartActuals(Resource):
    """The operations on actual states."""

    @rest("GET", _BLADE, Who.LOGGED_IN, 404, 500, **_READ)
    def read_blade(self, rack: Name, number: Number) -> Answered[PartActual]:
        """Read what a simulator says of a blade."""
        return self._read(numbered(PartKind.BLADE, rack, number))

    @rest(
        "PUT",
        _BLADE,
        Who.INVENTORY_MODIFIER,
        404,
        412,
        413,
        **_WRITE,
        change=Change("set blade actual", "{rack}/blades/{number}"),
    )
    def write_blade(
        self, rack: Name, number: Number, record: Whole[PartActual], *, seen: IfSeen = None
    ) -> Answered[PartActual]:
        """Say what a blade is, in place of what was said before."""
        return self._write(numbered(PartKind.BLADE, rack, number), record, seen)

    @rest(
        "DELETE",
        _BLADE,
        Who.INVENTORY_MODIFIER,
        404,
        412,
        change=Change("delete blade actual", "{rack}/blades/{number}"),
    )
    def delete_blade(self, rack: Name, number: Number, *, seen: IfSeen = None) -> str:
        """Delete what was said of a blade."""
        return self._delete(numbered(PartKind.BLADE, rack, number), seen)

    @rest("GET", _PDU, Who.LOGGED_IN, 404, 500, **_READ)
    def read_pdu(self, rack: Name, number: Number) -> Answered[PartActual]:
        """Read what a simulator says of a PDU."""
        return self._read(numbered(PartKind.PDU, rack, number))

    @rest(
        "PUT",
        _PDU,
        Who.INVENTORY_MODIFIER,
        404,
        412,
        413,
        **_WRITE,
        change=Change("set pdu actual", "{rack}/pdus/{number}"),
    )
    def write_pdu(
        self, rack: Name, number: Number, record: Whole[PartActual], *, seen: IfSeen = None
    ) -> Answered[PartActual]:
        """Say what a PDU is, in place of what was said before."""
        return self._write(numbered(PartKind.PDU, rack, number), record, seen)

    @rest("DELETE", _PDU, Who.INVENTORY_MODIFIER, 404, 412, change=Change("delete pdu actual", "{rack}/pdus/{number}"))
    def delete_pdu(self, rack: Name, number: Number, *, seen: IfSeen = None) -> str:
        """Delete what was said of a PDU."""
        return self._delete(numbered(PartKind.PDU, rack, number), seen)

    @rest("GET", _TOR, Who.LOGGED_IN, 404, 500, **_READ)
    def read_tor(self, rack: Name, number: Number) -> Answered[PartActual]:
        """Read what a simulator says of a TOR."""
        return self._read(numbered(PartKind.TOR, rack, number))

    @rest(
        "PUT",
        _TOR,
        Who.INVENTORY_MODIFIER,
        404,
        412,
        413,
        **_WRITE,
        change=Change("set tor actual", "{rack}/tors/{number}"),
    )
    def write_tor(
        self, rack: Name, number: Number, record: Whole[PartActual], *, seen: IfSeen = None
    ) -> Answered[PartActual]:
        """Say what a TOR is, in place of what was said before."""
        return self._write(numbered(PartKind.TOR, rack, number), record, seen)

    @rest("DELETE", _TOR, Who.INVENTORY_MODIFIER, 404, 412, change=Change("delete tor actual", "{rack}/tors/{number}"))
    def delete_tor(self, rack: Name, number: Number, *, seen: IfSeen = None) -> str:
        """Delete what was said of a TOR."""
        return self._delete(numbered(PartKind.TOR, rack, number), seen)

    # ---- all -------------------------------------------------------------------------------------------------------------

    def _read(self, part: Part) -> Answered[Any]:
        row = self.web.rack_writer.find_actual(part) if can_be(part) else None
        if row is None:
            raise self._none(part)
        return read_row(row)

    def _write(self, part: Part, record: PartActual, seen: IfSeen) -> Answered[PartActual]:
        if not can_be(part):
            raise missing(part)
        with in_words(part, _subject(part)):
            written = self.web.rack_writer.write_actual(part, record, seen or ANY)
        return Answered(written.record, headers=etag(written.revision))

    def _delete(self, part: Part, seen: IfSeen) -> str:
        # Why looked for first: what is not there is not found, whatever was expected of it.
        if not can_be(part) or self.web.rack_writer.find_actual(part) is None:
            raise self._none(part)
        with in_words(part, _subject(part)):
            self.web.rack_writer.delete_actual(part, seen or ANY)
        return f"The {_subject(part)} deleted."

    def _none(self, part: Part) -> RefusedError:
        if not can_be(part) or self.web.rack_writer.find(part) is None:
            return missing(part)
        return RefusedError(404, f"{named(part)} has no actual state")


def _subject(part: Part) -> str:
    return f"actual state of {named(part)}"
