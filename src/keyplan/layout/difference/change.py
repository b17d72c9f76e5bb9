"""A layout change: one way in which a layout differs from its earlier self, what it does, and what is to be done."""

from dataclasses import dataclass
from enum import Enum
from typing import Final

from keyplan.layout.rules.finding import abridged

__all__ = ["CHANGE_CODES", "Impact", "LayoutChange"]


class Impact(Enum):
    """What a change does to programs of both layouts and to what is stored. From the least to the most."""

    COMPATIBLE = "compatible"
    """Programs of both layouts read and write the same store, in any order of deployment. Nothing is to be done."""

    READERS_FIRST = "readers-first"
    """Every program that reads must have the new layout before the first one that writes has it."""

    WRITERS_FIRST = "writers-first"
    """Every program that writes must have the new layout before any program relies on the change."""

    BUILD = "build"
    """An index must be built, after every program that writes has the new layout and before any reads it."""

    REWRITE = "rewrite"
    """Stored keys or values must be written anew. Nothing is lost."""

    BREAKING = "breaking"
    """It cannot be done without loss, or not by keyplan; the message says why."""

    @property
    def rank(self) -> int:
        """Where the class stands from the least to the most."""
        return list(Impact).index(self)


CHANGE_CODES: Final = {
    "E1": "the layout has another name or version number",
    "E2": "the root spells other keys",
    "E3": "an item has another name",
    "E4": "a table is new",
    "E5": "a table is gone",
    "E6": "the keys of a table are spelled otherwise",
    "E7": "the fields of a table's keys have other names, and the same bytes",
    "E8": "values are stored in another form",
    "E9": "a field of records is new",
    "E10": "a field of records is gone",
    "E11": "a field of records has another type",
    "E12": "an index is new",
    "E13": "an index is gone",
    "E14": "the entries of an index are other ones",
    "E15": "a table's records hang on leases, or do no longer",
    "E16": "a counter is new, gone, elsewhere, or starts otherwise",
    "E17": "a ring places the records otherwise",
    "E18": "other places in values hold whole keys",
    "E19": "a key of the new layout is one of something else in the old layout",
    "E20": "a field of records has another default",
    "E21": "a field of records is secret, or is no longer",
    "E22": "secrets are sealed as those of another layout or table, or no longer",
    "E23": "the keys of a table have more fields, fewer, or some that were split or joined",
}
"""The codes never change their meaning: they stand in scripts."""

_OF_VALUES: Final = frozenset({"E8", "E9", "E10", "E11", "E20"})


@dataclass(frozen=True, slots=True)
class LayoutChange:
    """One change: its code, the item that it is about (empty: the layout), its impact, what changed, and what to do.

    `item` is the new layout's name of it, or the old one's of what is gone; `field` the field of keys or records, dotted. A key
    that shows the change is its `witness`, `second` the key that the same record gets, where there is one.

    `loses_values`: the new layout has no place for what stored records hold in the field, and reads them all the same: the
    values are gone when a record is written again, by a migration or by a program. False once the field is named in `drops`.
    `renamed_to`: new fields beside it of the same type, or new tables like it, one of which may be the same under another
    name. `key_fields_gone` and `key_fields_new` are those of E23.
    """

    code: str
    item: str
    impact: Impact
    message: str
    advice: str
    field: str = ""
    witness: bytes | None = None
    second: bytes | None = None
    loses_values: bool = False
    renamed_to: tuple[str, ...] = ()
    key_fields_gone: tuple[str, ...] = ()
    key_fields_new: tuple[str, ...] = ()

    @property
    def subject(self) -> str:
        """The item, with the field where it is about one."""
        return f"{self.item}.{self.field}" if self.field else self.item or "layout"

    @property
    def rewrites_values(self) -> bool:
        """Whether the values of a table have to be written anew; `item` is the table."""
        return self.code in _OF_VALUES and self.impact is Impact.REWRITE

    def __str__(self) -> str:
        keys = ", ".join(abridged(key) for key in (self.witness, self.second) if key is not None)
        shown = f" [{keys}]" if keys else ""
        return f"{self.code} {self.impact.value} {self.subject}: {self.message}{shown}; {self.advice}"
