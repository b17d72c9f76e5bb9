"""Recorded histories: what concurrent clients asked and were told, judged against the log. Read `checker` first.

journal = Journal(descriptor, "client 1")
store = Store(HistoryEngine(open_engine(url), journal))      # use it, from several clients, under faults
findings = check_history(History(read_records(path)))        # with the log before, after and between among the records
"""

from keyplan.testing.history.checker import check_history
from keyplan.testing.history.findings import Finding, Wrong
from keyplan.testing.history.journal import Acting, Journal
from keyplan.testing.history.recorder import HistoryEngine
from keyplan.testing.history.records import (
    NEVER,
    Act,
    Compaction,
    Failure,
    Fault,
    History,
    LeaseAct,
    LeaseCall,
    Outcome,
    Read,
    Record,
    Seen,
    SeenCount,
    SeenFence,
    SeenPairs,
    Truth,
    Watched,
    Write,
    encode_record,
    read_records,
    tagged_guard,
    tagged_mutation,
)

__all__ = [
    "NEVER",
    "Act",
    "Acting",
    "Compaction",
    "Failure",
    "Fault",
    "Finding",
    "History",
    "HistoryEngine",
    "Journal",
    "LeaseAct",
    "LeaseCall",
    "Outcome",
    "Read",
    "Record",
    "Seen",
    "SeenCount",
    "SeenFence",
    "SeenPairs",
    "Truth",
    "Watched",
    "Write",
    "Wrong",
    "check_history",
    "encode_record",
    "read_records",
    "tagged_guard",
    "tagged_mutation",
]
