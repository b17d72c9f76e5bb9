"""What is kept of a cluster's backups: where they go, which there are, how its archive is, what a cell is to do on a node."""

import re
import secrets
from pathlib import PurePosixPath
from typing import Annotated, Any, ClassVar, Final

from msgspec import Meta, Struct, field

__all__ = [
    "Archive",
    "ArchiveState",
    "Backup",
    "BackupBook",
    "BackupPolicy",
    "NodeTask",
    "Recovery",
    "Repository",
    "S3Store",
    "Span",
    "TaskAnswer",
    "Verification",
    "new_archive",
]

_DIGITS: Final = 4
_NAME_BYTES_MAX: Final = 40
"""Why: a stanza is a part of names of files, with others around it."""


class S3Store(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """A bucket of Amazon's S3, or of what speaks as it does.

    What opens it is each cell's own, by its name (`--bucket-keys`). `authority` is a file with the certificates of who may sign
    the endpoint's, where the machine does not know them. With `is_path_style` the bucket is a part of the path, and not of the
    host's name.
    """

    schema_name: ClassVar[str] = "BrokerBucket"
    bucket: str
    endpoint: str
    region: str = "us-east-1"
    authority: str = ""
    is_path_style: bool = False


class Repository(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Where backups lie: a folder that the machines of all cells have, or with `s3` one in a bucket. The folder is absolute."""

    schema_name: ClassVar[str] = "BrokerRepository"
    folder: str
    s3: S3Store | None = None

    def __post_init__(self) -> None:
        path = PurePosixPath(self.folder)
        if not path.is_absolute() or ".." in path.parts or "\n" in self.folder or str(path) != self.folder:
            raise ValueError("the folder of a repository is an absolute path, as /srv/backups")
        for text in () if self.s3 is None else (self.s3.bucket, self.s3.endpoint, self.s3.region, self.s3.authority):
            # Trap: each is a line of pgBackRest's configuration.
            if re.search(r"[\x00-\x20]", text):
                raise ValueError("no part of a bucket's place has white space")


class BackupPolicy(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Where a cluster's backups go, when one is made, and how many are kept.

    `keep` full backups are kept, with the log from the oldest of them on. One is made every `every_hours`, or with 0 when
    somebody asks; a full one when the last of these is `full_every_hours` old, and otherwise what has changed since the last.
    Where somebody writes, the log is archived at least every `archive_seconds`. Each `verify_every`th is verified: 1 is every
    one, 0 those that somebody asks for.
    """

    schema_name: ClassVar[str] = "BrokerBackupPolicy"
    repository: Repository
    keep: Annotated[int, Meta(ge=1, le=1_000)] = 2
    every_hours: Annotated[float, Meta(ge=0, le=8_784)] = 24.0
    full_every_hours: Annotated[float, Meta(ge=0, le=8_784)] = 168.0
    archive_seconds: Annotated[int, Meta(ge=1, le=86_400)] = 60
    verify_every: Annotated[int, Meta(ge=0, le=1_000)] = 7


class Archive(Struct, kw_only=True, frozen=True):
    """The backups and the log of one cluster from its making to its deletion. `stanza` is pgBackRest's name of it."""

    schema_name: ClassVar[str] = "BrokerArchive"
    # Why a pattern: books are looked up by it. The end is one that no line's end comes behind, in every dialect.
    stanza: Annotated[str, Meta(pattern=r"^[0-9A-Za-z_-]{1,255}$(?!\n)")]
    policy: BackupPolicy


def new_archive(instance: str, policy: BackupPolicy) -> Archive:
    """Return one that nobody had before: another cluster of the same id has another archive."""
    name = re.sub(r"[^0-9A-Za-z_-]+", "-", instance)[:_NAME_BYTES_MAX].strip("-")
    return Archive(stanza=f"{name or 'cluster'}-{secrets.token_hex(_DIGITS)}", policy=policy)


class Recovery(Struct, kw_only=True, frozen=True):
    """What a cluster is made from: a backup of an archive, and the log up to a time, or to its end where `target` is empty.

    `target` is UTC, as PostgreSQL reads it. `configuration` is the dynamic one of the cluster that was backed up, and `version`
    the major version of its PostgreSQL; empty: not known.
    """

    schema_name: ClassVar[str] = "BrokerRecovery"
    archive: Archive
    label: str
    target: str = ""
    configuration: dict[str, Any] = field(default_factory=dict)
    version: str = ""


class ArchiveState(Struct, kw_only=True):
    """What a cell says of a node's archive. Only that of the node that leads says something of its cluster.

    `last_wal` is the newest segment of the log that is archived, and `safe_until` when it was complete: what was committed by
    then is in the archive, as far as that is whole. It is since `whole_since`, a place in the log as the last 16 digits of a
    segment's name; empty where nobody led before. `waiting` segments are not archived yet, the oldest of them since
    `waiting_since`. Times are seconds of Unix time.
    """

    stanza: str
    last_wal: str = ""
    safe_until: float = 0.0
    whole_since: str = ""
    waiting: int = 0
    waiting_since: float = 0.0


class Backup(Struct, kw_only=True):
    """A backup, as pgBackRest tells of it. `kind` is `full`, `diff` or `incr`; with `has_errors` pages of it were damaged.

    Times are seconds of Unix time.
    """

    label: str
    kind: str
    began_at: float
    ended_at: float
    size_bytes: int = 0
    stored_bytes: int = 0
    first_wal: str = ""
    last_wal: str = ""
    has_errors: bool = False


class Verification(Struct, kw_only=True):
    """That an instance was made of a backup, and asked, until `verified_at`, in seconds of Unix time; it took `seconds`.

    `problem` is why it could not be made, or did not answer; empty: it did.
    """

    verified_at: float
    seconds: float = 0.0
    problem: str = ""


class Span(Struct, kw_only=True, frozen=True):
    """From when to when an instance had an archive, in seconds of Unix time; it has it still where `until` is 0."""

    since: float
    until: float = 0.0


class BackupBook(Struct, kw_only=True):
    """The backups of one archive as they were found at `looked_at`. It outlives its instance, as they do.

    `service_id`, `plan_id`, `node_count` and `version` are what the instance was. `verifications` are each backup's last, by
    its label.
    `unverified` is how many were made since one was verified. `spans` are when the instance had the archive: from one restore
    in place to the next it has another.
    """

    archive: Archive
    service_id: str = ""
    plan_id: str = ""
    node_count: int = 0
    version: str = ""
    backups: list[Backup] = field(default_factory=list)
    verifications: dict[str, Verification] = field(default_factory=dict)
    unverified: int = 0
    spans: list[Span] = field(default_factory=list)
    looked_at: float = 0.0


class NodeTask(Struct, kw_only=True):
    """What a cell is to do on a node: `backup` makes one of the kind `wanted`, `verify` tries that label.

    `check-room` finds out whether another node of the version `wanted` can be made beside this one, and `check-upgrade` also
    whether that version takes the schema, and the `parameters` of the cluster; `analyze` renews statistics. With an `archive`
    it waits until the node has been told of it.
    """

    id: str
    kind: str
    archive: Archive | None = None
    wanted: str = ""
    parameters: dict[str, str] = field(default_factory=dict)


class TaskAnswer(Struct, kw_only=True):
    """What became of a task: `state` is `running`, `done` or `failed`, after so many `seconds`.

    Of a backup, `backups` are those that there are then. Of a verification, `problem` is what is wrong with the backup, of a
    check what stands in the way; it has failed where nobody could find out.
    """

    id: str
    state: str = "running"
    message: str = ""
    problem: str = ""
    seconds: float = 0.0
    backups: list[Backup] = field(default_factory=list)
