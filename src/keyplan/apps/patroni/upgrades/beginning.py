"""Where the cluster that an upgrade makes begins: at the cell of whoever led last, for it has all that was acknowledged."""

from msgspec.structs import replace

from keyplan.apps.patroni.records import Operation

__all__ = ["begin_at"]


def begin_at(operation: Operation, leader: str, cell: str) -> None:
    """Have the first node that an upgrade adds made there, of the data of the node that led last.

    Its plan named who led then; where somebody has taken over since, the two cells change places in it.
    """
    assert operation.upgrade is not None
    operation.upgrade = replace(operation.upgrade, node=leader)
    added = [step for step in operation.steps if step.kind == "add"]
    first = added[0]
    for step in added[1:]:
        if step.target == cell:
            step.target = first.target
    first.target = cell
