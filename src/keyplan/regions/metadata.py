"""What PD keeps of key spaces in its etcd: the keys, and the importer that reads them into the planner's terms.

PD's client port is an etcd client port too; whatever engine holds these keys can be read.

    /pd/7281/keyspaces/meta/00000001      KeyspaceMeta in protocol buffers
    /pd/7281/keyspaces/id/foo             1
    /pd/7281/keyspaces/alloc_id           8 bytes, big-endian: where the window of reserved ids ends
    /pd/7281/region_label/keyspaces/1     a label rule in JSON
"""

from dataclasses import dataclass
from typing import Any, Final

from keyplan.codec import U64, Decimal, ElementForm, RawForm, TextForm
from keyplan.engine import Engine, KeyRange, Snapshot
from keyplan.errors import CorruptionError, InvalidInputError, NotFoundError
from keyplan.keyspace import State
from keyplan.layout import BoundLayout, Layout, Only, Parameter, Table, Waiver, shown_key
from keyplan.regions.captured import Rule, parse_rules
from keyplan.regions.metadata_form import SpaceMetadata, SpaceMetadataForm, SpaceMetadataState
from keyplan.regions.spaces import NUMBER_MAX, NumberedSpace, StoreMode

__all__ = ["ImportedSpaces", "PlacementDriverKeys", "clusters_of", "import_spaces"]


class PlacementDriverKeys(Layout, root="/pd/{cluster}/"):
    """The keys of PD that concern key spaces."""

    cluster = Parameter(element=Decimal())

    spaces = Table(
        "keyspaces/meta/{id:decimal(width=8)}", key=int, value=SpaceMetadata, form=SpaceMetadataForm(), note="2.7"
    )
    numbers = Table("keyspaces/id/{name}", key=str, value=str, form=TextForm(), note="2.7: decimal digits")
    window = Table("keyspaces/alloc_id", key=Only, value=int, form=ElementForm(U64()), note="2.3: the window's end")
    rules = Table("region_label/{rule:text_tail}", key=str, value=bytes, form=RawForm(), note="4.2: a label rule, JSON")

    waivers = (Waiver("L3", "rules", "an id of a rule holds slashes; nothing lists the ids below another"),)


STATES: Final = {
    SpaceMetadataState.ENABLED: State.ENABLED,
    SpaceMetadataState.DISABLED: State.DISABLED,
    SpaceMetadataState.ARCHIVED: State.DELETING,
    SpaceMetadataState.TOMBSTONE: State.DELETED,
}
"""1.5: PD's states in the registry's words."""

_GIVEN_BY_NOBODY: Final = NUMBER_MAX - 1024
"""2.3: ids from here on, SYSTEM among them, are never allocated, so that the window says nothing of them."""


@dataclass(frozen=True, slots=True)
class ImportedSpaces:
    """What was found for one cluster, as of one revision. `problems`: what does not fit together, a sentence each."""

    cluster: int
    revision: int
    spaces: tuple[NumberedSpace, ...]
    metadata: tuple[SpaceMetadata, ...]
    rules: tuple[Rule, ...]
    window_end: int | None
    problems: tuple[str, ...]

    def data(self) -> dict[str, Any]:
        """The key spaces as JSON data, as PD's HTTP API gives them; `keyplan region plan --key-spaces` reads it."""
        return {
            "cluster": str(self.cluster),
            "revision": self.revision,
            "keyspaces": [_plain(metadata) for metadata in self.metadata],
            "window_end": self.window_end,
            "problems": list(self.problems),
        }


_CLUSTER_DIGITS_MAX: Final = 20
"""Why: a cluster's id is an unsigned number of 64 bits; a longer one is no cluster, and Python refuses to read it."""


def clusters_of(snapshot: Snapshot) -> list[int]:
    """Return the clusters whose PD keeps anything in the store, jumping from one to the next."""
    found: list[int] = []
    key_range = KeyRange.of_prefix(b"/pd/")
    while (entry := next(snapshot.scan(key_range, limit=1, keys_only=True), None)) is not None:
        segment = entry.key.removeprefix(b"/pd/").split(b"/")[0]
        is_number = segment.isdigit() and len(segment) <= _CLUSTER_DIGITS_MAX
        if is_number and str(int(segment)).encode() == segment:
            found.append(int(segment))
        key_range = KeyRange(b"/pd/" + segment + b"0", key_range.end)  # "0" follows "/"
    return sorted(set(found))


