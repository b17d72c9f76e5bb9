"""Life and death of key spaces, their deletion in the background and their restore from a backup, killed."""

from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any, cast

from keyplan.engine import ALL_KEYS, Commit, MemoryEngine, Put
from keyplan.errors import KeySpaceError
from keyplan.files import new_file
from keyplan.keyspace import Founding, KeySpace, KeySpaceRegistry, KeySpaces, State, Sweeper, open_key_space
from keyplan.maintenance import OnConflict, RestorePolicy, back_up_key_spaces, restore_key_spaces
from keyplan.maintenance.claims import CLAIM_FORM
from keyplan.store import TRANSFER_AREA, Store
from keyplan.testing.killing import KillScenario
from tests.kills.furniture import Scene, folder, small_profile
from tests.maintenance.layouts import Blade, BladeKey, Site

__all__ = ["lives", "restores_of_key_spaces"]


def _registry(store: Store) -> KeySpaces:
    return KeySpaces(store.engine, founding=Founding(skip_printable=False))


def _open(store: Store, name: str) -> Any:
    return open_key_space(store.engine, name, "app", session_seconds=None)


def _fill_registry(store: Store) -> None:
    """Key spaces in use, disabled, deleted and being deleted, with data, and a neighbour of somebody else."""
    registry = _registry(store)
    for name in ("busy", "idle", "spare", "gone", "leaving"):
        registry.create(name, "app")
        with _open(store, name) as opened:
            site = Site(opened)
            for number in range(3):
                site.blades.insert(BladeKey("r", str(number)), Blade(f"s{number}", ["red"]))
    store.engine.commit(Commit((), (Put(b"/site/1", b"other"), Put(b"\x05x", b"other"))))
    registry.disable("idle")
    registry.delete("gone")
    Sweeper(registry).sweep("gone")
    registry.delete("leaving")


def _write_busy(store: Store) -> None:
    """What the application of another key space does meanwhile, and its administrator."""
    with _open(store, "busy") as opened:
        Site(opened).blades.put(BladeKey("r", "0"), Blade("s0", ["changed"]))
    _registry(store).create("late", "app")


def _is_sound(store: Store) -> None:
    registry = _registry(store)
    assert registry.diagnose(with_unmanaged=False).faults == []
    assert registry.verify_audit().is_whole
    assert not list(KeySpaceRegistry(store).sweeper.list()), "a sweeper's turn is left"


def _shown(store: Store) -> object:
    """The data, and of the registry what its key spaces and switches are; not when, and in which order, acts were noted."""
    registry = _registry(store)
    spaces = {keyspace.name: _untimed(keyspace) for keyspace in registry.all(include_deleted=True)}
    quotas = {name: registry.quota(name) for name, space in spaces.items() if space["state"] != "DELETED"}
    with store.engine.snapshot() as snapshot:
        data = {entry.key: entry.value for entry in snapshot.scan(ALL_KEYS) if not entry.key.startswith(b"\x00kp")}
    claims = {key: value for key, value in data.items() if key.startswith(TRANSFER_AREA.start)}
    done = {key: CLAIM_FORM.decode(value).is_done for key, value in claims.items()}
    return [
        {key: value for key, value in data.items() if key not in claims},
        done,
        spaces,
        quotas,
        registry.configuration(),
    ]


def _shown_whatever_the_generation(store: Store) -> object:
    """As `_shown`. Why: overwriting again what was overwritten is another generation, nobody knowing which is meant."""
    data, done, spaces, quotas, configuration = cast("list[Any]", _shown(store))
    return [data, done, {name: space | {"generation": 0} for name, space in spaces.items()}, quotas, configuration]


def _untimed(keyspace: KeySpace) -> dict[str, object]:
    """A key space with whether it has a time, not which."""
    shown = keyspace.to_json()
    return {name: value is not None if name.endswith("_at") else value for name, value in shown.items()}


# ---- lives -----------------------------------------------------------------------------------------------------------


