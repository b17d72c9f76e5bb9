"""A cluster on paper that is backed up, and backups of it."""

from keyplan.apps.patroni import BookKey, Cell, InstanceState, Operation
from keyplan.apps.patroni.backups.records import Archive, Backup, BackupBook, BackupPolicy, Repository
from tests.apps.patroni.paper_cluster import PaperCluster

POLICY = BackupPolicy(repository=Repository(folder="/srv/backups"))
ARCHIVE = Archive(stanza="f1-ab", policy=POLICY)


def backup(label: str, ended_at: float, *, has_errors: bool = False) -> Backup:
    return Backup(label=label, kind="full", began_at=ended_at - 5, ended_at=ended_at, has_errors=has_errors)


def made_cluster() -> PaperCluster:
    """A cluster whose operation is over."""
    found = PaperCluster()
    found.broker.operations.put("f1", Operation(id="o", kind="provision", status="success"))
    return found


def words(operation: Operation) -> list[str]:
    return [" ".join(filter(None, (step.kind, step.target or step.node))) for step in operation.steps]


def archived(cluster: PaperCluster, *backups: Backup) -> None:
    state = InstanceState(instance_id="f1", service_id="s", plan_id="p", node_count=2, archive=ARCHIVE)
    cluster.broker.instances.put("f1", state)
    book = BackupBook(archive=ARCHIVE, service_id="s", plan_id="p", node_count=2, backups=list(backups), looked_at=9)
    cluster.broker.backup_books.put(BookKey("f1", ARCHIVE.stanza), book)


def cells_alive(cluster: PaperCluster) -> None:
    for node in ("a", "b", "c"):
        cluster.broker.cells.put(f"cell-{node}", Cell(), lease=cluster.lease)