def import_spaces(engine: Engine, cluster: int | None = None) -> ImportedSpaces:
    """Read the key spaces of a cluster, from one snapshot; without a number, of the only cluster that there is.

    Records that cannot be read are left out and told in `problems`, and so is what contradicts itself: a name that leads
    elsewhere, an id beyond the reserved ones. Raises NotFoundError without a cluster, InvalidInputError with several.
    """
    with engine.snapshot() as snapshot:
        found = clusters_of(snapshot)
        if cluster is None:
            if len(found) > 1:
                problem = f"name one of the clusters: {', '.join(map(str, found))}"
                raise InvalidInputError(source="cluster", problem=problem)
            cluster = found[0] if found else None
        if cluster is None or cluster not in found:
            raise NotFoundError(table="clusters below /pd/", key=cluster)
        return _Reader(snapshot, PlacementDriverKeys.bound(cluster=cluster), cluster).read()


class _Reader:
    def __init__(self, snapshot: Snapshot, bound: BoundLayout, cluster: int) -> None:
        self._snapshot = snapshot
        self._bound = bound
        self._cluster = cluster
        self._problems: list[str] = []

    def read(self) -> ImportedSpaces:
        metadata = self._spaces()
        window = self._values("window")
        window_end: int | None = next((end for _, end in window), None)
        self._compare_names({found.name: found for found in metadata})
        for found in metadata:
            is_given_out = window_end is None or found.id <= window_end or found.id >= _GIVEN_BY_NOBODY
            if not is_given_out:
                self._problems.append(f"{found.name} has the id {found.id}, beyond the window's end {window_end}")
        return ImportedSpaces(
            self._cluster,
            self._snapshot.revision,
            tuple(_space(found) for found in metadata),
            tuple(metadata),
            tuple(self._rules()),
            window_end,
            tuple(self._problems),
        )

    def _spaces(self) -> list[SpaceMetadata]:
        spaces: list[SpaceMetadata] = []
        for number, found in self._values("spaces"):
            if found.id != number:
                self._problems.append(f"the record at id {number} says that its id is {found.id}")
            elif number > NUMBER_MAX:
                self._problems.append(f"the id {number} of {found.name} has more than three bytes")
            elif found.config.get("region_bound_type", StoreMode.TRANSACTIONAL) not in set(StoreMode):
                self._problems.append(f"{found.name} has a region_bound_type that is neither txn nor raw")
            else:
                spaces.append(found)
        return spaces

    def _compare_names(self, by_name: dict[str, SpaceMetadata]) -> None:
        named = dict(self._values("numbers"))
        for name, text in named.items():
            if name not in by_name or text != str(by_name[name].id):
                self._problems.append(f"the name {name} leads to the id {text}, which has another record or none")
        self._problems += [f"the name {name} leads nowhere" for name in by_name if name not in named]

    def _rules(self) -> list[Rule]:
        rules: list[Rule] = []
        for rule_id, raw in self._values("rules"):
            try:
                rules += parse_rules(b"[" + raw + b"]", source=rule_id)
            except InvalidInputError as error:
                self._problems.append(str(error))
        return rules

    def _values(self, name: str) -> list[tuple[Any, Any]]:
        """The records of a table; what cannot be read is a problem."""
        table = self._bound.tables[name]
        values: list[tuple[Any, Any]] = []
        for entry in self._snapshot.scan(KeyRange(*table.keys.range(()))):
            key = table.keys.decode(entry.key)
            try:
                if key is None:
                    raise CorruptionError(problem="not a key that PD spells")
                values.append((key, table.form.decode(entry.value)))
            except CorruptionError as error:
                self._problems.append(f"{shown_key(entry.key)} cannot be read: {error.facts.get('problem')}")
        return values


def _space(found: SpaceMetadata) -> NumberedSpace:
    bound_type = found.config.get("region_bound_type")
    modes = () if bound_type is None else (StoreMode(bound_type),)
    return NumberedSpace(found.name, found.id, STATES[found.state], modes=modes)


def _plain(found: SpaceMetadata) -> dict[str, Any]:
    plain: dict[str, Any] = {"id": found.id, "name": found.name, "state": found.state.name}
    times = {"created_at": found.created_at, "state_changed_at": found.state_changed_at}
    plain |= {name: seconds for name, seconds in times.items() if seconds}
    return plain | ({"config": found.config} if found.config else {})
