"""What may be changed in Patroni's dynamic configuration, and how its values read.

Patroni stores what it is given. Then one value that a node cannot read keeps it from all changes, later ones too, and a name
that it does not know changes nothing: so both are refused before anything is begun.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from keyplan.apps.patroni.refusals import RefusedError

__all__ = ["is_on", "require_changes"]

_BYTES_MAX: Final = 65_536
"""Why: it is a part of a record, and Patroni's own configuration has a few kilobytes."""
_DEPTH_MAX: Final = 8
_NUMBER_MAX: Final = 2**63 - 1
_ON: Final = ("on", "true", "yes", "1")
_OFF: Final = ("off", "false", "no", "0")

_LEAST: Final[Mapping[str, int]] = {
    "ttl": 20,
    "loop_wait": 1,
    "retry_timeout": 3,
    "maximum_lag_on_failover": 0,
    "maximum_lag_on_syncnode": -1,
    "max_timelines_history": 0,
    "primary_start_timeout": 0,
    "primary_stop_timeout": 0,
    "synchronous_node_count": 1,
    "member_slots_ttl": 0,
}
"""Whole numbers, with the least that each may be: Patroni takes its own in place of a lower one, and says nothing."""
_SWITCHES: Final = ("pause", "check_timeline", "failsafe_mode", "synchronous_mode", "synchronous_mode_strict")
_OBJECTS: Final = ("postgresql", "slots", "permanent_slots", "permanent_replication_slots", "standby_cluster")
_LISTS: Final = ("ignore_slots",)
_KNOWN: Final = (*_LEAST, *_SWITCHES, *_OBJECTS, *_LISTS)


def is_on(value: object) -> bool:
    """Whether a value turns a switch on, as Patroni reads it; `quorum` does for `synchronous_mode`."""
    return str(value).lower() in {*_ON, "quorum"}


def require_changes(changes: Mapping[str, Any]) -> None:
    """Raise RefusedError (400) for changes that Patroni's nodes could not read. None removes a setting, also an unknown one."""
    if not changes:
        raise RefusedError(400, "no change of the configuration is given")
    if _is_deeper(changes, _DEPTH_MAX):
        raise RefusedError(400, f"the changes have more than {_DEPTH_MAX} levels of names")
    size = len(msgspec.json.encode(changes))
    if size > _BYTES_MAX:
        raise RefusedError(400, f"the changes have {size} bytes, and at most {_BYTES_MAX} are taken")
    for name, value in changes.items():
        if value is not None and (wanted := _wanted(name, value)):
            raise RefusedError(400, wanted)
    parameters = (changes.get("postgresql") or {}).get("parameters")
    if parameters is None:
        return
    if not isinstance(parameters, dict):
        raise RefusedError(400, "postgresql.parameters is an object of settings, as postgresql.parameters.work_mem=8MB")
    for name, value in parameters.items():
        if isinstance(value, (dict, list)):
            raise RefusedError(400, f"postgresql.parameters.{name} is a number, a text or a truth")


def _wanted(name: str, value: object) -> str:
    """Return what a setting has to be, where it is not; otherwise an empty text."""
    if name in _LEAST:
        number = _number(value)
        return (
            ""
            if number is not None and number >= _LEAST[name]
            else f"{name} is a whole number, at least {_LEAST[name]}"
        )
    if name in _SWITCHES:
        words = {*_ON, *_OFF, *(["quorum"] if name == "synchronous_mode" else [])}
        return "" if str(value).lower() in words else f"{name} is true or false"
    if name in _OBJECTS:
        return "" if isinstance(value, dict) else f"{name} is an object of settings"
    if name in _LISTS:
        return "" if isinstance(value, list) else f"{name} is a list"
    known = ", ".join(sorted(_KNOWN))
    return f"Patroni has no setting {name[:100]}; it has {known}. PostgreSQL's are below postgresql.parameters"


def _number(value: object) -> int | None:
    """Read a whole number of Patroni's, which may be spelled as a text; None where it is none."""
    if (
        isinstance(value, str)
        and value.isascii()
        and value.removeprefix("-").isdigit()
        and len(value) <= len(str(_NUMBER_MAX))
    ):
        value = int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and value <= _NUMBER_MAX else None


def _is_deeper(value: object, levels: int) -> bool:
    if not isinstance(value, (dict, list)):
        return False
    return levels == 0 or any(
        _is_deeper(each, levels - 1) for each in (value.values() if isinstance(value, dict) else value)
    )
