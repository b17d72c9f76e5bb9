"""The matrix: groups of lines by name, from writers to applications."""

from collections.abc import Callable, Iterator

from tests.schedules.lines import Line
from tests.schedules.matrix_applications import APPLICATION_GROUPS
from tests.schedules.matrix_batches import BATCH_GROUPS
from tests.schedules.matrix_gateways import GATEWAY_GROUPS
from tests.schedules.matrix_hepnos import HEPNOS_GROUPS
from tests.schedules.matrix_keyspaces import KEYSPACE_GROUPS
from tests.schedules.matrix_maintenance import MAINTENANCE_GROUPS
from tests.schedules.matrix_migrations import MIGRATION_GROUPS
from tests.schedules.matrix_owners import OWNER_GROUPS
from tests.schedules.matrix_patroni import PATRONI_GROUPS
from tests.schedules.matrix_rings import RING_GROUPS
from tests.schedules.matrix_takeovers import TAKEOVER_GROUPS
from tests.schedules.matrix_writers import WRITER_GROUPS

__all__ = ["GROUPS"]

GROUPS: dict[str, Callable[[], Iterator[Line]]] = {
    **WRITER_GROUPS,
    **MAINTENANCE_GROUPS,
    **MIGRATION_GROUPS,
    **BATCH_GROUPS,
    **KEYSPACE_GROUPS,
    **OWNER_GROUPS,
    **APPLICATION_GROUPS,
    **RING_GROUPS,
    **PATRONI_GROUPS,
    **GATEWAY_GROUPS,
    **HEPNOS_GROUPS,
    **TAKEOVER_GROUPS,
}
