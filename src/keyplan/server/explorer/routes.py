"""The routes of the explorer: a request is read as its operation says; a page, JSON or a stream goes out."""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from keyplan.access import OnKeySpace, OnOperation
from keyplan.codec import SecretCipher
from keyplan.engine import SYSTEM_CLOCK, Clock, Engine
from keyplan.errors import AccessDeniedError, InvalidArgumentError, KeyplanError
from keyplan.operations import Act, Answered, CallerKind, Operation, operations_of
from keyplan.server.access import Access, Caller, Role, caller_of, require_admin
from keyplan.server.answers import AnswerError
from keyplan.server.confined import CallerStore
from keyplan.server.explorer.answers import (
    AreaPage,
    KeyPage,
    ListPage,
    LivePage,
    Overview,
    RawPage,
    ReportPage,
    RevealedPage,
    TreePage,
)
from keyplan.server.explorer.areas import Areas, SeenKeySpaces
from keyplan.server.explorer.bounds import LIMIT_DEFAULT
from keyplan.server.explorer.keys import key_page, revealed_page
from keyplan.server.explorer.layouts import LayoutBook
from keyplan.server.explorer.links import BASE, WHOLE_STORE, overview_link
from keyplan.server.explorer.live import LiveSource, LiveStreams, RawSource, TypedSource, live_page, raw_live_page
from keyplan.server.explorer.operations import ExplorerOperations
from keyplan.server.explorer.overview import area_page, overview
from keyplan.server.explorer.presentation import STATIC_FILES, answer, failed, static_file
from keyplan.server.explorer.raw_keys import raw_page
from keyplan.server.explorer.report_pages import report_page
from keyplan.server.explorer.requests import FORMAT, searched_key, wants_json
from keyplan.server.explorer.trees import ItemRequest, list_page, tree_page
from keyplan.server.logs import LOGGER
from keyplan.server.operations import Endpoint, Responder
from keyplan.server.service import ServiceContext

__all__ = ["Explorer", "ExplorerResponder", "areas_of_callers"]

AreasOf = Callable[[Caller, CallerStore], Areas]
"""Of a caller and their store, the areas that they see."""

_OPERATIONS: Final = operations_of(ExplorerOperations)
_TEMPLATES: Final = {
    "store": "overview.html",
    "area": "area.html",
    "report": "report.html",
    "tree": "tree.html",
    "entries": "list.html",
    "key": "key.html",
    "reveal": "revealed.html",
    "raw": "raw.html",
    "live": "live.html",
    "raw_live": "live.html",
}
_REVEAL: Final = _OPERATIONS["reveal"]
_ON_REVEAL: Final = OnOperation(_REVEAL.name)
_STREAMS: Final = frozenset({"changes", "raw_changes"})


NOTHING_THERE: Final = AnswerError(404, "not_found", "there is nothing here that you may look at")


