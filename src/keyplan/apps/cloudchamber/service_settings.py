"""What `keyplan serve --setting cloudchamber.NAME=TEXT` says: where the settings are, and what is done as the original does."""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final

from keyplan.apps.cloudchamber.layout import LayoutSide
from keyplan.settings import Setting, TextForm

__all__ = ["AsOriginal", "ServiceSettings"]


class AsOriginal(StrEnum):
    """Something that is done better here, and as the original does it where a client hangs on that."""

    UNKNOWN_USERS = "unknown-users"
    """A login of an unknown or disabled user is a 404, and tells that there is none."""
    SESSIONS = "sessions"
    """One user may have all sessions that there may be."""
    COOKIES = "cookies"
    """The page's scripts may read the cookie of a session."""
    LOGS = "logs"
    """Who waits for the log waits until there is something in it."""


def _names_in(text: str) -> frozenset[AsOriginal]:
    known = {str(one): one for one in AsOriginal}
    names = [name for name in text.split(",") if name]
    if not names or not set(names) <= known.keys():
        raise ValueError(f"must be names of {', '.join(known)}, with commas between them")
    return frozenset(known[name] for name in names)


def _side_in(text: str) -> LayoutSide:
    known = {one.value: one for one in LayoutSide}
    if text not in known:
        raise ValueError(f"must be {' or '.join(known)}")
    return known[text]


_LAYOUT: Final = TextForm(_side_in, "`document`, `go`")
_NAMES: Final = TextForm(_names_in, f"{', '.join(f'`{one}`' for one in AsOriginal)}, with commas")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceSettings:
    """The settings of the service."""

    config: Annotated[Path, Setting("the folder of `cloudchamber.yaml`, or that file", form=TextForm(Path))] = Path()
    layout: Annotated[
        LayoutSide | None, Setting("under whose keys the store is served", form=_LAYOUT, default="whichever it holds")
    ] = None
    as_original: Annotated[
        frozenset[AsOriginal], Setting("what is done as the original does it", form=_NAMES, default="nothing")
    ] = frozenset()
