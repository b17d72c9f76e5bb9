r"""Long work of applications in a store, for who looks at its jobs: a record for each, which guards every commit of it.

00 6b 6a <name>    the work of this name is under way
"""

import msgspec

from keyplan.jobs import JobRecord
from keyplan.layout import Layout, Table

__all__ = ["ApplicationJob", "ApplicationJobs"]


class ApplicationJob(JobRecord, frozen=True, kw_only=True):
    """A job of an application: what it works on, in words, and what else the application keeps of it."""

    subject: str
    facts: dict[str, str] = msgspec.field(default_factory=dict)


class ApplicationJobs(Layout, root=b"\x00kj"):
    """The jobs of applications that are under way in this store."""

    jobs = Table(b"{name:tail(bytes_max=500)}", key=bytes, value=ApplicationJob)
