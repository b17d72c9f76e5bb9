"""The store that a restore or a copy writes into: looked at before it is made."""

from pathlib import Path

from keyplan.cli.options import store_of_option
from keyplan.cli.unfinished import Unfinished
from keyplan.engine import open_engine
from keyplan.errors import EngineOpenError, InvalidInputError, KeySpaceNotFoundError, StoreMissingError
from keyplan.maintenance import verify_backup
from keyplan.store import Store

__all__ = ["refuse_itself", "store_for_backup"]


def store_for_backup(
    file: Path, url: str | None, config: Path | None, *, has_key_spaces: bool = False, names: list[str] | None = None
) -> Store:
    """Open the store that a backup is brought into; one that is not there is made when the whole file was found sound.

    Raises InvalidInputError, KeySpaceNotFoundError for one of `names` that the backup does not have, EngineOpenError.
    """
    try:
        return store_of_option(url, config, unfinished=Unfinished.PASSED)
    except StoreMissingError:
        held = {section.name for section in verify_backup(file, has_key_spaces=has_key_spaces).sections}
        missing = sorted(set(names or []) - held)
        if missing:
            raise KeySpaceNotFoundError(name=", ".join(missing), problem="not in this backup") from None
        return store_of_option(url, config, create=True)


def refuse_itself(source: str, target: str) -> None:
    """Refuse to copy a store into itself, by whatever other address, path or link. Raises InvalidInputError."""
    try:
        with open_engine(source, create=False, readonly=True) as engine:
            read = engine.lineage()
        with open_engine(target, create=False, readonly=True) as engine:
            written = engine.lineage()
    except EngineOpenError:
        return  # Why: whoever opens it for the copy is told what is wrong, or makes it.
    if read == written:
        raise InvalidInputError(source="--to", problem="a store is not copied into itself")
