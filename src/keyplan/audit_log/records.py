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
from typing import Annotated, Any, Final

import msgspec

from keyplan.audit_log.chain import Link

__all__ = [
    "LINE_BYTES_MAX",
    "REVISIONS_MAX",
    "Asker",
    "AuditRecord",
    "Event",
    "RemovedFile",
    "TornEnd",
    "digest_of_line",
    "line_of",
    "link_of",
    "record_in",
    "sound",
    "time_text",
]

LINE_BYTES_MAX: Final = 1 << 17
"""Why: twice the longest line that is written, of characters that JSON has six bytes for; a longer one is somebody else's."""

REVISIONS_MAX: Final = 16
"""Why: an operation makes one commit, or a few; one that makes thousands tells the first and how many there were."""

_SUBJECT_MAX: Final = 4_000
"""Characters. Why: a subject names what was changed, and a request may name thousands."""

_NAME_MAX: Final = 400
"""Characters of every other text. Why: a session's user or a peer's address is whatever a client says."""


class Event(StrEnum):
    """What a line tells of.

    BEGUN: a change is about to be made, or something to be disclosed; a line that names its number in `of` tells how it ended.
    DONE: it was made. FAILED: it was refused after it was allowed, or failed. UNKNOWN: nobody knows whether it was made.
    REFUSED: somebody asked for what is kept from them, and did not get it. OPENED, CLOSED: a server began to write here, and
    ended. TORN: what stands before this line was not written whole. REMOVED: an older file is about to be removed, because no
    more are kept.
    """

    BEGUN = auto()
    DONE = auto()
    FAILED = auto()
    UNKNOWN = auto()
    REFUSED = auto()
    OPENED = auto()
    CLOSED = auto()
    TORN = auto()
    REMOVED = auto()


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


class RemovedFile(msgspec.Struct, frozen=True):
    """An older file that is removed: its name, the numbers of its first and last line, and the digest of the last."""

    schema_name = "AuditRemovedFile"

    file: str
    first: int
    last: int
    digest: str


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
    removed: RemovedFile | None = None
    previous: str


_DECODER: Final = msgspec.json.Decoder(AuditRecord)
_ENCODER: Final = msgspec.json.Encoder()


def time_text(seconds: float) -> str:
    """Return a moment as lines have it: in UTC, to the microsecond, so that texts sort as times do."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def sound(name: str, value: Any) -> Any:
    """Return the value of a field as a line can hold it: a very long text is cut, its length and SHA-256 in place of the rest.

    Why by name: a subject may be longer than other texts. Half characters become escapes.
    """
    if not isinstance(value, str) or isinstance(value, Event):
        return value
    most = _SUBJECT_MAX if name == "subject" else _NAME_MAX
    text = value if value.isascii() else value.encode("utf-8", "backslashreplace").decode()
    if len(text) <= most:
        return text
    return f"{text[:most]}… ({len(text)} characters, SHA-256 {hashlib.sha256(text.encode()).hexdigest()})"


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
