"""A store into which a restore or a copy has not ended: who opens it is told, and who would write into the part is refused."""

from enum import Enum, auto
from typing import Annotated

import typer

from keyplan.cli.failures import print_hint
from keyplan.engine import Engine
from keyplan.errors import SourceUnfinishedError
from keyplan.store import TRANSFER_AREA

__all__ = ["Unfinished", "WriteUnfinishedOption", "look_for_unfinished"]

WriteUnfinishedOption = Annotated[
    bool, typer.Option("--unfinished", help="Also into the part of a restore or a copy, which is then not resumed.")
]


class Unfinished(Enum):
    """What a command does about work below its root that has not ended."""

    PASSED = auto()
    """Nothing: it is about that work, or says it itself."""
    TOLD = auto()
    REFUSED = auto()
    """It would write, and the work would not be resumed beside what others have written."""


def look_for_unfinished(engine: Engine, root: bytes, what: Unfinished) -> None:
    """Tell of restores and copies above or below `root` that have not ended, a line each, or refuse to go on.

    One short read where there are none. Raises SourceUnfinishedError.
    """
    if what is Unfinished.PASSED:
        return
    with engine.snapshot() as snapshot:
        if next(iter(snapshot.scan(TRANSFER_AREA, limit=1, keys_only=True)), None) is None:
            return
        # Why here: it takes as long to import as all the rest, and hardly any store has claims.
        from keyplan.maintenance import unfinished_work  # noqa: PLC0415

        found = unfinished_work(snapshot, [root])
    for prefix, problem in found:
        if what is Unfinished.REFUSED:
            advice = (
                "it does not go on beside what others write; `put` and `delete` do it all the same with --unfinished"
            )
            raise SourceUnfinishedError(prefix=prefix, problem=problem, advice=advice)
        print_hint(problem)
