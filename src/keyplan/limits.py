"""Every size, count and time bound that is keyplan's own: the unit in the name, the reason beside it.

An engine's limits stand in its profile instead.
"""

from typing import Final

__all__ = [
    "COMMIT_RETRIES_MAX",
    "COMPILED_ROOTS_MAX",
    "LOOK_THROUGH_ENTRIES_MAX",
    "NOTED_DESCRIPTION_BYTES_MAX",
    "PAGE_RECORDS_DEFAULT",
    "PAGE_RECORDS_MAX",
    "RETRY_SECONDS_FIRST",
    "RETRY_SECONDS_MAX",
    "SCHEDULE_ACTORS_MAX",
    "SCHEDULE_FAILURES_MAX",
    "SCHEDULE_REPLAYS_MAX",
    "SCHEDULE_STEPS_MAX",
    "SCHEDULE_TEXT_MAX",
    "TEXT_ELEMENT_BYTES_MAX",
]

TEXT_ELEMENT_BYTES_MAX: Final = 255
"""A name in a key. Why: two names and their literals still fit LMDB's 511-byte keys, and file systems use the same bound."""

COMPILED_ROOTS_MAX: Final = 64
"""Compiled forms of one layout that are kept. Why: one takes some 100 KB, and a process serves few tenants at a time."""

NOTED_DESCRIPTION_BYTES_MAX: Final = 256 * 1024
"""A layout's description in a store. Why: two of them fit a commit of etcd; a layout of fifty tables has some 50 KB."""

PAGE_RECORDS_DEFAULT: Final = 500
"""Why: the page size that Kubernetes settled on; 500 records of 2 KiB are one MiB."""

PAGE_RECORDS_MAX: Final = 10_000
"""Why: a page is held in memory whole; 10,000 records of 64 KiB, the most one would put there, are 640 MiB."""

LOOK_THROUGH_ENTRIES_MAX: Final = 1_000_000
"""Entries of one index that a write reads to find those of a damaged record. Why: a million take seconds, in one snapshot."""

COMMIT_RETRIES_MAX: Final = 24
"""Why: with the delays below, a transaction gives up after about 10 seconds of losing every race."""

RETRY_SECONDS_FIRST: Final = 0.001
"""Why: a durable commit takes 0.2 to 5 ms; waiting less than one commit only loses again."""

RETRY_SECONDS_MAX: Final = 1.0
"""Why: beyond a second, the caller should know that the record is contended."""

SCHEDULE_ACTORS_MAX: Final = 8
"""Why: actors are the letters a to h in a schedule's string, and three are more than can be explored as a rule."""

SCHEDULE_STEPS_MAX: Final = 2_000
"""Calls of one actor in one run. Why: the longest piece of maintenance on a small store makes some hundred."""

SCHEDULE_TEXT_MAX: Final = 16_384
"""Characters of a schedule's string. Why: the longest schedule of all has room, a letter for each step of each actor."""

SCHEDULE_FAILURES_MAX: Final = 20
"""Failures that an exploration keeps, each of another kind. Why: one is enough to begin with."""

SCHEDULE_REPLAYS_MAX: Final = 500
"""Replays that shortening one schedule may take. Why: 500 of a long run are a second."""

assert RETRY_SECONDS_FIRST < RETRY_SECONDS_MAX
assert PAGE_RECORDS_DEFAULT <= PAGE_RECORDS_MAX
