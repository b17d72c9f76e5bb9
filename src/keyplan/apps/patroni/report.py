"""The explorer's page of clusters: members, lag, timelines, history of leaders, ports, cells, ages of passwords, events.

Whoever looks may see a part of the store alone: what is not seen is not there. No secret is read.
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import islice
from typing import Any, Final

from keyplan.apps.patroni.clusters import RUNNING, ClusterView, NodeView, clusters, role_of
from keyplan.apps.patroni.events import newest_events
from keyplan.apps.patroni.layout import BindingKey, Broker, MemberKey
from keyplan.apps.patroni.logins import logins_made_at
from keyplan.apps.patroni.readable import readable, readable_of
from keyplan.apps.patroni.records import InstanceState
from keyplan.layout import Binding
from keyplan.server import LayoutReport, ReportCell, ReportFact, ReportSection, ReportTable

__all__ = ["REPORT"]

_CLUSTERS: Final = 25
"""Of one page. Why so few: each is many short reads."""
_LINES: Final = 10
"""Of the history of leaders, and of events: the newest."""
_NODES_MAX: Final = 100
_HOUR: Final = 3_600
_DAY: Final = 24 * _HOUR


def _sections(binding: Binding, now: float, page: str) -> tuple[list[ReportSection], str]:
    broker = Broker(binding)
    found = list(islice(clusters(broker, after=page), _CLUSTERS + 1))
    following = found[_CLUSTERS - 1].instance if len(found) > _CLUSTERS else ""
    return [_section(broker, view, now) for view in found[:_CLUSTERS]], following


def _section(broker: Broker, view: ClusterView, now: float) -> ReportSection:
    members = ReportTable(
        "members",
        ("member", "role", "state", "timeline", "lag", "cell", "address"),
        [_member(view, node) for node in view.nodes[:_NODES_MAX]],
    )
    others = (
        ReportTable(
            "history of leaders, newest first", ("timeline", "until", "why", "who led next"), _history(broker, view)
        ),
        ReportTable("events, newest first", ("time", "what", "member", "text"), _events(broker, view)),
    )
    title = ReportCell(view.instance, is_bad=not view.leader, record=_record(broker, view))
    return ReportSection(title, list(_facts(broker, view, now)), [members, *(grid for grid in others if grid.rows)])


def _record(broker: Broker, view: ClusterView) -> tuple[str, Any] | None:
    for table in ("instances", "configurations"):
        if getattr(broker, table).exists(view.instance):
            return table, view.instance
    return None


def _facts(broker: Broker, view: ClusterView, now: float) -> Iterator[ReportFact]:
    if view.leader:
        yield ReportFact("leader", ReportCell(view.leader, record=("leaders", view.instance)))
    else:
        text = f"{view.failsafe_leader}, in failsafe mode" if view.failsafe_leader else "nobody"
        yield ReportFact("leader", ReportCell(text, is_bad=True))
    yield ReportFact(
        "port", ReportCell(str(view.port or "none"), record=("allocations", view.instance) if view.port else None)
    )
    if view.version:
        yield ReportFact("PostgreSQL", ReportCell(view.version))
    if view.replica_port:
        yield ReportFact("port for reads", ReportCell(str(view.replica_port), record=("replica_ports", view.instance)))
    if view.is_paused:
        yield ReportFact("Patroni", ReportCell("paused: no failover", is_bad=True))
    if view.operation:
        text = f"{view.operation}: {view.message}" if view.message else view.operation
        is_bad = view.operation.endswith("failed")
        yield ReportFact("last operation", ReportCell(text, is_bad=is_bad, record=("operations", view.instance)))
    state = readable_of(broker.instances, view.instance)
    if view.archive is not None:
        yield ReportFact("backups", ReportCell(view.archive.text, is_bad=not view.archive.is_well))
    elif state is not None:
        yield ReportFact("backups", ReportCell("none by the broker"))
    if view.former:
        yield ReportFact("former cluster", ReportCell(view.former))
    if state is not None and (ages := _ages_of_logins(state, now)):
        yield ReportFact("passwords of the cluster", ReportCell(ages))
    oldest = _oldest_binding(broker, view.instance)
    if oldest is not None:
        key, made_at = oldest
        yield ReportFact("oldest password of a binding", ReportCell(_age(now - made_at), record=("bindings", key)))
    for damaged in view.damaged:
        yield ReportFact("cannot be read", ReportCell(damaged, is_bad=True))


def _oldest_binding(broker: Broker, instance: str) -> tuple[BindingKey, float] | None:
    found = [(key, record.rotated_at or record.created_at) for key, record in readable(broker.bindings.rows(instance))]
    return min((one for one in found if one[1]), key=lambda one: one[1], default=None)


def _ages_of_logins(state: InstanceState, now: float) -> str:
    """Return how old the passwords of a cluster's own programs are, the oldest first, with whose they are where they differ."""
    kinds: dict[str, list[str]] = {}
    for kind, made_at in sorted(logins_made_at(state).items(), key=lambda one: one[1]):
        # Why: nobody told how old the passwords of a cluster were that was adopted.
        least = "at least " if state.adopted_at and kind not in state.rotated_at else ""
        kinds.setdefault(f"{least}{_age(now - made_at)}", []).append(kind)
    if len(kinds) <= 1:
        return "".join(kinds)
    return "; ".join(f"{', '.join(names)} {age}" for age, names in kinds.items())


