"""Long work in a store: held by one process by a record there, in guarded batches, at a pace, taken up again by anybody."""

from keyplan.jobs.batches import (
    BATCH_KEYS_MAX,
    CommitRoom,
    Lookup,
    batch_of,
    batches_of,
    cut,
    halved,
    joined,
    operations_max,
    read_batches,
    size_of,
)
from keyplan.jobs.job import JOB_BYTES_MAX, NO_CONDITIONS, Conditions, FixedConditions, Held, Job, Seen, as_read, look
from keyplan.jobs.pace import UNPACED, UNSTOPPED, Pace, Progress, Stop, StopCheck, Teller
from keyplan.jobs.record import Holder, JobRecord, begun, command_line, kept_command, this_process
from keyplan.jobs.yielding import YieldingPace

__all__ = [
    "BATCH_KEYS_MAX",
    "JOB_BYTES_MAX",
    "NO_CONDITIONS",
    "UNPACED",
    "UNSTOPPED",
    "CommitRoom",
    "Conditions",
    "FixedConditions",
    "Held",
    "Holder",
    "Job",
    "JobRecord",
    "Lookup",
    "Pace",
    "Progress",
    "Seen",
    "Stop",
    "StopCheck",
    "Teller",
    "YieldingPace",
    "as_read",
    "batch_of",
    "batches_of",
    "begun",
    "command_line",
    "cut",
    "halved",
    "joined",
    "kept_command",
    "look",
    "operations_max",
    "read_batches",
    "size_of",
    "this_process",
]
