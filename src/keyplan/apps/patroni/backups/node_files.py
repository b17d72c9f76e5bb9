"""What a node's pgBackRest is told, in files beside its home that its user alone reads; refused where it could not work."""

import shutil
import subprocess
from pathlib import Path
from typing import Final

from keyplan.apps.patroni.backups.access_keys import read_access_keys
from keyplan.apps.patroni.backups.archive import (
    ARCHIVE_FILE,
    PASSWORD_FILE,
    SOURCE_FILE,
    AccessKeys,
    pgbackrest_configuration,
)
from keyplan.apps.patroni.backups.records import Archive
from keyplan.apps.patroni.node_config import NodePlan
from keyplan.apps.patroni.node_host import Host, as_user
from keyplan.errors import InvalidInputError
from keyplan.files import write_whole

__all__ = ["write_archive_files"]

_SECONDS_MAX: Final = 20.0


def write_archive_files(plan: NodePlan, host: Host, folder: Path) -> None:
    """Write them for the archives that a node has. `host` is that of its user. Raises InvalidInputError."""
    for archive, name in (
        (plan.archive, ARCHIVE_FILE),
        (None if plan.recovery is None else plan.recovery.archive, SOURCE_FILE),
    ):
        if archive is not None:
            _require_repository(archive, plan, host)
            text = pgbackrest_configuration(
                archive, _keys(archive, host), home=folder / "home", port=plan.port, user=plan.superuser.username
            )
            write_whole(folder / name, text, owner=host.owner)
    if plan.archive is not None:
        words = (plan.address, str(plan.port), "*", plan.superuser.username, plan.superuser.password.reveal())
        line = ":".join(word if word == "*" else word.replace("\\", r"\\").replace(":", r"\:") for word in words)
        write_whole(folder / PASSWORD_FILE, f"{line}\n", owner=host.owner)


def _keys(archive: Archive, host: Host) -> AccessKeys:
    store = archive.policy.repository.s3
    if store is None:
        return AccessKeys()
    source = host.bucket_keys.get(store.bucket)
    if source is None:
        problem = "the cell has no keys for this bucket: give it --bucket-keys BUCKET=FILE"
        raise InvalidInputError(source=store.bucket, problem=problem)
    return read_access_keys(source)


def _require_repository(archive: Archive, plan: NodePlan, host: Host) -> None:
    if shutil.which("pgbackrest") is None:
        raise InvalidInputError(source="pgBackRest", problem="is not installed: apt-get install pgbackrest")
    repository = archive.policy.repository
    if repository.s3 is not None:
        return
    if plan.user:
        # Why: pgBackRest lets no other user write to what it made, and a cluster's next leader is another user here.
        problem = (
            "a folder is written by one user, and nodes have users of their own here (--instance-users): use a bucket"
        )
        raise InvalidInputError(source=repository.folder, problem=problem)
    done = subprocess.run(  # noqa: S603  # Why: the words are this module's own.
        as_user(host.user, "/usr/bin/test", "-w", repository.folder), check=False, timeout=_SECONDS_MAX
    )
    if done.returncode != 0:
        problem = f"{host.user or 'the user of the cell'} cannot write there: make the folder, and give it to that user"
        raise InvalidInputError(source=repository.folder, problem=problem)