class Explorer(ExplorerOperations):
    """The operations over one store's areas. `keys` open secrets; `may_reveal`: pages lead to where that is done."""

    def __init__(
        self, areas: Areas, keys: SecretCipher | None = None, *, may_reveal: bool = False, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self._clock = clock
        self._areas = areas
        self._keys = keys
        self._may_reveal = may_reveal

    def enter(self) -> Answered[None]:
        return Answered(None, headers={"Location": overview_link()})

    def find(self, *, key: str = "", spelling: str = "text", area: str = "") -> Answered[None]:
        raw_key = searched_key(key, spelling)
        if area not in {"", WHOLE_STORE}:
            return Answered(None, headers={"Location": self._areas.named(area).links.key(raw_key)})
        # Why elsewhere: of the whole store, it is the page in the key space that the key lies in.
        home, own_key = self._areas.home_of(raw_key)
        return Answered(None, headers={"Location": home.links.key(own_key)})

    def store(self, *, page: str = "") -> Overview:
        return overview(self._areas, page)

    def area(self, area: str) -> AreaPage:
        return area_page(self._areas, area)

    def report(self, area: str, layout: str, *, page: str = "") -> ReportPage:
        return report_page(self._areas, area, layout, page, self._clock)

    def tree(
        self,
        area: str,
        layout: str,
        item: str,
        *,
        fields: tuple[str, ...] = (),
        starts_with: str = "",
        page: str = "",
        limit: int = LIMIT_DEFAULT,
    ) -> TreePage:
        return tree_page(self._areas, ItemRequest(area, layout, item, fields, starts_with, page, limit))

    def entries(
        self,
        area: str,
        layout: str,
        item: str,
        *,
        fields: tuple[str, ...] = (),
        starts_with: str = "",
        page: str = "",
        limit: int = LIMIT_DEFAULT,
    ) -> ListPage:
        return list_page(self._areas, ItemRequest(area, layout, item, fields, starts_with, page, limit))

    def key(self, area: str, *, raw_key: bytes = b"") -> KeyPage:
        return key_page(self._areas, area, raw_key, may_reveal=self._may_reveal)

    def reveal(self, area: str, layout: str, *, raw_key: bytes) -> RevealedPage:
        return revealed_page(self._areas, area, layout, raw_key, self._keys)

    def raw(self, area: str, *, prefix: bytes = b"", page: bytes | None = None, limit: int = LIMIT_DEFAULT) -> RawPage:
        return raw_page(self._areas, area, prefix, start=page, limit=limit)

    def live(self, area: str, layout: str, item: str, *, fields: tuple[str, ...] = ()) -> LivePage:
        return live_page(self._areas, ItemRequest(area, layout, item, fields))

    def raw_live(self, area: str, *, prefix: bytes = b"") -> LivePage:
        return raw_live_page(self._areas, area, prefix)

    def changes(
        self, area: str, layout: str, item: str, *, fields: tuple[str, ...] = (), after: str = ""
    ) -> LiveSource:
        return TypedSource(self._areas, ItemRequest(area, layout, item, fields), after=after)

    def raw_changes(self, area: str, *, prefix: bytes = b"", after: str = "") -> LiveSource:
        return RawSource(self._areas, area, prefix, after=after)


def areas_of_callers(registry: Engine, access: Access, book: LayoutBook) -> AreasOf:
    """Return what makes the areas that a caller sees of their store, and of the registry that says whose its keys are."""

    def areas_of(caller: Caller, store: CallerStore) -> Areas:
        def sees(name: str, application: str | None) -> bool:
            return access.allows(caller, Act.READ, OnKeySpace(name, application))

        return Areas(store, SeenKeySpaces(registry, sees), book)

    return areas_of


class ExplorerResponder(Responder):
    """Answers in pages, in JSON or in streams; failures are pages, too. `is_for_admins`: only administrators may look."""

    words_beside: ClassVar = {"format": FORMAT}

    def __init__(
        self, context: ServiceContext, areas_of: AreasOf, streams: LiveStreams, *, is_for_admins: bool
    ) -> None:
        super().__init__(context)
        self._confined = context
        self._areas_of = areas_of
        self._streams = streams
        self._is_for_admins = is_for_admins

    def all_routes(self) -> list[BaseRoute]:
        """Return the routes of the operations, and of the files that pages need."""
        return [
            *self.routes(_OPERATIONS.values()),
            *(Route(f"{BASE}/static/{name}", _static(name)) for name in STATIC_FILES),
        ]

    async def admit(self, request: Request, operation: Operation) -> Explorer:
        if self._is_for_admins:
            require_admin(request)
        caller = caller_of(request)
        assert caller is not None, "the gate lets nobody in here without one"
        areas = self._areas_of(caller, await self._confined.store_of(caller))
        return Explorer(areas, self.context.secrets, may_reveal=self._may_reveal(caller), clock=self.context.clock)

    def _may_reveal(self, caller: Caller) -> bool:
        access = self.context.access
        is_admin = access.policy is not None or caller.role is Role.ADMIN
        return self.context.audit.log is not None and is_admin and access.allows(caller, _REVEAL.needs.act, _ON_REVEAL)

    async def decide(self, request: Request, operation: Operation, arguments: Mapping[str, Any]) -> None:
        if operation.caller is CallerKind.ADMINISTRATOR and self.context.access.policy is None:
            require_admin(request)
        await super().decide(request, operation, arguments)
        # Why behind it: whoever may not is told that, and not how the server was started.
        if operation.discloses is not None and self.context.audit.log is None:
            problem = "secrets are shown where an audit log notes it: serve with --audit-log FILE"
            raise AnswerError(501, "no_audit_log", problem)

    async def respond(self, request: Request, operation: Operation) -> Response:
        try:
            return await super().respond(request, operation)
        except (AnswerError, KeyplanError) as error:
            # Why not that it is refused: what somebody may not see is not there for them. What an operation is, is no secret.
            is_hidden = isinstance(error, AccessDeniedError) and error.facts.get("where") != str(_ON_REVEAL)
            answered = failed(request, NOTHING_THERE if is_hidden else error)
            if answered.status_code >= 500:
                facts = {"request_id": request.scope.get("keyplan.request_id"), "error": str(error)}
                LOGGER.error("a request failed", extra={"facts": facts})
            return answered

    async def perform(
        self, request: Request, operation: Operation, target: Any, arguments: Mapping[str, Any]
    ) -> Response:
        name = operation.attribute
        method = getattr(target, name)
        if name in _STREAMS:
            begun = {**arguments, "after": _after(request, arguments.get("after", ""))}
            caller = caller_of(request)
            assert caller is not None, "as in `admit`"
            return await self._streams.open(lambda: method(**begun), who=caller.name)
        # Why a thread: a page is many short reads, or a count.
        found = await self.context.run(method, **arguments)
        if name in _TEMPLATES:
            return answer(request, _TEMPLATES[name], found)
        href = found.headers["Location"]
        return RedirectResponse(
            f"{href}&format=json" if name == "find" and wants_json(request) else href, operation.status
        )


def _after(request: Request, asked: str) -> str:
    """Where a stream begins: behind the last event that the client has read, which browsers say when they come back."""
    last = request.headers.get("last-event-id", "")
    if not last.isascii():
        raise InvalidArgumentError(argument="Last-Event-ID", problem="it is not the id of an event")
    return last or asked


def _static(name: str) -> Endpoint:
    async def endpoint(_request: Request) -> Response:
        return static_file(name)

    return endpoint
