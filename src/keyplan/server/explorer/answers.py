"""What the pages show, as data: each is rendered as HTML, or given as JSON. Links are paths on this server."""

from typing import Annotated, Any

from msgspec import Meta, Struct

__all__ = [
    "Amount",
    "AreaPage",
    "Crumb",
    "DueEntryView",
    "FieldView",
    "ItemPlace",
    "ItemView",
    "KeyPage",
    "KeySpaceView",
    "LayoutLink",
    "LayoutView",
    "ListPage",
    "LivePage",
    "Overview",
    "OwnerView",
    "RawChild",
    "RawPage",
    "Reading",
    "ReportCellView",
    "ReportFactView",
    "ReportPage",
    "ReportSectionView",
    "ReportTableView",
    "RevealedPage",
    "Row",
    "Stored",
    "TreePage",
    "UnmanagedView",
    "ValueView",
]

_Hex = Annotated[str, Meta(description="Bytes in hexadecimal digits.")]
_Next = Annotated[str, Meta(description="The next page; empty on the last one.")]
_Cut = Annotated[bool, Meta(description="Whether the page ends early, because as much was read as a page may read.")]
_Shown = Annotated[str, Meta(description="Bytes as text, with \\xNN for what does not print.")]


class Crumb(Struct, kw_only=True):
    """A step on the way from the whole to what is looked at."""

    text: str
    href: str


class Amount(Struct, kw_only=True):
    """How many there are, counted up to a bound; `is_more` when there are more."""

    number: int
    is_more: bool


# ---- the whole, and areas ----------------------------------------------------------------------------------------------


class LayoutLink(Struct, kw_only=True):
    """A layout by which an area is read, and where its keys begin."""

    label: str
    name: str
    root: _Shown
    href: str


class KeySpaceView(Struct, kw_only=True):
    """A key space: whose it is, and how full.

    `keys` is counted now, up to a bound. `bytes_estimated` is that count times the mean size of its first entries.
    `kept_keys` and `kept_bytes` are the registry's own count of all, made at `counted_at`; null when it was never made.
    `full` is the greatest share of a quota that is used, as far as is known; null without a quota.
    """

    name: str
    application: str
    description: str
    state: str
    generation: int
    prefix: _Hex
    keys: Amount
    bytes_estimated: int
    kept_keys: int | None
    kept_bytes: int | None
    counted_at: str | None
    quota_keys: int | None
    quota_bytes: int | None
    full: float | None
    layouts: list[str]
    href: str


class UnmanagedView(Struct, kw_only=True):
    """Keys of the store that are in no key space and begin with the same bytes."""

    prefix: _Hex
    first_key: _Shown
    keys: Amount
    href: str


class Overview(Struct, kw_only=True):
    """The store: what keeps it, how far it is, by which layouts it is read, and who owns what of it.

    `registry_problem` says why the registry of key spaces cannot be read.
    """

    engine: str
    capabilities: list[str]
    revision: int
    keys: Amount
    whole_href: str
    raw_href: str
    layouts: list[LayoutLink]
    has_registry: bool
    registry_problem: str
    keyspaces: list[KeySpaceView]
    next: _Next
    unmanaged: list[UnmanagedView]
    has_more_unmanaged: bool


class ItemView(Struct, kw_only=True):
    """A table, index or counter of a layout. `of` is the table that an index points at.

    `number` is how many keys it has; of a counter the next number, None where that cannot be read.
    """

    name: str
    kind: str
    template: str
    of: str | None
    note: str
    number: Amount | None
    href: str
    live_href: str


class LayoutView(Struct, kw_only=True):
    """A layout with its items, and where its application's report is; empty where it has none."""

    label: str
    name: str
    root: _Shown
    version: int
    note: str
    items: list[ItemView]
    report_href: str


class AreaPage(Struct, kw_only=True):
    """An area: the whole store, or a key space."""

    area: str
    title: str
    crumbs: list[Crumb]
    revision: int
    keyspace: KeySpaceView | None
    layouts: list[LayoutView]
    raw_href: str
    raw_live_href: str


# ---- by meaning --------------------------------------------------------------------------------------------------------


class FieldView(Struct, kw_only=True):
    """A field of a key; `value` is null where it is not given. `href` leads to what lies behind this value."""

    name: str
    value: str | None
    href: str


class ItemPlace(Struct, kw_only=True):
    """A place in a table or index: its template, and the first fields of its keys.

    `is_narrowable` tells whether `starts_with` is possible for the field after them.
    """

    area: str
    layout: str
    item: str
    kind: str
    of: str | None
    template: str
    root: _Shown
    note: str
    crumbs: list[Crumb]
    fields: list[FieldView]
    starts_with: str
    is_narrowable: bool
    tree_href: str
    list_href: str
    live_href: str


class ValueView(Struct, kw_only=True):
    """One value of a field. `has_more` tells that the key goes on behind it; else `href` is the key's page."""

    value: str
    has_more: bool
    href: str


class TreePage(Struct, kw_only=True):
    """The values that one field of keys has."""

    place: ItemPlace
    revision: int
    field: str
    values: list[ValueView]
    next: _Next
    is_cut: _Cut


