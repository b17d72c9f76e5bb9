"""Secondary indexes of CloudChamber's records, which the document does not have: a layout beside the document's own.

    /CloudChamber/V0.1/[Test/<instance>/]index/blades/by-arch/X64/rack1/7

They stand below the same root, under a first segment that no documented key has. So the document's purge of a test name space
takes them along; and no store has them unless somebody asked: `begin_indexes`, once. From then on keyplan's own writers, who
bind `layout_in_use`, keep them. A writer that runs since before is refused (IndexesBegunError), by a guard in each of its
commits: it would leave records without entries. Other programs are not; `keyplan check` finds what they leave, and repairs it.
The index that placements rest on is the document's layout's own, and always there.
"""

from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from keyplan.apps.cloudchamber.layout import CloudChamber
from keyplan.apps.cloudchamber.records import Condition, User
from keyplan.engine import Commit, DeleteRange, Engine, KeyAbsent, Mutation, WrappedEngine
from keyplan.errors import CommitConflictError, ConflictError
from keyplan.jobs import Progress, Stop, StopCheck
from keyplan.layout import Index, Only, Table, Unique, Unlike, Waiver
from keyplan.maintenance import build_index, prepare_index
from keyplan.store import Store

__all__ = [
    "CloudChamberIndexed",
    "IndexesBegun",
    "IndexesBegunError",
    "begin_indexes",
    "layout_in_use",
    "store_for_writing",
]

RIGHTS: Final = (
    "can_inject_faults can_manage_accounts can_modify_inventory can_modify_workloads can_perform_repairs can_step_time"
)

CONDITIONS: Final = " ".join(Condition)


class IndexesBegun(msgspec.Struct, frozen=True):
    """The note that this name space has indexes; which of them may be read, the store's index states say."""

    version: int = 1


def _rights_held(_key: object, user: object) -> list[str]:
    """The rights of a user by name; the flag of old records, from before there were rights, counts."""
    assert isinstance(user, User)
    if user.rights is None:
        return ["can_manage_accounts"] if user.can_manage_accounts else []
    return [name for name in RIGHTS.split() if getattr(user.rights, name)]


def _folded(key: object, _user: object) -> str:
    return str(key).lower()


class CloudChamberIndexed(CloudChamber):
    """CloudChamber's store with indexes: the document's keys, unchanged, and under `index/` what finds them otherwise."""

    indexes_begun = Table(
        "index/begun", key=Only, value=IndexesBegun, note="says that writers keep the indexes of this name space"
    )
    blades_by_arch = Index(
        "index/blades/by-arch/{arch:percent(bytes_max=64)}/{rack}/{blade}",
        of=CloudChamber.blades,
        key=str,
        bind={"arch": "capacity.arch"},
        when={"capacity.arch": Unlike("")},
        note="which blades have this architecture",
    )
    blades_by_condition = Index(
        "index/blades/by-condition/{condition:word(words='" + CONDITIONS + "')}/{rack}/{blade}",
        of=CloudChamber.blades,
        key=str,
        bind={"condition": "details.condition"},
        note="which blades are in this condition",
    )
    users_by_right = Index(
        "index/users/by-right/{right:word(words='" + RIGHTS + "')}/{user}",
        of=CloudChamber.users,
        key=str,
        on=_rights_held,
        version=1,
        note="who has this right, as the record's field spells it",
    )
    users_by_folded_name = Unique(
        "index/users/by-folded-name/{name:percent}",
        of=CloudChamber.users,
        key=str,
        on=_folded,
        version=1,
        note="R9: no two users whose names differ in case alone",
    )

    waivers = (
        *(waiver for waiver in CloudChamber.waivers if waiver.rule != "L6"),
        Waiver("L6", "CloudChamberIndexed", "as the document's layout: tests stand below production (R14)"),
        Waiver("L7", "blades_by_arch.arch", "architectures are looked up whole; their order means nothing"),
        Waiver("L7", "users_by_folded_name.name", "names are looked up whole"),
    )


INDEXES: Final = tuple(name for name in CloudChamberIndexed.bound().indexes if name not in CloudChamber.bound().indexes)
"""Those that a name space has when somebody asked. Which instances are on a blade is kept always: placements rest on it."""


def layout_in_use(store: Store, namespace: str = "") -> type[CloudChamber]:
    """Return the layout that writers of a name space have to use: with indexes where they were begun.

    Asked once, when a writer starts. Give it `store_for_writing`: whoever begins indexes later restarts the writers that run.
    """
    has_indexes = CloudChamberIndexed(store, namespace=namespace).indexes_begun.exists(Only())
    return CloudChamberIndexed if has_indexes else CloudChamber


class IndexesBegunError(ConflictError):
    """The name space got indexes after this writer had started, which does not keep them. Nothing was written."""

    code = "indexes-begun"
    summary = "the name space has indexes that this writer does not keep; start it again"


def store_for_writing(store: Store, namespace: str, layout: type[CloudChamber]) -> Store:
    """Return the store as writers of this layout are to use it.

    Under a layout without indexes each commit is guarded by the absence of the note that there are some, and raises
    IndexesBegunError when it is there: no record is ever written without its entries.
    """
    if issubclass(layout, CloudChamberIndexed):
        return store
    note = CloudChamberIndexed.bound(namespace=namespace).tables["indexes_begun"].keys.encode(Only())
    return Store(_PlainWriter(store.engine, note), secrets=store.secrets)


class _PlainWriter(WrappedEngine):
    """Refuses to write once `note` is there."""

    def __init__(self, inner: Engine, note: bytes) -> None:
        super().__init__(inner)
        self._note = note

    def commit(self, commit: Commit) -> int:
        # Why not where the note itself is written or removed: who does that knows of it.
        if not commit.mutations or any(_touches(mutation, self._note) for mutation in commit.mutations):
            return super().commit(commit)
        try:
            return super().commit(Commit((*commit.guards, KeyAbsent(self._note)), commit.mutations, commit.epoch))
        except CommitConflictError:
            with self.inner.snapshot() as snapshot:
                if snapshot.get(self._note) is None:
                    raise
        raise IndexesBegunError


def _touches(mutation: Mutation, key: bytes) -> bool:
    return key in mutation.range if isinstance(mutation, DeleteRange) else mutation.key == key


def begin_indexes(
    store: Store,
    namespace: str = "",
    *,
    stop: Stop | None = None,
    command: Sequence[str] = (),
    progress: Callable[[str, Progress], None] | None = None,
) -> tuple[str, ...]:
    """Have the indexes of a name space kept from now on, build them, and return those that cannot be read yet.

    Until one is built, reading it raises IndexNotReadyError: what a store from before holds is never left out in silence. An
    index that records contradict, two users whose names differ in case alone, stays unreadable until they are put right and
    this is called again. Writers that run are refused from now on: restart them.

    `command` are the words behind `keyplan` that do all this, for who looks at the store's jobs. Raises StoppedError when
    `stop` is set, between two batches.
    """
    if isinstance(store.engine, _PlainWriter):
        store = Store(store.engine.inner, secrets=store.secrets)
    bound = CloudChamberIndexed.bound(namespace=namespace)
    for name in StopCheck(stop, "the building of the indexes").each(INDEXES):
        prepare_index(store, bound, name, command=command)
    CloudChamberIndexed(store, namespace=namespace).indexes_begun.put(Only(), IndexesBegun())

    def built(name: str) -> bool:
        def told(at: Progress) -> None:
            if progress is not None:
                progress(name, at)

        return build_index(store, bound, name, stop=stop, command=command, progress=told).is_readable

    return tuple(name for name in INDEXES if not built(name))
