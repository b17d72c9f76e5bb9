"""The routes of the explorer: HTTP in, one call that gathers data, a page or JSON out. Nothing is written."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from keyplan.errors import InvalidArgumentError, KeyplanError
from keyplan.server.access import require_admin
from keyplan.server.answers import AnswerError
from keyplan.server.explorer.areas import Areas
from keyplan.server.explorer.keys import key_page
from keyplan.server.explorer.links import BASE, WHOLE_STORE, overview_link
from keyplan.server.explorer.live import LiveStreams, RawSource, TypedSource, live_page, raw_live_page
from keyplan.server.explorer.overview import area_page, overview
from keyplan.server.explorer.presentation import STATIC_FILES, answer, failed, static_file
from keyplan.server.explorer.raw_keys import raw_page
from keyplan.server.explorer.requests import Query, asked_item, wants_json
from keyplan.server.explorer.trees import list_page, tree_page
from keyplan.server.logs import LOGGER
from keyplan.server.service import ServiceContext

__all__ = ["ExplorerRoutes"]

Endpoint = Callable[[Request], Awaitable[Response]]
D = TypeVar("D", bound=Struct)

_ITEM_QUERY = ("field", "starts_with", "page", "limit")


class ExplorerRoutes:
    """The pages over one store's areas. `is_for_admins`: only administrators may look."""

    def __init__(self, context: ServiceContext, areas: Areas, streams: LiveStreams, *, is_for_admins: bool) -> None:
        self._context = context
        self._areas = areas
        self._streams = streams
        self._is_for_admins = is_for_admins

    def routes(self) -> list[BaseRoute]:
        """Return the routes."""
        area = f"{BASE}/in/{{area}}"
        item = "{layout}/{item}"
        return [
            self._route(BASE, self.enter),
            self._route(f"{BASE}/", self.overview),
            self._route(f"{BASE}/find", self.find),
            self._route(f"{area}/", self.area),
            self._route(f"{area}/tree/{item}", self.tree),
            self._route(f"{area}/list/{item}", self.entries),
            self._route(f"{area}/live/{item}", self.live),
            self._route(f"{area}/changes/{item}", self.changes),
            self._route(f"{area}/key", self.key),
            self._route(f"{area}/raw", self.raw),
            self._route(f"{area}/live", self.raw_live),
            self._route(f"{area}/changes", self.raw_changes),
            *(Route(f"{BASE}/static/{name}", _static(name)) for name in STATIC_FILES),
        ]

    def _route(self, path: str, endpoint: Endpoint) -> Route:
        """A route whose failures are pages, too."""

        async def guarded(request: Request) -> Response:
            try:
                if self._is_for_admins:
                    require_admin(request)
                return await endpoint(request)
            except (AnswerError, KeyplanError) as error:
                answered = failed(request, error)
                if answered.status_code >= 500:
                    facts = {"request_id": request.scope.get("keyplan.request_id"), "error": str(error)}
                    LOGGER.error("a request failed", extra={"facts": facts})
                return answered

        return Route(path, guarded, methods=["GET"])

    async def _answer(self, request: Request, template: str, gather: Callable[..., D], *arguments: object) -> Response:
        # Why a thread: a page is many short reads, or a count.
        return answer(request, template, await self._context.run(gather, self._areas, *arguments))

    # ---- pages -----------------------------------------------------------------------------------------------------------

    async def enter(self, request: Request) -> Response:
        Query(request, ())
        return RedirectResponse(overview_link(), 307)

    async def overview(self, request: Request) -> Response:
        query = Query(request, ("page",))
        return await self._answer(request, "overview.html", overview, query.word("page"))

    async def area(self, request: Request) -> Response:
        Query(request, ())
        return await self._answer(request, "area.html", area_page, request.path_params["area"])

    async def tree(self, request: Request) -> Response:
        asked = asked_item(request, Query(request, _ITEM_QUERY))
        return await self._answer(request, "tree.html", tree_page, asked)

    async def entries(self, request: Request) -> Response:
        asked = asked_item(request, Query(request, _ITEM_QUERY))
        return await self._answer(request, "list.html", list_page, asked)

    async def key(self, request: Request) -> Response:
        raw_key = Query(request, ("hex",)).octets("hex")
        return await self._answer(request, "key.html", key_page, request.path_params["area"], raw_key)

    async def raw(self, request: Request) -> Response:
        query = Query(request, ("hex", "page", "limit"))
        start = query.octets("page") if query.word("page") else None

        def gather(areas: Areas, area: str) -> Struct:
            return raw_page(areas, area, query.octets("hex"), start=start, limit=query.limit())

        return await self._answer(request, "raw.html", gather, request.path_params["area"])

    async def find(self, request: Request) -> Response:
        """Lead to the page of a raw key: in the area asked for, or of the whole store, in the key space that it lies in."""
        query = Query(request, ("key", "as", "area"))
        raw_key, area_name = query.raw_key(), query.word("area") or WHOLE_STORE

        def target() -> str:
            if area_name != WHOLE_STORE:
                return self._areas.named(area_name).links.key(raw_key)
            area, key = self._areas.home_of(raw_key)
            return area.links.key(key)

        href = await self._context.run(target)
        return RedirectResponse(f"{href}&format=json" if wants_json(request) else href, 303)

    # ---- live ------------------------------------------------------------------------------------------------------------

    async def live(self, request: Request) -> Response:
        asked = asked_item(request, Query(request, ("field",)))
        return await self._answer(request, "live.html", live_page, asked)

    async def raw_live(self, request: Request) -> Response:
        query = Query(request, ("hex",))
        area = request.path_params["area"]
        return await self._answer(request, "live.html", raw_live_page, area, query.octets("hex"))

    async def changes(self, request: Request) -> Response:
        query = Query(request, ("field", "after"))
        asked, after = asked_item(request, query), _after(request, query)
        return await self._streams.open(lambda: TypedSource(self._areas, asked, after=after))

    async def raw_changes(self, request: Request) -> Response:
        query = Query(request, ("hex", "after"))
        area, prefix, after = request.path_params["area"], query.octets("hex"), _after(request, query)
        return await self._streams.open(lambda: RawSource(self._areas, area, prefix, after=after))


def _after(request: Request, query: Query) -> str:
    """Where a stream begins: behind the last event that the client has read, which browsers say when they come back."""
    last = request.headers.get("last-event-id", "")
    if not last.isascii():
        raise InvalidArgumentError(argument="Last-Event-ID", problem="it is not the id of an event")
    return last or query.word("after")


def _static(name: str) -> Endpoint:
    async def endpoint(_request: Request) -> Response:
        return static_file(name)

    return endpoint
