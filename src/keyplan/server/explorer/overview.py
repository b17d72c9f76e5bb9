"""The first page and those of areas: who owns what, and how full it is. All counts are bounded, and say so."""

from contextlib import suppress
from itertools import islice

from keyplan.engine import ALL_KEYS, Engine, KeyRange, Snapshot
from keyplan.errors import CorruptionError, KeySpaceError
from keyplan.keyspace import KeySpace, Unmanaged
from keyplan.layout import BoundCounter, BoundIndex, BoundLayout, BoundTable, ItemSpec, shown_key
from keyplan.server.explorer.answers import (
    Amount,
    AreaPage,
    Crumb,
    ItemView,
    KeySpaceView,
    LayoutLink,
    LayoutView,
    Overview,
    UnmanagedView,
)
from keyplan.server.explorer.areas import Area, Areas
from keyplan.server.explorer.bounds import (
    BYTES_SAMPLE_ENTRIES,
    COUNT_MAX,
    KEYSPACES_LIMIT,
    READS_MAX,
    UNMANAGED_MAX,
)
from keyplan.server.explorer.layouts import ShownLayout
from keyplan.server.explorer.links import overview_link
from keyplan.server.reports import report_of
from keyplan.store import item_key_page

__all__ = ["area_crumbs", "area_page", "overview"]


def overview(areas: Areas, page: str) -> Overview:
    """Return the store as a whole, with one page of its key spaces. Raises InvalidArgumentError for the page's token."""
    engine = areas.engine
    whole = areas.whole()
    has_registry = areas.registry.is_there()
    views: list[KeySpaceView] = []
    strangers: list[Unmanaged] = []
    next_page, problem = "", ""
    if has_registry:
        try:
            views, next_page = _keyspaces(areas, page)
            strangers = list(islice(areas.unmanaged(), UNMANAGED_MAX + 1))
        except CorruptionError as error:
            problem = str(error)
    with engine.snapshot() as snapshot:
        revision, keys = snapshot.revision, _amount(snapshot, ALL_KEYS)
    return Overview(
        engine=engine.profile.name,
        capabilities=sorted(capability.value for capability in engine.profile.capabilities),
        revision=revision,
        keys=keys,
        whole_href=whole.links.area,
        raw_href=whole.links.raw(),
        layouts=[_layout_link(whole, shown) for shown in whole.layouts],
        has_registry=has_registry,
        registry_problem=problem,
        keyspaces=views,
        next=overview_link(next_page) if next_page else "",
        unmanaged=[
            UnmanagedView(
                prefix=one.prefix.hex(),
                first_key=shown_key(one.first_key),
                keys=Amount(number=one.keys, is_more=one.is_more),
                href=whole.links.raw(one.prefix),
            )
            for one in strangers[:UNMANAGED_MAX]
        ],
        has_more_unmanaged=len(strangers) > UNMANAGED_MAX,
    )


def area_page(areas: Areas, name: str) -> AreaPage:
    """Return an area with its layouts and their items. Raises KeySpaceNotFoundError, KeySpaceDeletedError."""
    area = areas.named(name)
    with area.engine.snapshot() as snapshot:
        revision = snapshot.revision
        layouts = [_layout_view(area, shown, snapshot) for shown in area.layouts]
    return AreaPage(
        area=name,
        title=area.title,
        crumbs=area_crumbs(area),
        revision=revision,
        keyspace=None if area.keyspace is None else _keyspace_view(areas, area, area.keyspace),
        layouts=layouts,
        raw_href=area.links.raw(),
        raw_live_href=area.links.raw_live(),
    )


def area_crumbs(area: Area) -> list[Crumb]:
    """The way to an area."""
    return [Crumb(text="store", href=overview_link()), Crumb(text=area.title, href=area.links.area)]


# ---- key spaces --------------------------------------------------------------------------------------------------------


def _keyspaces(areas: Areas, page: str) -> tuple[list[KeySpaceView], str]:
    found = areas.registry.page(page, limit=KEYSPACES_LIMIT)
    views: list[KeySpaceView] = []
    for keyspace in found.keyspaces:
        # Why passed over: it was deleted, or is granted no more, since the list was read; all others are shown.
        with suppress(KeySpaceError):
            views.append(_keyspace_view(areas, areas.of_keyspace(keyspace), keyspace))
    return views, found.next_page_token


