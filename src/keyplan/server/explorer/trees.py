"""Tables and indexes by meaning: the values of a key's next field, and lists of records and index entries."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from keyplan.codec import Element
from keyplan.engine import Entry, Snapshot
from keyplan.errors import InvalidArgumentError, InvalidKeyError, KeyplanError
from keyplan.layout import (
    BoundIndex,
    BoundTable,
    line_of_value,
    plain_value,
    prefix_of_words,
    shown_key,
    text_of_value,
    value_of_text,
    word_of_value,
)
from keyplan.server.explorer.answers import Crumb, FieldView, ItemPlace, ListPage, Row, TreePage, ValueView
from keyplan.server.explorer.areas import Area, Areas
from keyplan.server.explorer.bounds import LIMIT_DEFAULT, READS_MAX, SUMMARY_CHARACTERS_MAX
from keyplan.server.explorer.overview import area_crumbs, kind_of
from keyplan.store import ItemKeyPage, item_key_page, level_page

__all__ = ["ItemRequest", "list_page", "place_of", "tree_page"]


class ItemRequest(NamedTuple):
    """Which item of which layout is asked for, narrowed by the first fields of its keys; and which page of it."""

    area: str
    layout: str
    item: str
    words: Sequence[str] = ()
    starts_with: str = ""
    page: str = ""
    limit: int = 0


class _Opened(NamedTuple):
    """What was asked for, found."""

    area: Area
    item: BoundTable | BoundIndex
    prefix: tuple[Any, ...]
    starts_with: object


def tree_page(areas: Areas, asked: ItemRequest) -> TreePage:
    """Return the values of the field after those given.

    Raises UnknownNameError, InvalidKeyError, InvalidPageTokenError, InvalidArgumentError when the key is whole.
    """
    opened = _opened(areas, asked)
    area, item, prefix, starts_with = opened
    fields = item.keys.template.fields
    if len(prefix) == len(fields):
        raise InvalidArgumentError(argument="field", problem="the key is whole; there is no field behind it")
    field = fields[len(prefix)]
    with area.engine.snapshot() as snapshot:
        revision = snapshot.revision
        found = level_page(
            item,
            prefix,
            snapshot,
            starts_with=starts_with,
            limit=asked.limit,
            token=asked.page,
            reads_max=READS_MAX,
        )
    values = []
    for level in found.levels:
        words = [*asked.words, word_of_value(field.element, level.value)]
        key_prefix = item.keys.prefix((*prefix, level.value))
        href = area.links.tree(asked.layout, asked.item, words) if level.has_more else area.links.key(key_prefix)
        values.append(ValueView(value=text_of_value(level.value), has_more=level.has_more, href=href))
    following = area.links.tree(
        asked.layout,
        asked.item,
        asked.words,
        starts_with=asked.starts_with,
        page=found.next_token,
        limit=_limit_word(asked.limit),
    )
    return TreePage(
        place=_place(opened, asked),
        revision=revision,
        field=field.name,
        values=values,
        next=following if found.next_token else "",
        is_cut=found.is_cut,
    )


def list_page(areas: Areas, asked: ItemRequest) -> ListPage:
    """Return records, or index entries with their records. Raises UnknownNameError, InvalidKeyError, InvalidPageTokenError."""
    opened = _opened(areas, asked)
    area, item, prefix, starts_with = opened
    with area.engine.snapshot() as snapshot:
        revision = snapshot.revision
        found = item_key_page(
            item,
            prefix,
            snapshot,
            starts_with=starts_with,
            limit=asked.limit,
            token=asked.page,
            reads_max=READS_MAX,
        )
        rows = (
            _index_rows(area, item, found, snapshot)
            if isinstance(item, BoundIndex)
            else _rows(area, item, found, snapshot)
        )
    following = area.links.entries(
        asked.layout,
        asked.item,
        asked.words,
        starts_with=asked.starts_with,
        page=found.next_token,
        limit=_limit_word(asked.limit),
    )
    return ListPage(
        place=_place(opened, asked),
        revision=revision,
        rows=rows,
        next=following if found.next_token else "",
        is_cut=found.is_cut,
    )


def place_of(areas: Areas, asked: ItemRequest) -> tuple[Area, ItemPlace]:
    """Return what was asked for. Raises UnknownNameError, InvalidKeyError."""
    opened = _opened(areas, asked)
    return opened.area, _place(opened, asked)


def _limit_word(limit: int) -> str:
    """How the next page is asked for as many lines."""
    return "" if limit == LIMIT_DEFAULT else str(limit)


# ---- rows --------------------------------------------------------------------------------------------------------------


def _rows(area: Area, table: BoundTable, found: ItemKeyPage, snapshot: Snapshot) -> list[Row]:
    entries = snapshot.get_many([raw_key for raw_key, _ in found.keys])
    return [
        _row(area, table, raw_key, table.keys.shape.split(key), entry)
        for (raw_key, key), entry in zip(found.keys, entries, strict=True)
    ]


def _index_rows(area: Area, index: BoundIndex, found: ItemKeyPage, snapshot: Snapshot) -> list[Row]:
    raw_keys = [raw_key for raw_key, _ in found.keys]
    values = snapshot.values(raw_keys) if index.spec.is_unique else [b""] * len(raw_keys)
    primaries = [_raw_primary(index, raw_key, value or b"") for raw_key, value in zip(raw_keys, values, strict=True)]
    wanted = [primary for primary in primaries if primary is not None]
    records = dict(zip(wanted, snapshot.get_many(wanted), strict=True))
    rows = []
    for (raw_key, key), primary in zip(found.keys, primaries, strict=True):
        entry = None if primary is None else records[primary]
        row = _row(area, index.table, raw_key, index.keys.shape.split(key), entry)
        if primary is None:
            row.problem = "the entry names no record"
        else:
            row.points_at, row.points_at_href = shown_key(primary), area.links.key(primary)
            row.problem = row.problem or ("" if entry is not None else "there is no such record")
        rows.append(row)
    return rows


def _raw_primary(index: BoundIndex, raw_key: bytes, value: bytes) -> bytes | None:
    key = index.primary_of(raw_key, value)
    return None if key is None else index.table.keys.encode(key)


def _row(area: Area, table: BoundTable, raw_key: bytes, fields: Sequence[object], entry: Entry | None) -> Row:
    summary, problem = "", ""
    if entry is not None:
        try:
            summary = line_of_value(plain_value(table.form.decode(entry.value)))
        except KeyplanError as error:
            problem = str(error)
    if len(summary) > SUMMARY_CHARACTERS_MAX:
        summary = summary[: SUMMARY_CHARACTERS_MAX - 1] + "…"
    return Row(
        fields=[text_of_value(value) for value in fields],
        key=shown_key(raw_key),
        href=area.links.key(raw_key),
        points_at=None,
        points_at_href="",
        summary=summary,
        problem=problem,
    )


# ---- places ------------------------------------------------------------------------------------------------------------


def _opened(areas: Areas, asked: ItemRequest) -> _Opened:
    area = areas.named(asked.area)
    item = area.listable(asked.layout, asked.item)
    prefix = prefix_of_words(item.keys, asked.words)
    if not asked.starts_with:
        return _Opened(area, item, prefix, None)
    fields = item.keys.template.fields
    if len(prefix) == len(fields):
        raise InvalidKeyError(problem="there is no field after the prefix to narrow")
    return _Opened(area, item, prefix, value_of_text(fields[len(prefix)].element, asked.starts_with))


def _place(opened: _Opened, asked: ItemRequest) -> ItemPlace:
    area, item, prefix, _ = opened
    links, words = area.links, list(asked.words)
    names = item.keys.template.field_names
    crumbs = [
        *area_crumbs(area),
        Crumb(
            text=asked.item,
            href=links.tree(asked.layout, asked.item) if names else links.entries(asked.layout, asked.item),
        ),
    ]
    fields = []
    for number, name in enumerate(names):
        if number >= len(prefix):
            fields.append(FieldView(name=name, value=None, href=""))
            continue
        value = text_of_value(prefix[number])
        behind = words[: number + 1]
        is_whole = number + 1 == len(names)
        href = links.key(item.keys.prefix(prefix)) if is_whole else links.tree(asked.layout, asked.item, behind)
        fields.append(FieldView(name=name, value=value, href=href))
        crumbs.append(Crumb(text=value, href=href))
    is_whole = len(prefix) == len(names)
    return ItemPlace(
        area=area.name,
        layout=asked.layout,
        item=asked.item,
        kind=kind_of(item),
        of=item.table.name if isinstance(item, BoundIndex) else None,
        template=item.spec.template.plain,
        root=shown_key(_layout_root(item)),
        note=item.spec.note,
        crumbs=crumbs,
        fields=fields,
        starts_with=asked.starts_with,
        is_narrowable=not is_whole and _is_narrowable(item.keys.template.fields[len(prefix)].element),
        tree_href="" if is_whole else links.tree(asked.layout, asked.item, words),
        list_href=links.entries(asked.layout, asked.item, words),
        live_href=links.live(asked.layout, asked.item, words),
    )


def _is_narrowable(element: Element[Any]) -> bool:
    try:
        element.encode_start("" if issubclass(element.value_type, str) else b"")
    except InvalidKeyError:
        return False
    return True


def _layout_root(item: BoundTable | BoundIndex) -> bytes:
    return (item.table if isinstance(item, BoundIndex) else item).layout.root
