"""Acts beside migrations of tests/maintenance/goods.py: programs of both layouts, runs, people; and what ends every story."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import msgspec

from keyplan.engine import KeyRange
from keyplan.errors import MigrationRefusedError
from keyplan.jobs import UNPACED
from keyplan.layout import BoundTable
from keyplan.maintenance import (
    Contest,
    MigrationPlan,
    check,
    clean_up_migration,
    migrate,
    roll_back_migration,
)
from keyplan.store import Backoff, Store
from tests.maintenance.goods import Good, Goods, Held, Stock, Way, raw_name
from tests.maintenance.layouts import dump
from tests.schedules.migration_audit import MIGRATION, PERSON, ROLLBACK

__all__ = ["NO_WAIT", "OLD_WRITERS", "Labels", "Story", "decided", "ended", "new_writers"]

Act = Callable[[Store], object]
Labels = dict[int, str]
"""Who wrote a revision."""

NO_WAIT: Final = Backoff(sleep=lambda _: None)

# ---- programs of the old layout ------------------------------------------------------------------------------------------


def _swap(store: Store) -> None:
    """Two goods exchange what only one may have."""
    with store.transaction() as transaction:
        goods = Goods(transaction).goods
        goods.put("a", Good(1, "elsewhere", "x", []))
        goods.put("b", Good(2, "A", "y", ["p"]))
        goods.put("a", Good(1, "B", "x", ["q", "s"]))


def _hold(store: Store, seconds: int) -> None:
    lease = store.lease(seconds, keep_alive=False)
    held = Held(store).labels
    held.put("a", msgspec.structs.replace(held.require("a"), price=3), lease=lease)


def _revoke(store: Store) -> None:
    with store.engine.snapshot() as snapshot:
        entry = snapshot.get(b"/g/goods/a")
    if entry is not None:
        store.engine.lease(60, resume=entry.lease).revoke()


OLD_WRITERS: Final[Mapping[str, Act]] = {
    "put": lambda store: Goods(store).goods.put("a", Good(3, "A", "x", ["p", "t"])),
    "rekind": lambda store: Goods(store).goods.put("a", Good(1, "A", "z", ["p"])),
    "shrink": lambda store: Goods(store).goods.put("b", Good(2, "B", "y", ["s"])),
    "recode": lambda store: Goods(store).goods.put("a", Good(1, "C", "x", ["u"])),
    "swap": _swap,
    "insert": lambda store: Goods(store).goods.insert("c", Good(5, "E", "x", ["E"])),
    "delete": lambda store: Goods(store).goods.delete("a"),
    "stock": lambda store: Goods(store).stocks.put("a", Stock(9)),
    "unstock": lambda store: Goods(store).stocks.delete("b"),
    "hold": partial(_hold, seconds=60),
    "hold longer": partial(_hold, seconds=600),
    "let go": lambda store: Held(store).labels.delete("a"),
    "revoke": _revoke,
}


# ---- programs of the new layout ------------------------------------------------------------------------------------------


def new_writers(way: Way) -> Mapping[str, Act]:
    """What programs of the new layout do: to a record that was carried over, to one of their own, to a unique name."""

    def table(store: Store) -> Any:
        return getattr(way.new(store), way.table)

    def changed(**fields: Any) -> Act:
        return lambda store: table(store).modify(way.key("a"), lambda old: msgspec.structs.replace(old, **fields))

    def inserted(name: str, price: int, code: str) -> Act:
        lease = {"lease": True} if way.old is Held else {}

        def insert(store: Store) -> None:
            options = {"lease": store.lease(60, keep_alive=False)} if lease else {}
            table(store).insert(way.key(name), way.other(price, code), **options)

        return insert

    return {
        "new change": changed(price=7700),
        "new recode": changed(**{way.code: "N"}),
        "new insert": inserted("d", 8800, "D"),
        "new insert of a taken code": inserted("d", 8800, "E"),
        "new insert of a": inserted("a", 9900, "F"),
        "new delete": lambda store: table(store).delete(way.key("a")),
    }


# ---- people, and the end of every story -------------------------------------------------------------------------------


def decided(store: Store, way: Way, contests: Sequence[Contest]) -> None:
    """Somebody decides: the old records hold; who claims a name that is taken gets another one."""
    names = {contest.old_key.decode().split("/")[3]: contest.reason for contest in contests}
    for name, reason in names.items():
        if "holds its entry" in reason:
            _renamed(store, way, name)
    with store.engine.snapshot() as snapshot:
        stored = {entry.key: entry for entry in snapshot.scan(KeyRange.of_prefix(b"/g/"))}
    table = way.new.bound().tables[way.table]
    with store.transaction() as transaction:
        writes = getattr(way.new(transaction), way.table)
        puts: list[tuple[Any, Any, int]] = []
        for name in [name for name, reason in names.items() if "holds its entry" not in reason]:
            old = {place: entry for place in way.sources if (entry := stored.get(f"/g/{place}/{name}".encode()))}
            made = way.made(name, {place: json.loads(entry.value) for place, entry in old.items()})
            lease = next((entry.lease for entry in old.values()), 0)
            for raw_key in stored:
                if raw_name(raw_key, way.target, way.name_at) == name:
                    writes.delete(table.keys.decode(raw_key))
            puts += [(table.keys.decode(key), _typed(table, record), lease) for key, record in made.items()]
        for key, record, lease in puts:  # Why now: two may exchange a unique name.
            writes.put(key, record, lease=lease)


def _typed(table: BoundTable, record: Any) -> Any:
    return table.form.decode(json.dumps(record).encode())


def _renamed(store: Store, way: Way, name: str) -> None:
    layout = way.new if way.is_in_place else Goods
    goods: Any = layout(store)
    goods.goods.modify(name, lambda old: msgspec.structs.replace(old, code=f"Z{name}", parts=[f"z{name}"]))


@dataclass
class Story:
    """What was done in a scenario's set-up, and by whom; and a plan that was made at its beginning."""

    way: Way
    labels: Labels = field(default_factory=dict)
    plan: MigrationPlan | None = None
    second: MigrationPlan | None = None

    def does(self, store: Store, label: str, act: Act) -> Any:
        """Do something in somebody's name."""
        return _as(self.labels, store, label, act)

    def planned(self) -> MigrationPlan:
        """The plan of the set-up."""
        assert self.plan is not None
        return self.plan


