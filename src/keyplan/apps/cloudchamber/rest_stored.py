"""What the operations on workloads and instances share: rights, names, and conflicts in words (5.4)."""

from collections.abc import Callable
from typing import Any, Final

from keyplan.apps.cloudchamber.refusals import already_exists, newer_version, not_found, permission_denied
from keyplan.apps.cloudchamber.rest_bodies import revision_expected
from keyplan.apps.cloudchamber.rest_routes import AuthenticatedRequest, Handler
from keyplan.apps.cloudchamber.rest_uris import WORKLOADS
from keyplan.errors import AlreadyExistsError, NotFoundError, StaleRecordError
from keyplan.layout import TableView
from keyplan.protobuf import Message

__all__ = ["ONE_WORKLOAD", "READ_FAILURES", "WRITE_FAILURES", "StoredOperations", "revision_if_given"]

READ_FAILURES: Final = "403 404"
WRITE_FAILURES: Final = "400 403 404 409 413"
ONE_WORKLOAD: Final = f"{WORKLOADS}/{{name}}"


class StoredOperations:
    """What operations on workloads and on instances share."""

    def __init__(self, handler: Handler) -> None:
        self.handler = handler
        self.layout = handler.chamber.layout
        self.run = handler.context.run

    async def require_right(self, request: AuthenticatedRequest) -> None:
        """Raise RefusedError (403) unless the caller may modify workloads."""
        if not await self.handler.context.read(self.handler.accounts.holds, request.caller(), "can_modify_workloads"):
            raise permission_denied()

    def spelled(self, name: str, exists: Callable[[str], bool]) -> str:
        """A name as written when there is such a thing, else in lower case (5.1)."""
        return name if name == name.lower() or exists(name) else name.lower()

    def workload(self, request: AuthenticatedRequest) -> str:
        """The workload that a path names."""
        return self.spelled(request.literal(), self.layout.workloads.exists)

    def worded(self, kind: str, name: str, act: Callable[[], Any]) -> Any:
        """Return what `act` returns; what it finds, misses or comes too late for is refused in words."""
        try:
            return act()
        except AlreadyExistsError as error:
            raise already_exists(kind, name) from error
        except NotFoundError as error:
            raise not_found(kind, name) from error
        except StaleRecordError as error:
            if error.facts.get("actual_revision") == 0:
                raise not_found(kind, name) from error
            raise newer_version(kind, name) from error

    def update_record(self, table: str, key: Any, record: Message, expected: int) -> int:
        """Replace a record, damaged or not, that is at the revision expected; return its new one.

        Raises NotFoundError, StaleRecordError.
        """
        view: TableView[Any, Message] = self.layout.view(table)
        return view.update(key, record, expected_revision=expected, damaged_ok=True)


def revision_if_given(request: AuthenticatedRequest) -> int | None:
    """Return the revision in If-Match, or None where there is no such header."""
    return revision_expected(request.http) if "if-match" in request.http.headers else None
