"""All scenes of kills, by groups."""

from collections.abc import Callable, Iterator
from typing import Final

from tests.kills.furniture import Scene
from tests.kills.scenes_indexes import indexes, migrations
from tests.kills.scenes_transfers import copies, restores

__all__ = ["GROUPS"]

GROUPS: Final[dict[str, Callable[[], Iterator[Scene]]]] = {
    "copies": copies,
    "restores": restores,
    "indexes": indexes,
    "migrations": migrations,
}
