"""A key space registry behind HTTP, used like one in the store: `HttpKeySpaces("http://127.0.0.1:8210", token=...)`.

It is what `open_key_space(..., registry=...)` takes. Needs the extra `server`, for httpx.
"""

from keyplan.client.registry import HttpKeySpaces

__all__ = ["HttpKeySpaces"]
