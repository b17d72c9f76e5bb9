"""What a server answers of its audit log: the operation, for the server and for its clients."""

from typing import Annotated, Final

from keyplan.audit_log.records import AuditRecord
from keyplan.operations import ITSELF, Act, CallerKind, Need, Schema, operation

__all__ = ["PAGE_LINES_MAX", "AuditLogOperations"]

_NUMBER_MAX: Final = (1 << 63) - 1

PAGE_LINES_MAX: Final = 1_000
"""Why: so many lines are half a megabyte as a rule, and are read in a few milliseconds."""


class AuditLogOperations:
    """The operations on a server's audit log."""

    @operation(
        "GET",
        "/audit-log",
        name="getAuditLog",
        needs=Need(Act.AUDIT, ITSELF),
        answers="Lines, by number; 404 where the server has no such log.",
        failures=(404,),
        caller=CallerKind.ADMINISTRATOR,
    )
    def audit_log(
        self,
        *,
        after: Annotated[int, Schema("Behind the line of this number.", minimum=0, maximum=_NUMBER_MAX, default=0)] = 0,
        limit: Annotated[int, Schema("At most so many.", minimum=1, maximum=PAGE_LINES_MAX, default=100)] = 100,
    ) -> list[AuditRecord]:
        """Read the audit log of the server, its older files too: about a megabyte at once, and nothing behind the last line."""
        raise NotImplementedError
