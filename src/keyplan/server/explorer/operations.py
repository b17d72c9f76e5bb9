"""The operations of the explorer, each declared: pages with their JSON twins, a search, streams of changes.

Routes and the OpenAPI description are made of it. The schemas of the answers are made from the data's types.
"""

from collections.abc import Callable
from inspect import cleandoc
from typing import Annotated, Any, Final, TypeVar

import msgspec

from keyplan.operations import (
    ITSELF,
    NOTHING,
    Act,
    Answered,
    AnswerForm,
    CallerKind,
    Components,
    Contract,
    Disclosure,
    In,
    Need,
    Schema,
    described,
    needs_of,
    operation,
    operations_of,
)
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
from keyplan.server.explorer.bounds import LIMIT_DEFAULT
from keyplan.server.explorer.links import BASE
from keyplan.server.explorer.live import LiveSource
from keyplan.server.explorer.requests import HEX, HEX_OR_NONE, LIMIT, SPELLING

__all__ = ["DESCRIPTION", "NEEDS", "ExplorerOperations"]

F = TypeVar("F", bound=Callable[..., Any])

_SCHEMA_PREFIX: Final = "Explorer"
_IN: Final = f"{BASE}/in/{{area}}"
_ITEM: Final = "{layout}/{item}"
_READS: Final = Need(Act.READ, NOTHING)
"""Why on nothing: everybody is shown what they may read, and the rest is not there."""


class _DataOf:
    """The schema of a page's data. Why under a name of its own: other services have a KeySpace, too."""

    def __init__(self, kind: type[msgspec.Struct]) -> None:
        self._kind = kind

    def add_schema_to(self, components: Components) -> dict[str, Any]:
        """Add the schemas of the data and of its parts, and return the reference to it."""
        template = f"#/components/schemas/{_SCHEMA_PREFIX}{{name}}"
        _, found = msgspec.json.schema_components([self._kind], ref_template=template)
        for name, schema in found.items():
            named = {**schema, "title": name, "description": cleandoc(schema["description"])}
            components[f"{_SCHEMA_PREFIX}{name}"] = named
        return {"$ref": f"#/components/schemas/{_SCHEMA_PREFIX}{self._kind.__name__}"}


def _in_both_forms(found: type[msgspec.Struct]) -> AnswerForm:
    return AnswerForm(_as_it_is, _as_it_is, _DataOf(found), media={"text/html": str})


def _page(path: str, name: str, found: type[msgspec.Struct], *failures: int) -> Callable[[F], F]:
    """Declare a page: HTML for people, its data in JSON for programs."""
    answers = str(found.__doc__).partition("\n")[0]
    return operation(
        "GET", path, name=name, needs=_READS, answers=answers, failures=failures, answer=_in_both_forms(found)
    )


def _stream(path: str, name: str) -> Callable[[F], F]:
    """Declare a stream of server-sent events."""
    return operation(
        "GET",
        path,
        name=name,
        needs=_READS,
        answers="Events until the client goes or the server stops.",
        failures=(404, 410, 501, 503),
        answer=AnswerForm(_as_it_is, _as_it_is, str, "text/event-stream"),
    )


def _as_it_is(found: Any) -> Any:
    return found


AreaName = Annotated[str, Schema("`-`, the whole store, or the name of a key space.", minLength=1, pattern="^[^/]+$")]
LayoutName = Annotated[str, Schema("The label of a layout.", minLength=1, pattern="^[^/]+$")]
ItemName = Annotated[str, Schema("A table or index of it.", minLength=1, pattern="^[^/]+$")]
Fields = Annotated[tuple[str, ...], In("field"), Schema("The first fields of the keys, one each.")]
Beginning = Annotated[str, Schema("How the field after them begins.")]
PageToken = Annotated[str, Schema("The token in the `next` of another page.")]
Limit = Annotated[int, In(form=LIMIT), Schema("Lines at most.")]
KeyPrefix = Annotated[bytes, In("hex", HEX), Schema("What the keys begin with.")]
After = Annotated[
    str, Schema("The id of an event; the stream goes on behind it. The header `Last-Event-ID` comes first.")
]


