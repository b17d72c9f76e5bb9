"""A plain restore or copy beside key spaces: what is registered to somebody is not written to by its raw prefix."""

from keyplan.engine import Engine, KeyRange
from keyplan.errors import InvalidInputError, PrefixConflictError, PrefixInUseError
from keyplan.keyspace import KeySpaceRegistry
from keyplan.maintenance.registry_section import REGISTRY_ROOT

__all__ = ["refuse_registered"]

_ADVICE = "restore into a key space with `keyplan keyspace restore`, or name a prefix that is nobody's"

_HOLDERS = KeyRange(*KeySpaceRegistry.bound().tables["holders"].keys.range(()))


def refuse_registered(engine: Engine, prefix: bytes, *, is_resumed: bool) -> None:
    """Raise why a plain stream of pairs may not be brought below the prefix: a key space has it, begins it or continues it.

    The whole store takes one while it has no registry, or when the work has begun in it. Raises PrefixInUseError,
    PrefixConflictError, InvalidInputError for the registry's own keys.
    """
    if not prefix:
        if not is_resumed and _has_registry(engine):
            problem = "the whole store is written to, and it has a registry of key spaces"
            raise InvalidInputError(source="prefix", problem=problem, advice=f"empty the store first, or {_ADVICE}")
        return
    if prefix.startswith(REGISTRY_ROOT) or REGISTRY_ROOT.startswith(prefix):
        problem = "the registry of key spaces stands there"
        raise InvalidInputError(source="prefix", problem=problem, prefix=prefix.hex(), advice=_ADVICE)
    with engine.snapshot() as snapshot:
        held = [key[len(_HOLDERS.start) :] for key in snapshot.keys(_HOLDERS)]
    for other in held:
        if other == prefix:
            raise PrefixInUseError(prefix=prefix.hex(), problem="a key space has it", advice=_ADVICE)
        if other.startswith(prefix) or prefix.startswith(other):
            raise PrefixConflictError(prefix=prefix.hex(), other=other.hex(), advice=_ADVICE)


def _has_registry(engine: Engine) -> bool:
    with engine.snapshot() as snapshot:
        return any(True for _ in snapshot.scan(KeyRange.of_prefix(REGISTRY_ROOT), limit=1, keys_only=True))
