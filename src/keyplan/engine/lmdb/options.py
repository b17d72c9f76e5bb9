"""How an LMDB store is opened, and what the engine may therefore claim. What the bytes look like: `format`."""

from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache
from typing import Final

from keyplan.engine.clock import SYSTEM_CLOCK, Clock
from keyplan.engine.profile import Capability, Profile
from keyplan.files import FILE_MODE

__all__ = [
    "HISTORY_REVISIONS_DEFAULT",
    "KEY_BYTES_MAX",
    "LMDB_DEFAULTS",
    "LMDB_PROFILE",
    "MAP_BYTES_DEFAULT",
    "TURN_SECONDS_DEFAULT",
    "VALUE_BYTES_MAX",
    "Durability",
    "LmdbOptions",
    "profile_of",
]

HISTORY_REVISIONS_DEFAULT: Final = 100_000
"""Why: a watch that is 100,000 commits behind lists faster than it replays."""

MAP_BYTES_DEFAULT: Final = 1 << 40
"""Why: the map is address space, not disk: 1 TiB opens in 2.5 ms and is sparse; nobody meets it as a limit."""

TURN_SECONDS_DEFAULT: Final = 60.0
"""Why: a commit takes milliseconds; who writes for a minute was stopped, or loads something very large."""

KEY_BYTES_MAX: Final = 511
"""LMDB's own bound, as it is compiled everywhere."""

VALUE_BYTES_MAX: Final = 1 << 30
"""Why: an event in the log holds a value twice, before and after, and LMDB stores less than 4 GiB in one piece."""

assert 2 * (VALUE_BYTES_MAX + KEY_BYTES_MAX) < (1 << 32)


class Durability(Enum):
    """What an acknowledged commit has survived when `commit` returns. In every mode it survives the loss of the process."""

    FULL = "full"
    """Loss of power: data and header are flushed."""
    META = "meta"
    """Data is flushed, the header with the next commit: loss of power may undo the latest commit, and harms nothing else."""
    NONE = "none"
    """Nothing is flushed: loss of power may destroy the store. For tests and caches."""


@dataclass(frozen=True, slots=True)
class LmdbOptions:
    """`history_revisions_max` is how many revisions a watch may look back; 0 keeps raw keys and values, no revisions.

    `map_bytes` is where the map begins; it grows when it must. `create` makes a missing folder.
    `turn_seconds` is how long a commit waits while other processes write. `mode` is that of the files of a new store, whatever
    the umask is; its folder has the same, and may be entered by those who may read them.
    """

    history_revisions_max: int = HISTORY_REVISIONS_DEFAULT
    durability: Durability = Durability.FULL
    is_readonly: bool = False
    create: bool = True
    clock: Clock = SYSTEM_CLOCK
    map_bytes: int = MAP_BYTES_DEFAULT
    turn_seconds: float = TURN_SECONDS_DEFAULT
    mode: int = FILE_MODE
    has_history: bool = field(init=False)
    """True when revisions, watches and leases are kept."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "has_history", self.history_revisions_max > 0)

    @property
    def folder_mode(self) -> int:
        """Whoever may read the files may enter the folder; whoever may write them may make files in it."""
        return self.mode | (self.mode & 0o444) >> 2


LMDB_DEFAULTS: Final = LmdbOptions()


@lru_cache(maxsize=16)
def profile_of(options: LmdbOptions, *, is_locked: bool) -> Profile:
    """Return what an engine opened like this can do. Without the lock file it must not claim to share the store."""
    capabilities: set[Capability] = set()
    if options.has_history:
        capabilities |= {Capability.REVISIONS, Capability.WATCH, Capability.LEASES}
    if options.durability is Durability.FULL:
        capabilities.add(Capability.DURABLE)
    if is_locked:
        capabilities.add(Capability.SHARED)
    return Profile(
        name="lmdb",
        capabilities=frozenset(capabilities),
        key_bytes_max=KEY_BYTES_MAX,
        value_bytes_max=VALUE_BYTES_MAX,
        commit_operations_max=None,
        commit_bytes_max=None,
        has_local_reads=True,
    )


LMDB_PROFILE: Final = profile_of(LMDB_DEFAULTS, is_locked=True)
"""What an engine opened without options can do."""
