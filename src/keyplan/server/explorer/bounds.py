"""What one page may read and show."""

from typing import Final

__all__ = [
    "BYTES_SAMPLE_ENTRIES",
    "COUNT_MAX",
    "KEYSPACES_LIMIT",
    "LIMIT_DEFAULT",
    "LIMIT_MAX",
    "READS_MAX",
    "RECORD_BYTES_MAX",
    "STREAMS_MAX",
    "STREAMS_OF_CALLER_MAX",
    "SUMMARY_CHARACTERS_MAX",
    "UNMANAGED_MAX",
    "VALUE_BYTES_MAX",
]

LIMIT_DEFAULT: Final = 100
LIMIT_MAX: Final = 500
"""Why: more lines than this nobody reads, and their records are held in memory together."""

READS_MAX: Final = 2_000
"""Entries that a list may read for one page. Why: keys of others may lie in between; then it ends early, and says so."""

COUNT_MAX: Final = 1_000
"""Why: a count tells whether a table is small; it must not read a million keys for that."""

BYTES_SAMPLE_ENTRIES: Final = 20
"""Entries whose sizes stand for those of all in an estimate."""

KEYSPACES_LIMIT: Final = 25
"""Key spaces of one page. Why: up to COUNT_MAX keys are read for each of them."""

UNMANAGED_MAX: Final = 25

VALUE_BYTES_MAX: Final = 2_048
"""Bytes of a raw value that are shown."""

RECORD_BYTES_MAX: Final = 256 << 10
"""A record that is longer in JSON is not shown as one."""

SUMMARY_CHARACTERS_MAX: Final = 200

STREAMS_MAX: Final = 64
"""Live views at a time. Why: each holds a watch of the engine and a thread that waits for it."""

STREAMS_OF_CALLER_MAX: Final = 16
"""Why: one caller alone must not keep everybody else from looking."""
