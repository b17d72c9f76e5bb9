"""Changes of the registry's switches, checked."""

import math
from collections.abc import Mapping

import msgspec

from keyplan.errors import InvalidArgumentError, InvalidPrefixError
from keyplan.keyspace.layout import PREFIX_BYTES_MAX
from keyplan.keyspace.names import is_name
from keyplan.keyspace.prefixes import bytes_of_hex
from keyplan.keyspace.records import Configuration

__all__ = ["checked_configuration"]


def checked_configuration(before: Configuration, changes: Mapping[str, object]) -> Configuration:
    """Return the configuration after the changes, which are named as in JSON. Raises InvalidArgumentError."""
    known = {field.encode_name for field in msgspec.structs.fields(Configuration)}
    for name in changes:
        if name not in known:
            raise InvalidArgumentError(argument=name, problem=f"the switches are {', '.join(sorted(known))}")
    merged = {**msgspec.to_builtins(before), **changes}
    try:
        after = msgspec.convert(merged, Configuration)
    except msgspec.ValidationError as error:
        raise InvalidArgumentError(argument=", ".join(changes), problem=str(error)) from error
    _check_seconds("max-client-lease-seconds", after.max_client_lease_seconds)
    _check_seconds("reuse-cooldown-seconds", after.reuse_cooldown_seconds or 0)
    _check_seconds("delete-grace-seconds", after.delete_grace_seconds)
    if not 1 <= after.prefix_bytes_max <= PREFIX_BYTES_MAX:
        raise InvalidArgumentError(argument="prefix-bytes-max", problem=f"from 1 to {PREFIX_BYTES_MAX}")
    for name in after.protected:
        if not is_name(name):
            raise InvalidArgumentError(argument="protected", problem=f"{name!r} is not a key space's name")
    reservations = [_reserved(prefix) for prefix in after.reservations]
    return msgspec.structs.replace(after, reservations=reservations)


def _reserved(prefix: str) -> str:
    try:
        raw = bytes_of_hex(prefix)
    except InvalidPrefixError as error:
        raise InvalidArgumentError(
            argument="reservations", problem=f"{prefix!r} is not spelled in hex digits"
        ) from error
    if not raw:
        raise InvalidArgumentError(argument="reservations", problem="the empty prefix would reserve everything")
    return raw.hex()


_SECONDS_MAX = 10 * 366 * 24 * 3600
"""Why: ten years; beyond it, times leave the calendar that they are written in."""


def _check_seconds(name: str, seconds: float) -> None:
    if not (math.isfinite(seconds) and 0 <= seconds <= _SECONDS_MAX):
        raise InvalidArgumentError(argument=name, problem="a number of seconds from 0 to ten years")
