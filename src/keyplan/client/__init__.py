"""A key space registry behind HTTP, used like one in the store: `HttpKeySpaces("http://127.0.0.1:8210", token=...)`.

It is what `open_key_space(..., registry=...)` takes. `HttpAuditLog` is a server's audit log. Both need the extra `server`, for
httpx.
"""

from keyplan.client.audit_log import HttpAuditLog
from keyplan.client.registry import HttpKeySpaces

__all__ = ["HttpAuditLog", "HttpKeySpaces"]
