"""One raw key: its meaning by each layout, its record, the index entries that belong to it, what is stored, whose it is."""

import msgspec

from keyplan.codec import MASK, SecretCipher
from keyplan.engine import ALL_KEYS, NO_LEASE, Entry, KeyRange, Snapshot
from keyplan.errors import AccessDeniedError, NotFoundError
from keyplan.keyspace import OwnerKind
from keyplan.layout import (
    BoundLayout,
    Kind,
    Meaning,
    plain_value,
    readings_of,
    shown_key,
    text_of_value,
    word_of_value,
)
from keyplan.maintenance import EntryState, KeyExplanation, explain_key, lease_life
from keyplan.server.explorer.answers import DueEntryView, FieldView, KeyPage, OwnerView, Reading, RevealedPage, Stored
from keyplan.server.explorer.areas import Area, Areas
from keyplan.server.explorer.bounds import RECORD_BYTES_MAX, VALUE_BYTES_MAX
from keyplan.server.explorer.overview import item_of
from keyplan.server.explorer.raw_keys import raw_crumbs

__all__ = ["key_page", "revealed_page"]


def key_page(areas: Areas, area_name: str, raw_key: bytes, *, may_reveal: bool = False) -> KeyPage:
    """Return all that is known of a key, stored or not. Raises KeySpaceNotFoundError, KeySpaceDeletedError.

    `may_reveal`: with a way to the record's secrets in clear.
    """
    area = areas.named(area_name)
    found = readings_of(area.bounds, raw_key)
    explanations = [explain_key(area.engine, bound, raw_key, beside=_others(area, bound)) for bound, _ in found]
    readings = [
        _reading(area, bound, meaning, explanation, may_reveal=may_reveal)
        for (bound, meaning), explanation in zip(found, explanations, strict=True)
    ]
    with area.engine.snapshot() as snapshot:
        entry = explanations[0].entry if explanations else snapshot.get(raw_key)
        before, after = _neighbours(snapshot, raw_key)
    return KeyPage(
        area=area.name,
        title=area.title,
        crumbs=raw_crumbs(area, _parent(raw_key)),
        key=shown_key(raw_key),
        hex=raw_key.hex(),
        owner=_owner(areas, area, raw_key),
        readings=readings,
        stored=None if entry is None else _stored(area, entry, is_masked=areas.is_masked(area, raw_key)),
        previous_href="" if before is None else area.links.key(before),
        next_href="" if after is None else area.links.key(after),
        raw_live_href=area.links.raw_live(raw_key),
    )


def _others(area: Area, bound: BoundLayout) -> list[BoundLayout]:
    return [other for other in area.bounds if other is not bound]


def _parent(raw_key: bytes) -> bytes:
    """The bytes up to the last slash before the end, where these are text."""
    parent = raw_key[: raw_key[:-1].rfind(b"/") + 1]
    return parent if shown_key(parent).encode() == parent else b""


def _neighbours(snapshot: Snapshot, raw_key: bytes) -> tuple[bytes | None, bytes | None]:
    before = next(iter(snapshot.keys(KeyRange(b"", raw_key), limit=1, reverse=True)), None) if raw_key else None
    after = next(iter(snapshot.keys(KeyRange(raw_key + b"\x00", ALL_KEYS.end), limit=1)), None)
    return before, after


def _owner(areas: Areas, area: Area, raw_key: bytes) -> OwnerView | None:
    if area.keyspace is not None:
        return OwnerView(kind=OwnerKind.KEYSPACE.value, keyspace=area.name, href=area.links.area)
    owner = areas.owner_of(raw_key)
    if owner is None:
        return None
    if owner.keyspace is None:
        return OwnerView(kind=owner.kind.value, keyspace=None, href="")
    share = areas.of_keyspace(owner.keyspace)
    href = share.links.key(raw_key[len(owner.keyspace.raw_prefix) :])
    return OwnerView(kind=owner.kind.value, keyspace=owner.keyspace.name, href=href)


# ---- by a layout -------------------------------------------------------------------------------------------------------