class Row(Struct, kw_only=True):
    """A record in a list; or an index entry and the record that it leads to.

    `summary` is the record on one line, cut where it is long. `problem` says why it cannot be read.
    """

    fields: list[str]
    key: _Shown
    href: str
    points_at: str | None
    points_at_href: str
    summary: str
    problem: str


class ListPage(Struct, kw_only=True):
    """Records, or index entries with the records that they lead to, in key order."""

    place: ItemPlace
    revision: int
    rows: list[Row]
    next: _Next
    is_cut: _Cut


class LivePage(Struct, kw_only=True):
    """Where changes are told as they are committed. `place` is null for raw keys below a prefix."""

    area: str
    place: ItemPlace | None
    prefix: _Shown
    crumbs: list[Crumb]
    revision: int
    stream: Annotated[str, Meta(description="Server-sent events; resumed by Last-Event-ID, or `after`.")]
    list_href: str


# ---- one key -----------------------------------------------------------------------------------------------------------


class DueEntryView(Struct, kw_only=True):
    """An index entry that a record should have, and how it is found."""

    index: str
    key: _Shown
    state: str
    is_present: bool
    href: str


class Reading(Struct, kw_only=True):
    """What one layout makes of a key, and of what is stored there.

    Of an unknown key `item` and `template` are the nearest, and `departs_at` is the number of bytes that agree with it.
    """

    layout: str
    kind: str
    is_known: bool
    item: str | None
    template: str | None
    fields: list[FieldView]
    departs_at: int | None
    record: Annotated[Any, Meta(description="The record in JSON; null when there is none, or `is_record_cut`.")]
    has_record: bool
    is_record_cut: bool
    problem: str
    entries: list[DueEntryView]
    points_at: _Shown | None
    points_at_href: str
    points_at_state: str | None
    next_number: int | None
    findings: list[str]
    tree_href: str
    live_href: str
    reveal_href: Annotated[str, Meta(description="Where its secrets are shown, by POST; empty for whoever may not.")]


class Stored(Struct, kw_only=True):
    """An entry as the engine has it. `value_text` and `value_hex` are its first bytes; `is_cut` when there are more.

    Of a record with secret fields neither is shown: the text is `***`.
    """

    revision: int
    create_revision: int
    version: int
    lease: int
    lease_ttl_seconds: float | None
    lease_seconds_left: float | None
    bytes: int
    value_text: _Shown
    value_hex: _Hex
    is_cut: bool


class OwnerView(Struct, kw_only=True):
    """Whose a key of the whole store is: `keyspace`, `system` (the registry) or `unmanaged`."""

    kind: str
    keyspace: str | None
    href: str


class RevealedPage(Struct, kw_only=True):
    """A record with its secrets in clear."""

    area: str
    key: _Shown
    hex: _Hex
    key_href: str
    layout: str
    item: str
    revision: int
    record: Annotated[Any, Meta(description="The record in JSON; null when `is_record_cut`.")]
    is_record_cut: bool


class KeyPage(Struct, kw_only=True):
    """A raw key: what it means by each layout that knows it, or by the nearest; and what is stored there."""

    area: str
    title: str
    crumbs: list[Crumb]
    key: _Shown
    hex: _Hex
    owner: OwnerView | None
    readings: list[Reading]
    stored: Stored | None
    previous_href: str
    next_href: str
    raw_live_href: str


# ---- raw keys ----------------------------------------------------------------------------------------------------------


class RawChild(Struct, kw_only=True):
    """A key, or all keys that go on with the same bytes up to a slash. `meaning` is what a layout says of a key."""

    text: _Shown
    hex: _Hex
    is_key: bool
    meaning: str
    href: str


class RawPage(Struct, kw_only=True):
    """Raw keys below a prefix, level by level of slashes."""

    area: str
    title: str
    crumbs: list[Crumb]
    prefix: _Shown
    hex: _Hex
    revision: int
    children: list[RawChild]
    next: _Next
    is_cut: _Cut
    live_href: str


# ---- reports -----------------------------------------------------------------------------------------------------------


class ReportCellView(Struct, kw_only=True):
    """A text of a report, whether somebody should look at it, and the page of the record that it tells of; empty for none."""

    text: str
    is_bad: bool
    href: str


class ReportFactView(Struct, kw_only=True):
    """Something about a section's subject."""

    name: str
    value: ReportCellView


class ReportTableView(Struct, kw_only=True):
    """A table of a section; each row has a cell for each column."""

    title: str
    columns: list[str]
    rows: list[list[ReportCellView]]


class ReportSectionView(Struct, kw_only=True):
    """One subject of a report."""

    title: ReportCellView
    facts: list[ReportFactView]
    tables: list[ReportTableView]


class ReportPage(Struct, kw_only=True):
    """What an application makes of the records of its layout, subject by subject."""

    area: str
    title: str
    note: str
    crumbs: list[Crumb]
    revision: int
    sections: list[ReportSectionView]
    next: _Next
