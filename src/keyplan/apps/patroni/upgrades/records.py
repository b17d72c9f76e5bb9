"""What is kept of an upgrade to another major version while it is made."""

from typing import Any, ClassVar, Final

from msgspec import Struct, field

__all__ = ["ANALYZE", "CHECK_ROOM", "CHECK_UPGRADE", "UPGRADE", "Upgrade"]

UPGRADE: Final = "upgrade"
"""The kind of an operation that upgrades."""
CHECK_UPGRADE: Final = "check-upgrade"
CHECK_ROOM: Final = "check-room"
ANALYZE: Final = "analyze"
"""The kinds of a cell's tasks: `NodeTask` says what each does."""


class Upgrade(Struct, kw_only=True, frozen=True):
    """What a cluster of `version` is made from: the data of `node`, a halted node of `former_version` on the same cell.

    `node` is empty until it is known who led last. `configuration` is the dynamic one of the cluster that is upgraded.
    """

    schema_name: ClassVar[str] = "BrokerUpgrade"
    former_version: str
    version: str
    node: str = ""
    configuration: dict[str, Any] = field(default_factory=dict)
