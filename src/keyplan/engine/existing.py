"""Many sorted keys written over what exists, and nothing else: by commits that are guarded by what was read."""

from collections.abc import Sequence

from keyplan.engine.interface import Commit, Engine, Guard, KeyUnchanged, Put, commit_parts
from keyplan.engine.retry import until_put
from keyplan.engine.sorted_keys import check_sorted

__all__ = ["put_existing"]


def put_existing(
    engine: Engine, keys: Sequence[bytes], values: Sequence[bytes] | None = None, *, guards: Sequence[Guard] = ()
) -> int:
    """Write those of the keys that exist, in ascending order, and return how many they are; see `Engine.put_sorted`.

    A key that is deleted while it is looked up stays deleted.
    """
    given = check_sorted(keys, values, engine.profile)
    parts = commit_parts(keys, given, engine.profile, guards=len(guards))
    return sum(_put_part(engine, part, tuple(guards)) for part in parts)


def _put_part(engine: Engine, part: list[tuple[bytes, bytes]], guards: tuple[Guard, ...]) -> int:
    def attempt() -> int:
        with engine.snapshot() as snapshot:
            found = snapshot.get_many([key for key, _ in part])
            epoch = snapshot.epoch
        own = tuple(KeyUnchanged(entry.key, entry.mod_revision) for entry in found if entry is not None)
        if own:
            puts = tuple(Put(*pair) for pair, entry in zip(part, found, strict=True) if entry is not None)
            engine.commit(Commit((*guards, *own), puts, epoch))
        return len(own)

    return until_put(engine.profile.name, attempt, guards)