def lives() -> Iterator[Scene]:
    """What becomes of a key space: made, changed, deleted, swept, overwritten; beside the application of another one."""
    plain = partial(
        KillScenario,
        setup=_fill_registry,
        beside=_write_busy,
        holds=_is_sound,
        compared=_shown,
        told=(KeySpaceError,),
        profile=small_profile(32),
    )
    for name, act in _ACTS.items():
        yield Scene(name, plain(job=act))
    yield Scene("overwrite", plain(job=_overwrite, compared=_shown_whatever_the_generation))
    yield Scene("sweep one", plain(job=lambda store: Sweeper(_registry(store), batch_keys=2).sweep("leaving"), told=()))
    # Why time passes: a sweeper's turn hangs on a lease of 30 seconds, and whoever comes meanwhile leaves it alone.
    yield Scene("sweep all", plain(job=_sweep_all, passes_seconds=31.0, told=()))
    yield Scene("delete and sweep, beside a client", plain(job=_delete_and_sweep, passes_seconds=61.0))


def _act(name: str, *arguments: Any, **options: Any) -> Callable[[Store], object]:
    def act(store: Store) -> object:
        return getattr(_registry(store), name)(*arguments, **options)

    return act


def _overwrite(store: Store) -> None:
    registry = _registry(store)
    begun = registry.begin_overwrite("idle")
    Sweeper(registry, batch_keys=2).wipe(begun)
    registry.finish_restore("idle", begun.generation)


def _sweep_all(store: Store) -> None:
    Sweeper(_registry(store), batch_keys=2).sweep_all()


def _delete_and_sweep(store: Store) -> None:
    registry = _registry(store)
    if registry.get("idle").state is State.DISABLED:
        registry.delete("idle")
    Sweeper(registry, batch_keys=2).sweep("idle")


_ACTS: dict[str, Callable[[Store], object]] = {
    "ensure a new one": _act("ensure", "new", "app"),
    "ensure a name again": _act("ensure", "gone", "app"),
    "adopt a legacy prefix": _act("adopt", "site", "app", b"/site/".hex(), allow_legacy_prefix=True),
    "disable": _act("disable", "spare"),
    "enable": _act("enable", "idle"),
    "delete": _act("delete", "idle"),
    "undelete": _act("undelete", "leaving"),
    "set a quota": _act("set_quota", "idle", keys=10),
    "count usage": _act("usage", "idle"),
}


# ---- restores --------------------------------------------------------------------------------------------------------


def restores_of_key_spaces() -> Iterator[Scene]:
    """All of a backup into an empty store, over what is there, one under another name, with indexes that are built."""
    path = _backup()
    plain = partial(KillScenario, setup=_nothing, holds=_is_restored, compared=_shown, profile=small_profile(40))
    yield Scene("restore all key spaces", plain(job=_restores(path)))
    over = RestorePolicy(OnConflict.OVERWRITE)
    overwriting = partial(
        plain, setup=_fill_registry_otherwise, beside=_write_other, compared=_shown_whatever_the_generation
    )
    yield Scene("restore key spaces over", overwriting(job=_restores(path, policy=over)), is_long=True)
    built = _restores(path, names=["busy"], policy=over, layout=Site.bound())
    yield Scene("restore one key space over, indexes built", overwriting(job=built))
    yield Scene(
        "restore one key space under another name",
        plain(
            job=_restores(path, names=["busy"], policy=RestorePolicy(OnConflict.RELOCATE, rename_to={"busy": "twin"})),
            setup=_fill_registry_otherwise,
            beside=_write_other,
        ),
    )


@cache
def _backup() -> Path:
    path = folder() / "key-spaces"
    with Store(MemoryEngine()) as store, new_file(path) as file:
        _fill_registry(store)
        _registry(store).set_quota("busy", keys=1_000)
        _registry(store).configure({"keyspace-api-enabled": True})
        back_up_key_spaces(store.engine, file)
    return path


def _restores(path: Path, **options: Any) -> Callable[[Store], None]:
    def restore(store: Store) -> None:
        restore_key_spaces(store.engine, path, **options)

    return restore


def _nothing(_store: Store) -> None:
    """Leave the store empty."""


def _fill_registry_otherwise(store: Store) -> None:
    """A registry in which the names stand for others' data."""
    registry = _registry(store)
    for name in ("busy", "idle", "spare", "fourth", "fifth", "other"):
        registry.create(name, "app")
        with _open(store, name) as opened:
            Site(opened).blades.insert(BladeKey("x", "1"), Blade("mine"))


def _write_other(store: Store) -> None:
    with _open(store, "other") as opened:
        Site(opened).blades.put(BladeKey("x", "1"), Blade("changed"))


def _is_restored(store: Store) -> None:
    _is_sound(store)
    for keyspace in _registry(store).all():
        assert keyspace.state is not State.RESTORING, f"{keyspace.name} is still being restored"
