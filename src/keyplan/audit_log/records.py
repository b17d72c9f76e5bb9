"""The lines of a server's audit log: what each says, how it is written and read, and its digest.

    {"number":18,"at":"2026-11-23T09:41:07.123456Z","event":"done","of":17,"who":"ada","known_by":"principal",
     "address":"127.0.0.1","service":"keyspaces","operation":"disableKeySpace","act":"disable","subject":"orders",
     "request":"4f0c…","revisions":[91],"previous":"9b1d…"}

One line each, in this order of fields; what is empty is left out. The digest of a line is the SHA-256 of its bytes, without the
line's end.
"""

import hashlib
from datetime import UTC, datetime
from enum import StrEnum, auto
from typing import Annotated, Final

import msgspec

from keyplan.audit_log.chain import Link

__all__ = [
    "LINE_BYTES_MAX",
    "REVISIONS_MAX",
    "Asker",
    "AuditRecord",
    "Event",
    "TornEnd",
    "bounded",
    "digest_of_line",
    "line_of",
    "link_of",
    "record_in",
    "time_text",
]

LINE_BYTES_MAX: Final = 1 << 17
"""Why: three times the longest line that is written; a longer one was written by somebody else."""

REVISIONS_MAX: Final = 16
"""Why: an operation makes one commit, or a few; one that makes thousands tells the first and how many there were."""

_TEXT_MAX: Final = 4_000
"""Characters. Why: a subject names what was changed, and a request may name thousands."""


class Event(StrEnum):
    """What a line tells of.

    BEGUN: a change is about to be made; a line that names its number in `of` tells how it ended. DONE: it was made. FAILED: it
    was refused after it was allowed, or failed. UNKNOWN: nobody knows whether it was made. OPENED, CLOSED: a server began to
    write here, and ended. TORN: what stands before this line was not written whole.
    """

    BEGUN = auto()
    DONE = auto()
    FAILED = auto()
    UNKNOWN = auto()
    OPENED = auto()
    CLOSED = auto()
    TORN = auto()


class Asker(msgspec.Struct, frozen=True):
    """Who asks, how they are known (`principal`, `token`, `session`, `local`, `anybody`), and where from."""

    who: str = ""
    known_by: str = ""
    address: str = ""


class TornEnd(msgspec.Struct, frozen=True):
    """What a server found behind the last whole line when it began: bytes that a loss of power left, and their SHA-256."""

    schema_name = "AuditTornEnd"

    bytes: int
    sha256: str


class AuditRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line. `of` is the number of the line that told of the change's beginning.

    `revisions` are those of the store after each commit that the change made, the first ones; `commits` is how many there were
    where that is more. `code` says what a change failed with. `previous` is the digest of the line before.
    """

    schema_name = "AuditRecord"

    number: Annotated[int, msgspec.Meta(ge=1)]
    at: str
    event: Event
    of: int = 0
    who: str = ""
    known_by: str = ""
    address: str = ""
    service: str = ""
    operation: str = ""
    act: str = ""
    subject: str = ""
    request: str = ""
    revisions: tuple[int, ...] = ()
    commits: int = 0
    code: str = ""
    torn: TornEnd | None = None
    previous: str


_DECODER: Final = msgspec.json.Decoder(AuditRecord)
_ENCODER: Final = msgspec.json.Encoder()


def time_text(seconds: float) -> str:
    """Return a moment as lines have it: in UTC, to the microsecond, so that texts sort as times do."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def bounded(text: str) -> str:
    """Return a text that a line can hold: a very long one is cut, and its length and SHA-256 stand in place of the rest."""
    sound = text.encode("utf-8", "backslashreplace").decode()
    if len(sound) <= _TEXT_MAX:
        return sound
    digest = hashlib.sha256(sound.encode()).hexdigest()
    return f"{sound[:_TEXT_MAX]}… ({len(sound)} characters, SHA-256 {digest})"


def line_of(record: AuditRecord) -> bytes:
    """Return a record as a line, without the line's end."""
    return _ENCODER.encode(record)


def record_in(line: bytes) -> AuditRecord | None:
    """Return the record of a line; None where it is no line of ours."""
    try:
        return _DECODER.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def digest_of_line(line: bytes) -> str:
    """Return the digest of a line: what the next one names."""
    return hashlib.sha256(line).hexdigest()


def link_of(record: AuditRecord, line: bytes) -> Link:
    """Return a line as a link of the chain."""
    return Link(record.previous, digest_of_line(line))
