"""What makes a node archive its log, and begin from a backup: pgBackRest's configuration, and Patroni's, as values.

The command that archives is the same on every node, and so stands in the cluster's dynamic configuration. PostgreSQL runs it
in the data folder, from which each node's own file is reached. What reads from the archive names that file, and is each
node's own.
"""

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from keyplan.apps.patroni.backups.records import Archive, Recovery
from keyplan.codec import Secret

__all__ = [
    "ARCHIVE_FILE",
    "PASSWORD_FILE",
    "SOURCE_FILE",
    "UNLESS_MISSING",
    "AccessKeys",
    "archiving",
    "fetching",
    "pgbackrest_configuration",
    "recovering",
    "renewal",
]

ARCHIVE_FILE: Final = "pgbackrest.conf"
"""Beside a node's home: where its own log goes."""
SOURCE_FILE: Final = "pgbackrest-source.conf"
"""Where the backup lies that its cluster was made from."""
PASSWORD_FILE: Final = "pgbackrest.pgpass"  # noqa: S105  # Why: it is a file's name.

_DATA_TO_NODE: Final = "$PWD/../.."
"""From the data folder, which PostgreSQL's commands run in, to the node's."""
_PROCESSES: Final = 2
"""How many files pgBackRest reads at a time. Why no more: PostgreSQL answers on the same machine meanwhile."""
UNLESS_MISSING: Final = "|| { [ $? = 1 ] && exit 1; exit 255; }"
"""What ends a recovery whose archive cannot be read.

Why: PostgreSQL takes each exit code below 126 for the end of the log, promotes, and leaves out the rest without a word.
pgBackRest's is 1 where the archive has no such segment, and another one for what fails.
"""
_PUSH_QUEUE: Final = 8
"""How many segments may be sent to a bucket at a time, which takes a round trip for each."""


class AccessKeys(NamedTuple):
    """What a bucket is opened with."""

    key: Secret[str] = Secret("")
    secret: Secret[str] = Secret("")


def pgbackrest_configuration(archive: Archive, keys: AccessKeys, *, home: Path, port: int, user: str) -> str:
    """Return the text of pgBackRest's file for a node whose PostgreSQL listens at a port, and has this superuser."""
    repository, own = archive.policy.repository, home / "pgbackrest"
    lines = [
        "[global]",
        f"repo1-path={repository.folder}",
        f"repo1-retention-full={archive.policy.keep}",
        f"lock-path={own / 'lock'}",
        f"log-path={own / 'log'}",
        f"spool-path={own / 'spool'}",
        "log-level-console=off",
        "log-level-stderr=error",
        "log-level-file=off",
        "start-fast=y",
        "compress-type=lz4",
        f"process-max={_PROCESSES}",
    ]
    if (store := repository.s3) is not None:
        lines += [
            "repo1-type=s3",
            f"repo1-s3-bucket={store.bucket}",
            f"repo1-s3-endpoint={store.endpoint}",
            f"repo1-s3-region={store.region}",
            f"repo1-s3-key={keys.key.reveal()}",
            f"repo1-s3-key-secret={keys.secret.reveal()}",
            f"repo1-s3-uri-style={'path' if store.is_path_style else 'host'}",
            *([f"repo1-storage-ca-file={store.authority}"] if store.authority else []),
            # Why to a bucket alone: PostgreSQL's archiver sends one segment at a time, and waits for each.
            "archive-async=y",
            "[global:archive-push]",
            f"process-max={_PUSH_QUEUE}",
        ]
    lines += [f"[{archive.stanza}]", f"pg1-path={home / 'data'}", f"pg1-port={port}", f"pg1-user={user}"]
    return "\n".join(lines) + "\n"


def archiving(archive: Archive) -> dict[str, Any]:
    """Return what changes in a cluster's dynamic configuration so that its leader archives."""
    command = f'pgbackrest --config="{_DATA_TO_NODE}/{ARCHIVE_FILE}" --stanza={archive.stanza}'
    return {
        "postgresql": {
            "parameters": {
                "archive_mode": "on",
                "archive_command": f'{command} archive-push "%p"',
                "archive_timeout": archive.policy.archive_seconds,
            }
        }
    }


def fetching(stanza: str, file: Path) -> str:
    """Return the command by which PostgreSQL, and Patroni before it rewinds, fetch a segment of an archive."""
    return f'{shlex.join(["pgbackrest", f"--config={file}", f"--stanza={stanza}", "archive-get"])} %f "%p"'


def recovering(recovery: Recovery, *, folder: Path, roles: Sequence[str]) -> dict[str, Any]:
    """Return how the first node of a cluster makes its data, for `bootstrap` of Patroni. `folder` is the node's.

    `roles` are whom the new cluster's programs log in as.
    """
    stanza = recovery.archive.stanza
    file, data = folder / SOURCE_FILE, folder / "home" / "data"
    # Why no recovery settings of pgBackRest's: they would lie in postgresql.auto.conf, and count before those of the cluster.
    command = [
        *("pgbackrest", f"--config={file}", f"--stanza={stanza}", f"--set={recovery.label}"),
        *("--type=none", f"--pg1-path={data}", "restore"),
    ]
    settings = {
        "restore_command": f"{fetching(stanza, file)} {UNLESS_MISSING}",
        # Why the latest: it holds all former ones up to where each was left, so that a time before a failover is on it.
        "recovery_target_timeline": "latest",
        "recovery_target_action": "promote",
    }
    if recovery.target:
        settings["recovery_target_time"] = recovery.target
    method = {"command": shlex.join(command), "no_params": True, "recovery_conf": settings}
    return {"method": "pgbackrest", "pgbackrest": method, "post_bootstrap": renewal(roles)}


def renewal(roles: Sequence[str]) -> str:
    """Return a command that lets passwords of roles count again. Patroni gives them some, and leaves the time when they end."""
    # Why quotes are doubled: who makes a cluster from one that was adopted gives the names.
    names = ", ".join("'{}'".format(role.replace("'", "''")) for role in roles)
    statement = (
        "DO $$ DECLARE role text; BEGIN "  # noqa: S608  # Why: there is no server yet that could be given parameters.
        f"FOR role IN SELECT rolname FROM pg_roles WHERE rolname IN ({names}) "
        "LOOP EXECUTE format('ALTER ROLE %I VALID UNTIL ''infinity''', role); END LOOP; END $$"
    )
    return shlex.join(["psql", "-XAtq", "-v", "ON_ERROR_STOP=1", "-c", statement])
