"""Each look at a key space's fence is one that a test asks for: without it, a stale handle gets through."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

import pytest

from keyplan.engine import (
    MEMORY_PROFILE,
    Commit,
    Entry,
    FencesHolder,
    KeyPrefix,
    MemoryEngine,
    PrefixedSnapshot,
    Put,
    Snapshot,
)
from keyplan.errors import KeyplanError, RegistryMismatchError
from keyplan.keyspace import FenceForm
from keyplan.keyspace.fence import KeySpaceFence, fence_key, refusal
from keyplan.keyspace.share import KeySpaceEngine
from tests.keyspace.meanwhile import Meanwhile
from tests.keyspace.owners import GONE, OWN, READS, hand_over, opened, owned
from tests.keyspace.stores import Shop, raw_content

NEARBY = "nearby"
FAR = "over a network"
FENCE = fence_key("orders")
PROFILES = {NEARBY: MEMORY_PROFILE, FAR: replace(MEMORY_PROFILE, has_local_reads=False)}


def a_stale_handle_reads_nothing(place: str) -> None:
    for name, read in READS.items():
        if name in {"get", "value"}:
            continue
        with MemoryEngine(profile=PROFILES[place]) as engine:
            store = owned(engine)
            hand_over(engine)
            with pytest.raises(GONE):
                read(store)


def a_stale_handle_gets_nothing(place: str) -> None:
    with MemoryEngine(profile=PROFILES[place]) as engine:
        store = owned(engine)
        hand_over(engine)
        for name in ("get", "value"):
            with pytest.raises(GONE):
                READS[name](store)


def a_commit_that_is_overtaken_writes_nothing(place: str) -> None:
    with MemoryEngine(profile=PROFILES[place]) as engine:
        owned(engine)
        around = Meanwhile(engine, None, lambda: hand_over(engine))
        store = opened(around)
        around.begin(1)  # the commit is the only call
        with pytest.raises(GONE):
            store.engine.commit(Commit((), (Put(b"/shop/items/1", b"late"),)))
        assert raw_content(engine) == {b"\x01/shop/items/1": b'{"note":"theirs"}'}


def a_handle_of_another_registry_reads_and_writes_nothing(place: str) -> None:
    with MemoryEngine(profile=PROFILES[place]) as engine:
        reader, writer = owned(engine), opened(engine)
        raw = engine.value(FENCE)
        assert raw is not None
        engine.commit(Commit((), (Put(FENCE, raw[:9] + b"another"),)))
        with pytest.raises(RegistryMismatchError):
            Shop(reader).items.get("1")
        with pytest.raises(RegistryMismatchError):
            Shop(writer).items.put("1", OWN)


CASES: dict[str, Callable[[str], None]] = {
    case.__name__: case
    for case in (
        a_handle_of_another_registry_reads_and_writes_nothing,
        a_stale_handle_reads_nothing,
        a_stale_handle_gets_nothing,
        a_commit_that_is_overtaken_writes_nothing,
    )
}

Patch = pytest.MonkeyPatch


def _unlooked(share: KeySpaceEngine) -> Snapshot:
    return PrefixedSnapshot(share.inner.snapshot(), share._prefix)


def _unguarded(share: KeySpaceEngine, prefix: KeyPrefix, commit: Commit, _: object) -> int:
    return share.inner.commit(prefix.add_to_commit(commit)[0])


def _unfenced(
    engine: MemoryEngine, prefix: bytes, holder: FencesHolder, otherwise: Callable[[bytes], bytes | None]
) -> Callable[[bytes], bytes | None]:
    return lambda key: engine.value(prefix + key)


def _type_of_far_states() -> type[Snapshot]:
    with MemoryEngine(profile=PROFILES[FAR]) as engine, owned(engine).engine.snapshot() as state:
        return type(state)


def _of_any_registry(fence: KeySpaceFence, found: Entry | None, _: Snapshot) -> KeyplanError | None:
    decoded = None if found is None else FenceForm().decode(found.value)
    return refusal(fence.name, fence.generation, decoded)


MUTANTS: dict[str, tuple[Callable[[Patch], None], str, tuple[str, ...]]] = {
    "a state is not looked at": (
        lambda patch: patch.setattr(KeySpaceEngine, "snapshot", _unlooked),
        "a_stale_handle_reads_nothing",
        (NEARBY, FAR),
    ),
    "a state over a network is not looked at": (
        lambda patch: patch.setattr(_type_of_far_states(), "_checked", lambda _, found: found),
        "a_stale_handle_reads_nothing",
        (FAR,),
    ),
    "a single read asks for no fence": (
        lambda patch: patch.setattr(MemoryEngine, "fenced_reader", _unfenced),
        "a_stale_handle_gets_nothing",
        (NEARBY, FAR),
    ),
    "a fence may be of any registry": (
        lambda patch: patch.setattr(KeySpaceFence, "judged", _of_any_registry),
        "a_handle_of_another_registry_reads_and_writes_nothing",
        (NEARBY, FAR),
    ),
    "a commit has no fence among its guards": (
        lambda patch: patch.setattr(KeySpaceEngine, "_carry_out", _unguarded),
        "a_commit_that_is_overtaken_writes_nothing",
        (NEARBY, FAR),
    ),
}


def fails(case: str, place: str) -> bool:
    with suppress(Exception, pytest.fail.Exception):
        CASES[case](place)
        return False
    return True


@pytest.mark.parametrize("place", PROFILES)
@pytest.mark.parametrize("case", CASES)
def test_a_stale_handle_is_told(case: str, place: str) -> None:
    CASES[case](place)


@pytest.mark.usefixtures("brief_failures")
@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_look_that_is_taken_out_is_missed(mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plant, case, places = MUTANTS[mutant]
    plant(monkeypatch)
    assert all(fails(case, place) for place in places)