def _keyspace_view(areas: Areas, area: Area, keyspace: KeySpace) -> KeySpaceView:
    keys, bytes_estimated = _size(area.engine)
    kept, quota = areas.registry.figures_of(keyspace)
    quota_keys, quota_bytes = (None, None) if quota is None else (quota.keys, quota.bytes)
    shares = [
        (keys.number if kept is None else max(kept.keys, keys.number), quota_keys),
        (bytes_estimated if kept is None else kept.bytes, quota_bytes),
    ]
    return KeySpaceView(
        name=keyspace.name,
        application=keyspace.application,
        description=keyspace.description,
        state=keyspace.state.value,
        generation=keyspace.generation,
        prefix=keyspace.prefix,
        keys=keys,
        bytes_estimated=bytes_estimated,
        kept_keys=None if kept is None else kept.keys,
        kept_bytes=None if kept is None else kept.bytes,
        counted_at=None if kept is None else kept.counted_at,
        quota_keys=quota_keys,
        quota_bytes=quota_bytes,
        full=max((used / most if most else 1.0 for used, most in shares if most is not None), default=None),
        layouts=[shown.label for shown in area.layouts],
        href=area.links.area,
    )


def _size(engine: Engine) -> tuple[Amount, int]:
    """How many keys there are, up to the bound, and about how many bytes they have with their values."""
    with engine.snapshot() as snapshot:
        keys = _amount(snapshot, ALL_KEYS)
        first = list(snapshot.scan(ALL_KEYS, limit=BYTES_SAMPLE_ENTRIES))
    if not first:
        return keys, 0
    sampled = sum(len(entry.key) + len(entry.value) for entry in first)
    return keys, round(keys.number * sampled / len(first))


def _amount(snapshot: Snapshot, key_range: KeyRange) -> Amount:
    number = sum(1 for _ in snapshot.scan(key_range, limit=COUNT_MAX + 1, keys_only=True))
    return Amount(number=min(number, COUNT_MAX), is_more=number > COUNT_MAX)


# ---- layouts -----------------------------------------------------------------------------------------------------------


def _layout_link(area: Area, shown: ShownLayout) -> LayoutLink:
    return LayoutLink(
        label=shown.label,
        name=shown.bound.name,
        root=shown_key(shown.bound.root),
        href=f"{area.links.area}#{shown.label}",
    )


def _layout_view(area: Area, shown: ShownLayout, snapshot: Snapshot) -> LayoutView:
    spec = shown.bound.spec
    items = [_item_view(area, shown, item, snapshot) for item in spec.items]
    root = shown_key(shown.bound.root)
    return LayoutView(
        label=shown.label,
        name=spec.name,
        root=root,
        version=spec.version,
        note=spec.note,
        items=items,
        report_href="" if report_of(shown.bound) is None else area.links.report(shown.label),
    )


def _item_view(area: Area, shown: ShownLayout, spec: ItemSpec, snapshot: Snapshot) -> ItemView:
    bound, links = shown.bound, area.links
    counter = bound.counters.get(spec.name)
    if counter is not None:
        return ItemView(
            name=spec.name,
            kind="counter",
            template=spec.template.plain,
            of=None,
            note=spec.note,
            number=_next_number(counter, snapshot),
            href=links.key(counter.raw_key),
            live_href=links.raw_live(counter.raw_key),
        )
    item = item_of(bound, spec.name)
    counted = item_key_page(item, (), snapshot, limit=COUNT_MAX, reads_max=READS_MAX)
    has_fields = bool(item.keys.template.fields)
    return ItemView(
        name=spec.name,
        kind=kind_of(item),
        template=spec.template.plain,
        of=item.table.name if isinstance(item, BoundIndex) else None,
        note=spec.note,
        number=Amount(number=len(counted.keys), is_more=bool(counted.next_token)),
        href=links.tree(shown.label, spec.name) if has_fields else links.key(item.keys.prefix(())),
        live_href=links.live(shown.label, spec.name),
    )


def _next_number(counter: BoundCounter, snapshot: Snapshot) -> Amount | None:
    """The number that a counter hands out next, as `keyplan ls` shows it. None: what is stored cannot be read."""
    entry = snapshot.get(counter.raw_key)
    try:
        return Amount(number=counter.start if entry is None else counter.decode(entry.value), is_more=False)
    except CorruptionError:
        return None


def item_of(bound: BoundLayout, name: str) -> BoundTable | BoundIndex:
    """Return a table or index that is known to be there."""
    return bound.tables[name] if name in bound.tables else bound.indexes[name]


def kind_of(item: BoundTable | BoundIndex) -> str:
    """What an item is called."""
    if isinstance(item, BoundTable):
        return "table"
    return "unique" if item.spec.is_unique else "index"