_CONSENTS: Final = tuple(f"{what}:{table}" for what in ("lose", "gone") for table in ("goods", "wares", "labels"))

_STANDING: Final = re.compile(r"(/g/\S+): another record stands at its new key")


def _as(labels: Labels, store: Store, label: str, act: Act) -> Any:
    first = _revision(store)
    try:
        return act(store)
    finally:
        labels.update(dict.fromkeys(range(first + 1, _revision(store) + 1), label))


def _revision(store: Store) -> int:
    with store.engine.snapshot() as snapshot:
        return snapshot.revision


def ended(
    store: Store,
    way: Way,
    labels: Labels,
    *,
    label: str = MIGRATION,
    accepts: tuple[str, ...] = (),
    is_contested: bool = True,
) -> None:
    """Let the migration come to its end, whatever state it is in, as an operator does; then give every command once more.

    `is_contested`: there may be something for people to decide.
    """
    told = ""
    for _ in range(4):
        steps = way.plan(store, *accepts)
        told = str(steps.obstacles)
        if standing := [Contest(key.encode(), None, told) for key in _STANDING.findall(told)]:
            _as(labels, store, PERSON, partial(decided, way=way, contests=standing))
            continue
        try:
            report = _as(
                labels, store, label, partial(migrate, plan=steps, is_switched=True, backoff=NO_WAIT, pace=UNPACED)
            )
        except MigrationRefusedError as error:
            if "rolled back" not in str(error):
                raise
            rollback = partial(roll_back_migration, plan=way.plan(store, *_CONSENTS), backoff=NO_WAIT, pace=UNPACED)
            told = str(_as(labels, store, ROLLBACK, rollback))
            continue
        assert is_contested or not report.contested, (
            f"nobody has written by the new layout, and it asks: {report.contested}"
        )
        if report.contested:
            _as(labels, store, PERSON, partial(decided, way=way, contests=report.contested))
        told = str(report)
        if not report.is_settled:
            continue
        report = _as(labels, store, label, lambda store: _cleaned(store, way, accepts))
        told = str(report)
        if report.is_cleaned:
            break
    else:
        raise AssertionError(f"it does not come to its end: {told}")
    _is_whole(store, way)
    before = dump(store)
    migrate(store, way.plan(store, *accepts), is_switched=True, backoff=NO_WAIT, pace=UNPACED)
    _cleaned(store, way, accepts)
    assert dump(store) == before, "given again when it was over, it wrote something"


def _cleaned(store: Store, way: Way, accepts: tuple[str, ...]) -> Any:
    return clean_up_migration(store, way.plan(store, *accepts), backoff=NO_WAIT, pace=UNPACED)


def _is_whole(store: Store, way: Way) -> None:
    found = [str(finding) for finding in check(store, way.new(store))]
    assert not found, "\n".join(found)
    left = [key for key in dump(store) if key[:3] == b"\x00km" and key[3:4] in b"cmor"]
    assert not left, f"{left} are left of the migration"