class ExplorerOperations:
    """What the explorer shows. Nothing is written."""

    @operation(
        "GET",
        BASE,
        name="enterExplorer",
        needs=_READS,
        answers="Where the first page is.",
        status=307,
        headers={"Location": "The first page."},
    )
    def enter(self) -> Answered[None]:
        """Lead to the first page."""
        raise NotImplementedError

    @_page(f"{BASE}/", "exploreStore", Overview)
    def store(self, *, page: Annotated[str, Schema("Of the key spaces.")] = "") -> Overview:
        """Show the store, and who owns what of it."""
        raise NotImplementedError

    @operation(
        "GET",
        f"{BASE}/find",
        name="findKey",
        needs=_READS,
        answers="Where it is.",
        status=303,
        headers={"Location": "The key's page."},
        failures=(404,),
    )
    def find(
        self,
        *,
        key: Annotated[str, Schema("The raw key.")] = "",
        spelling: Annotated[
            str, In("as", SPELLING), Schema("How it is spelled: text with \\xNN, or hexadecimal digits.")
        ] = "text",
        area: Annotated[str, Schema("Where to look; the whole store by default.")] = "",
    ) -> Answered[None]:
        """Find the page of a raw key."""
        raise NotImplementedError

    @_page(f"{_IN}/", "exploreArea", AreaPage, 404)
    def area(self, area: AreaName) -> AreaPage:
        """Show an area with its layouts and their items."""
        raise NotImplementedError

    @_page(f"{_IN}/report/{{layout}}", "exploreReport", ReportPage, 404)
    def report(self, area: AreaName, layout: LayoutName, *, page: PageToken = "") -> ReportPage:
        """Show what an application makes of the records of its layout."""
        raise NotImplementedError

    @_page(f"{_IN}/tree/{_ITEM}", "exploreLevel", TreePage, 404)
    def tree(
        self,
        area: AreaName,
        layout: LayoutName,
        item: ItemName,
        *,
        fields: Fields = (),
        starts_with: Beginning = "",
        page: PageToken = "",
        limit: Limit = LIMIT_DEFAULT,
    ) -> TreePage:
        """List the values of the next field of keys."""
        raise NotImplementedError

    @_page(f"{_IN}/list/{_ITEM}", "exploreRecords", ListPage, 404)
    def entries(
        self,
        area: AreaName,
        layout: LayoutName,
        item: ItemName,
        *,
        fields: Fields = (),
        starts_with: Beginning = "",
        page: PageToken = "",
        limit: Limit = LIMIT_DEFAULT,
    ) -> ListPage:
        """List records, or index entries and their records."""
        raise NotImplementedError

    @_page(f"{_IN}/key", "exploreKey", KeyPage, 404)
    def key(self, area: AreaName, *, raw_key: Annotated[bytes, In("hex", HEX), Schema("The key.")] = b"") -> KeyPage:
        """Explain a raw key: its meaning, record, index entries, history."""
        raise NotImplementedError

    @operation(
        "POST",
        f"{_IN}/reveal/{{layout}}",
        name="revealRecord",
        needs=Need(Act.AUDIT, ITSELF),
        discloses=Disclosure("reveal", "{area} {raw_key}"),
        caller=CallerKind.ADMINISTRATOR,
        answers="The record.",
        failures=(404, 501, 503),
        answer=_in_both_forms(RevealedPage),
    )
    def reveal(
        self, area: AreaName, layout: LayoutName, *, raw_key: Annotated[bytes, In("hex", HEX), Schema("The key.")]
    ) -> RevealedPage:
        """Show a record with its secrets in clear.

        Who asks needs to be granted to read the record, too. It stands in the audit log, without which nothing is shown.
        """
        raise NotImplementedError

    @_page(f"{_IN}/raw", "exploreRawKeys", RawPage, 404)
    def raw(
        self,
        area: AreaName,
        *,
        prefix: KeyPrefix = b"",
        page: Annotated[bytes | None, In(form=HEX_OR_NONE), Schema("Where the page begins.")] = None,
        limit: Limit = LIMIT_DEFAULT,
    ) -> RawPage:
        """List raw keys, level by level of slashes."""
        raise NotImplementedError

    @_page(f"{_IN}/live/{_ITEM}", "exploreLive", LivePage, 404)
    def live(self, area: AreaName, layout: LayoutName, item: ItemName, *, fields: Fields = ()) -> LivePage:
        """Show the changes of records as they are committed."""
        raise NotImplementedError

    @_page(f"{_IN}/live", "exploreRawLive", LivePage, 404)
    def raw_live(self, area: AreaName, *, prefix: KeyPrefix = b"") -> LivePage:
        """Show the changes of raw keys as they are committed."""
        raise NotImplementedError

    @_stream(f"{_IN}/changes/{_ITEM}", "streamChanges")
    def changes(
        self, area: AreaName, layout: LayoutName, item: ItemName, *, fields: Fields = (), after: After = ""
    ) -> LiveSource:
        """Tell the changes of records as server-sent events."""
        raise NotImplementedError

    @_stream(f"{_IN}/changes", "streamRawChanges")
    def raw_changes(self, area: AreaName, *, prefix: KeyPrefix = b"", after: After = "") -> LiveSource:
        """Tell the changes of raw keys as server-sent events."""
        raise NotImplementedError


_FORMAT: Final = {
    "name": "format",
    "in": "query",
    "required": False,
    "description": "The form of the answer; by default as `Accept` says.",
    "schema": {"enum": ["html", "json"]},
}


def _description() -> dict[str, Any]:
    contract = Contract("explorer", always=(400, 401, 403), words=(_FORMAT,))
    found = described(operations_of(ExplorerOperations).values(), contract)
    schemas = found["components"]["schemas"]
    return {**found, "components": {"schemas": dict(sorted(schemas.items()))}}


DESCRIPTION: Final = _description()
"""Paths and components, as `Service.openapi` takes them."""


NEEDS: Final = needs_of(ExplorerOperations)
"""What each needs, for `keyplan.access`."""
