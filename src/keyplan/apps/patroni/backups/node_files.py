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

__all__ = ["is_archive_told", "write_archive_files", "write_password_file", "write_source_files"]

_SECONDS_MAX: Final = 5.0
"""Why so few: the cell's other nodes wait."""


def write_archive_files(plan: NodePlan, host: Host, folder: Path) -> None:
    """Write them for the node's own archive, if it has one. `host` is that of its user. Raises InvalidInputError."""
    if plan.archive is not None:
        _write_configuration(plan.archive, plan, host, folder / ARCHIVE_FILE)
        # Why last: it says that all is written.
        write_password_file(plan, host, folder)


def write_password_file(plan: NodePlan, host: Host, folder: Path) -> None:
    """Write what programs of the node's find its superuser's password in."""
    write_whole(folder / PASSWORD_FILE, _password_line(plan), owner=host.owner)


def write_source_files(plan: NodePlan, host: Host, folder: Path) -> None:
    """Write them for the archive that the node's cluster begins from, if it does. Raises InvalidInputError."""
    if plan.recovery is not None:
        _write_configuration(plan.recovery.archive, plan, host, folder / SOURCE_FILE)


def is_archive_told(plan: NodePlan, folder: Path) -> bool:
    """Whether what is written for the node's own archive is for the superuser that it has now."""
    try:
        return plan.archive is None or (folder / PASSWORD_FILE).read_text() == _password_line(plan)
    except (OSError, UnicodeDecodeError):
        return False


def _write_configuration(archive: Archive, plan: NodePlan, host: Host, file: Path) -> None:
    _require_repository(archive, plan, host)
    text = pgbackrest_configuration(
        archive, _keys(archive, host), home=file.parent / "home", port=plan.port, user=plan.superuser.username
    )
    write_whole(file, text, owner=host.owner)


def _password_line(plan: NodePlan) -> str:
    words = (plan.address, str(plan.port), "*", plan.superuser.username, plan.superuser.password.reveal())
    line = ":".join(word if word == "*" else word.replace("\\", r"\\").replace(":", r"\:") for word in words)
    return f"{line}\n"


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
    if shutil.which("pgbackrest", path=host.search_path) is None:
        problem = f"is not in {host.search_path}, where nodes look for it: apt-get install pgbackrest"
        raise InvalidInputError(source="pgBackRest", problem=problem)
    repository = archive.policy.repository
    if repository.s3 is not None:
        return
    if plan.user:
        # Why: pgBackRest lets no other user write to what it made, and a cluster's next leader is another user here.
        problem = (
            "a folder is written by one user, and nodes have users of their own here (--instance-users): use a bucket"
        )
        raise InvalidInputError(source=repository.folder, problem=problem)
    try:
        done = subprocess.run(  # noqa: S603  # Why: the words are this module's own.
            as_user(host.user, "/usr/bin/test", "-w", repository.folder), check=False, timeout=_SECONDS_MAX
        )
    except subprocess.TimeoutExpired:
        problem = f"does not answer within {_SECONDS_MAX:g} seconds: see to what it is mounted from"
        raise InvalidInputError(source=repository.folder, problem=problem) from None
    if done.returncode != 0:
        problem = f"{host.user or 'the user of the cell'} cannot write there: make the folder, and give it to that user"
        raise InvalidInputError(source=repository.folder, problem=problem)
