"""The records of what happened to clusters: events, and what a cluster was last seen as."""

from enum import StrEnum
from typing import ClassVar

from msgspec import Struct, field

__all__ = ["Event", "EventKind", "SeenCluster"]


class EventKind(StrEnum):
    """What happened to a cluster."""

    OPERATION_BEGUN = "operation-begun"
    OPERATION_ENDED = "operation-ended"
    OPERATION_FAILED = "operation-failed"
    PORT_GIVEN = "port-given"
    LEADER_CHANGED = "leader-changed"
    LEADER_LOST = "leader-lost"
    MEMBER_ASTRAY = "member-astray"
    MEMBER_BACK = "member-back"


class Event(Struct, kw_only=True, omit_defaults=True):
    """One thing that happened to a cluster; its time stands in its key.

    `kind` is a word of EventKind, or of a later keyplan's. `member` is whom it concerns, `cause` the id of the operation that
    it belongs to. `text` is for people and holds no secret.
    """

    schema_name: ClassVar[str] = "BrokerEvent"
    kind: str
    member: str = ""
    text: str = ""
    cause: str = ""


class SeenCluster(Struct, kw_only=True):
    """What a cluster was last seen as by whoever writes its events: of several brokers one writes what changed since.

    `leader` is who led last, and `is_led` whether anybody does. `astray` are the members that cannot be counted on, each with
    what is wrong with it.
    """

    leader: str = ""
    is_led: bool = False
    astray: dict[str, str] = field(default_factory=dict)