def _reading(
    area: Area, bound: BoundLayout, meaning: Meaning, explanation: KeyExplanation, *, may_reveal: bool
) -> Reading:
    label, links = area.label_of(bound), area.links
    record, is_cut = _record(explanation)
    fields, words = _fields(area, bound, label, meaning)
    is_listed = meaning.kind in (Kind.RECORD, Kind.INDEX_ENTRY)
    item = str(meaning.item)
    has_secrets = explanation.has_record and bool(bound.tables[item].form.secrets)
    return Reading(
        layout=label,
        kind=meaning.kind.value,
        is_known=meaning.is_known and meaning.kind is not Kind.NAMESPACE,
        item=meaning.item,
        template=meaning.template,
        fields=fields,
        departs_at=None if meaning.is_known else meaning.position,
        record=record,
        has_record=explanation.has_record,
        is_record_cut=is_cut,
        problem=explanation.problem,
        entries=[
            DueEntryView(
                index=due.index,
                key=shown_key(due.raw_key),
                state=due.state.value,
                is_present=due.state is EntryState.PRESENT,
                href=links.key(due.raw_key),
            )
            for due in explanation.entries
        ],
        points_at=None if explanation.points_at is None else shown_key(explanation.points_at),
        points_at_href="" if explanation.points_at is None else links.key(explanation.points_at),
        points_at_state=None if explanation.pointed_at is None else explanation.pointed_at.value,
        next_number=explanation.next_number,
        findings=[str(finding) for finding in explanation.findings],
        tree_href=links.tree(label, item, words[:-1]) if is_listed and words else "",
        live_href=links.live(label, item, words) if is_listed else "",
        reveal_href=links.reveal(label, meaning.raw_key) if may_reveal and has_secrets else "",
    )


def _fields(area: Area, bound: BoundLayout, label: str, meaning: Meaning) -> tuple[list[FieldView], list[str]]:
    """The key's fields, each with a link to all that agree up to it; and the words that name them."""
    views: list[FieldView] = []
    words: list[str] = []
    if meaning.kind not in (Kind.RECORD, Kind.INDEX_ENTRY):
        return views, words
    fields = item_of(bound, str(meaning.item)).keys.template.fields
    for number, field in enumerate(fields):
        value = meaning.fields[field.name]
        words.append(word_of_value(field.element, value))
        is_last = number + 1 == len(fields)
        href = area.links.key(meaning.raw_key) if is_last else area.links.tree(label, str(meaning.item), words)
        views.append(FieldView(name=field.name, value=text_of_value(value), href=href))
    return views, words


def _record(explanation: KeyExplanation) -> tuple[object, bool]:
    return _shown(plain_value(explanation.record)) if explanation.has_record else (None, False)


def _shown(plain: object) -> tuple[object, bool]:
    """A record's JSON values, and whether it is too large to be shown so."""
    is_cut = len(msgspec.json.encode(plain)) > RECORD_BYTES_MAX
    return (None, True) if is_cut else (plain, False)


# ---- in clear ----------------------------------------------------------------------------------------------------------


def revealed_page(areas: Areas, area_name: str, label: str, raw_key: bytes, keys: SecretCipher | None) -> RevealedPage:
    """Return a record with its secrets in clear, opened with these keys where they are sealed.

    Raises KeySpaceNotFoundError, KeySpaceDeletedError, UnknownNameError; NotFoundError where no record with secrets stands,
    SecretKeyError, CorruptionError.
    """
    area = areas.named(area_name)
    bound = area.layout(label)
    meaning = bound.meaning(raw_key)
    seal = bound.tables[str(meaning.item)].sealed_by(keys) if meaning.kind is Kind.RECORD else None
    with area.engine.snapshot() as snapshot:
        entry = snapshot.get(raw_key)
    if seal is None or entry is None:
        raise NotFoundError(raw_key=raw_key.hex(), problem=f"{label} has no record with secrets there")
    record, is_cut = _shown(plain_value(seal.decode(raw_key, entry.value), reveals=True))
    return RevealedPage(
        area=area.name,
        key=shown_key(raw_key),
        hex=raw_key.hex(),
        key_href=area.links.key(raw_key),
        layout=label,
        item=seal.table,
        revision=entry.mod_revision,
        record=record,
        is_record_cut=is_cut,
    )


# ---- as it is stored ---------------------------------------------------------------------------------------------------


def _life_of(area: Area, lease: int) -> tuple[float | None, float | None]:
    """Return the life of a lease and what is left of it; None of one that is gone, or another's."""
    try:
        return (None, None) if lease == NO_LEASE else lease_life(area.engine, lease)
    except AccessDeniedError:
        return None, None


def _stored(area: Area, entry: Entry, *, is_masked: bool) -> Stored:
    shown = entry.value[:VALUE_BYTES_MAX]
    ttl_seconds, seconds_left = _life_of(area, entry.lease)
    return Stored(
        revision=entry.mod_revision,
        create_revision=entry.create_revision,
        version=entry.version,
        lease=entry.lease,
        lease_ttl_seconds=ttl_seconds,
        lease_seconds_left=seconds_left,
        bytes=len(entry.value),
        value_text=MASK if is_masked else shown_key(shown),
        value_hex="" if is_masked else shown.hex(),
        is_cut=len(entry.value) > len(shown),
    )
