"""Who changed what: a chain of entries that shows when one was changed or removed, and a server's log as a file of lines."""

from keyplan.audit_log.chain import FIRST_PREVIOUS, Chain, ChainVerdict, Head, Link, verified
from keyplan.audit_log.log import LINES_WAITING_MAX, NO_ROTATION, AuditLog, Notice, Rotation
from keyplan.audit_log.operations import PAGE_LINES_MAX, AuditLogOperations
from keyplan.audit_log.reading import FileVerdict, Line, read_lines, verified_files, verified_records
from keyplan.audit_log.records import (
    REVISIONS_MAX,
    Asker,
    AuditRecord,
    Event,
    RemovedFile,
    TornEnd,
    digest_of_line,
    time_text,
)

__all__ = [
    "FIRST_PREVIOUS",
    "LINES_WAITING_MAX",
    "NO_ROTATION",
    "PAGE_LINES_MAX",
    "REVISIONS_MAX",
    "Asker",
    "AuditLog",
    "AuditLogOperations",
    "AuditRecord",
    "Chain",
    "ChainVerdict",
    "Event",
    "FileVerdict",
    "Head",
    "Line",
    "Link",
    "Notice",
    "RemovedFile",
    "Rotation",
    "TornEnd",
    "digest_of_line",
    "read_lines",
    "time_text",
    "verified",
    "verified_files",
    "verified_records",
]
