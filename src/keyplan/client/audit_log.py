"""The audit log of a keyplan server over HTTP."""

from collections.abc import Iterator

from keyplan.audit_log import PAGE_LINES_MAX, AuditLogOperations, AuditRecord
from keyplan.client.conversation import HttpClient
from keyplan.client.remote import Remote
from keyplan.errors import EngineUnavailableError

__all__ = ["HttpAuditLog"]


class HttpAuditLog(HttpClient, Remote, AuditLogOperations):
    """The audit log that a keyplan server writes. Close it, or use it in a `with` block.

    Every method raises UnauthorizedError, AccessDeniedError without the grant to audit, InvalidInputError where the server
    keeps no log, and EngineUnavailableError.
    """

    engine_name = "audit log over http"

    def records(self, *, after: int = 0) -> Iterator[AuditRecord]:
        """Yield the records behind the line of this number, page by page, up to the last that there is."""
        while page := self.audit_log(after=after, limit=PAGE_LINES_MAX):
            for record in page:
                if record.number <= after:
                    # Why refused: who goes on behind the last line would be told the same for ever.
                    raise EngineUnavailableError(engine=self.engine_name, problem="its audit log tells a line twice")
                after = record.number
                yield record
