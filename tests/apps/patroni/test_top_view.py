"""What `keyplan patroni top` makes of clusters: lines that fit into a terminal of any size."""

import pytest

from keyplan.apps.patroni.backups.view import ArchiveView
from keyplan.apps.patroni.clusters import ClusterView, NodeView
from keyplan.apps.patroni.top_view import Line, lines_of


def node(name: str, **given: object) -> NodeView:
    fields: dict[str, object] = {
        "cell": "cell-1",
        "cell_is_alive": True,
        "role": "replica",
        "state": "streaming",
        "address": "10.0.0.1:5432",
        "lag_bytes": 0,
        "report": "running",
        "timeline": 3,
        "is_restart_pending": False,
    }
    return NodeView(name=name, **{**fields, **given})  # type: ignore[arg-type]


def cluster(name: str, *nodes: NodeView, **given: object) -> ClusterView:
    fields: dict[str, object] = {
        "plan_id": "p",
        "port": 33000,
        "replica_port": 34000,
        "leader": "n1",
        "failsafe_leader": "",
        "is_paused": False,
        "operation": "provision success",
        "message": "done",
        "archive": None,
        "former": "",
        "damaged": [],
        "version": "",
    }
    return ClusterView(instance=name, nodes=list(nodes), **{**fields, **given})  # type: ignore[arg-type]


VIEWS = [
    cluster(
        "f1",
        node("n1"),
        node("n2", lag_bytes=12_400, is_restart_pending=True),
        operation="move in-progress",
        message="m",
    ),
    cluster("f2", node("n1", cell_is_alive=False, timeline=None), leader="", replica_port=None, is_paused=True),
    cluster(
        "f3",
        operation="update failed",
        message="no cell",
        archive=ArchiveView("", 0.0, "", 0.0, "", 0.0, "no backup: a restore would lose everything"),
        damaged=["members f3/n1"],
    ),
]


def test_a_wide_view_has_everything() -> None:
    assert lines_of(VIEWS, now=3_600.0) == [
        Line("01:00:00Z  3 clusters  1 without leader  1 operation under way", "head"),
        Line("  member  role     state                       TL  lag    cell           address", "head"),
        Line("f1  port 33000  reads 34000  leader n1", "good"),
        Line("  move: m", "busy"),
        Line("  n1      leader   streaming                   3   0 B    cell-1         10.0.0.1:5432"),
        Line("  n2      replica  streaming, restart pending  3   12 kB  cell-1         10.0.0.1:5432"),
        Line("f2  port 33000  no leader  paused", "bad"),
        Line("  n1      replica  streaming                   -   0 B    cell-1 (dead)  10.0.0.1:5432", "bad"),
        Line("f3  port 33000  reads 34000  leader n1  update failed: no cell", "good"),
        Line("  no backup: a restore would lose everything", "bad"),
        Line("  cannot be read: members f3/n1", "bad"),
    ]


@pytest.mark.parametrize(("width", "head"), [(75, "member role state TL lag cell"), (26, "member role lag")])
def test_a_narrow_view_does_without_columns_and_keeps_lag(width: int, head: str) -> None:
    lines = [line.text for line in lines_of(VIEWS, now=0.0, width=width)]
    assert lines[1].split() == head.split()
    assert max(map(len, lines)) <= width


def test_long_names_are_cut_before_what_stands_beside_them() -> None:
    lines = lines_of([cluster("f1", node("x" * 36, lag_bytes=5))], now=0.0, width=30)
    assert lines[-1].text == "  " + "x" * 13 + "…  replica  5 B"


def test_what_is_too_high_is_counted() -> None:
    lines = lines_of(VIEWS, now=0.0, height=4)
    assert [line.text for line in lines][3:] == ["... 8 more lines; name a cluster to see it alone"]


def test_a_name_moves_no_cursor() -> None:
    text = "".join(line.text for line in lines_of([cluster("a\x1b[2J", node("n\x9b1"))], now=0.0))
    assert text.isprintable()