def _age(seconds: float) -> str:
    """How long ago something was, in one unit."""
    if seconds >= 2 * _DAY:
        return f"{seconds / _DAY:.0f} days old"
    return f"{seconds / _HOUR:.0f} hours old" if seconds >= 2 * _HOUR else f"{max(0.0, seconds) / 60:.0f} minutes old"


def _member(view: ClusterView, node: NodeView) -> tuple[ReportCell, ...]:
    is_dead = bool(node.cell) and not node.cell_is_alive
    state = node.state or node.report or "is not there"
    return (
        ReportCell(node.name, record=("members", MemberKey(view.instance, node.name)) if node.role else None),
        ReportCell(role_of(view, node)),
        ReportCell(f"{state}, restart pending" if node.is_restart_pending else state, is_bad=node.state not in RUNNING),
        ReportCell("" if node.timeline is None else str(node.timeline)),
        ReportCell("" if node.lag_bytes is None else f"{node.lag_bytes:,} bytes"),
        ReportCell(f"{node.cell}, not alive" if is_dead else node.cell, is_bad=is_dead),
        ReportCell(node.address),
    )


def _history(broker: Broker, view: ClusterView) -> list[tuple[ReportCell, ...]]:
    """Return what Patroni notes of each promotion: the timeline that ended, when, why, and who came to lead.

    Others write it: a line that is not one is passed over, and what is not text is not shown as such.
    """
    noted = readable_of(broker.histories, view.instance) or []
    rows: list[tuple[ReportCell, ...]] = []
    for line in noted[: -_LINES - 1 : -1]:
        if isinstance(line, list) and line:
            words = [str(word) if isinstance(word, str | int) else "" for word in [*line, "", "", "", ""][:5]]
            timeline, _position, why, ended, leader = words
            rows.append((ReportCell(timeline), ReportCell(ended), ReportCell(why), ReportCell(leader)))
    return rows


def _events(broker: Broker, view: ClusterView) -> list[tuple[ReportCell, ...]]:
    rows: list[tuple[ReportCell, ...]] = []
    for noted in newest_events(broker, view.instance, count=_LINES)[::-1]:
        at = datetime.fromtimestamp(noted.seconds, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
        event = noted.event
        is_bad = event.kind in {"operation-failed", "leader-lost", "member-astray"}
        rows.append(
            (
                ReportCell(at, record=("events", noted.key)),
                ReportCell(event.kind, is_bad),
                ReportCell(event.member),
                ReportCell(event.text),
            )
        )
    return rows


REPORT: Final = LayoutReport(
    "PostgreSQL clusters",
    "Every cluster below /service, those that nobody ordered here included, as the store tells it.",
    Broker,
    _sections,
)
