"""All scenes of kills, by groups."""

from collections.abc import Callable, Iterator
from typing import Final

from tests.kills.furniture import Scene
from tests.kills.scenes_applications import cloudchamber, hepnos_stores, rings, runm
from tests.kills.scenes_indexes import indexes, migrations
from tests.kills.scenes_key_spaces import lives, restores_of_key_spaces
from tests.kills.scenes_secrets import openings, rotations
from tests.kills.scenes_transfers import copies, restores

__all__ = ["GROUPS"]

GROUPS: Final[dict[str, Callable[[], Iterator[Scene]]]] = {
    "copies": copies,
    "restores": restores,
    "indexes": indexes,
    "migrations": migrations,
    "key spaces": lives,
    "restores of key spaces": restores_of_key_spaces,
    "runm": runm,
    "cloudchamber": cloudchamber,
    "hepnos": hepnos_stores,
    "rings": rings,
    "rotations": rotations,
    "openings": openings,
}
