"""What the commands of `runm` share: options, how results are printed, and what a command is given."""

import sys
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple

import typer
from google.protobuf.json_format import MessageToDict

from keyplan.apps.runm.client import Connection, RunmClient
from keyplan.apps.runm.expressions import Expression
from keyplan.apps.runm.identity import parsed_uuid
from keyplan.apps.runm.rendering import Shown
from keyplan.cli import print_grid, print_json, print_text
from keyplan.errors import InvalidInputError
from keyplan.grpc_status import GrpcStatus

__all__ = [
    "Context",
    "EndedError",
    "FileOption",
    "FilterOption",
    "LimitOption",
    "MarkerOption",
    "Output",
    "Paging",
    "SortOption",
    "command_group",
    "document_of",
    "listed",
    "object_named",
    "own_context",
    "plain_of",
    "text_of",
]

_SETTINGS: Final = {"help_option_names": ["-h", "--help"]}


def command_group() -> typer.Typer:
    """Return a group without commands yet."""
    return typer.Typer(
        no_args_is_help=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        add_completion=False,
        context_settings=_SETTINGS,
    )


_NOTHING: Final = "No records found matching search criteria."

FileOption = Annotated[
    Path | None, typer.Option("--file", "-f", help="The document, YAML or JSON; standard input without it.")
]
FilterOption = Annotated[
    list[str] | None,
    typer.Option("--filter", "-f", metavar="EXPRESSION", help="What to look for; repeated, any of them."),
]
LimitOption = Annotated[int, typer.Option("--limit", min=0, help="At most so many; 0 is all.")]
MarkerOption = Annotated[str, typer.Option("--marker", help="Go on after this UUID or code.")]
SortOption = Annotated[
    list[str] | None, typer.Option("--sort", metavar="FIELD[:desc]", help="Sort by a field; repeated, by several.")
]


class Output:
    """How results are printed, as the global options say."""

    def __init__(self, *, is_quiet: bool, is_verbose: bool, is_json: bool) -> None:
        self.is_quiet = is_quiet
        self.is_verbose = is_verbose
        self.is_json = is_json

    def one(self, message: Any, shown: Shown) -> None:
        """Print one message whole, or with --quiet what identifies it."""
        if self.is_json:
            print_json(plain_of(message))
        else:
            print_text(shown.identity(message) if self.is_quiet else "\n".join(shown.lines(message)))

    def made(self, message: Any, shown: Shown) -> None:
        """Print what was made: what identifies it, whole with --verbose."""
        if self.is_json:
            print_json(plain_of(message))
        else:
            print_text("\n".join(shown.lines(message)) if self.is_verbose else shown.identity(message))

    def done(self, verbose: str, plain: dict[str, Any]) -> None:
        """Print that something was done."""
        if self.is_json:
            print_json(plain)
        elif not self.is_quiet:
            print_text(verbose if self.is_verbose else "ok")

    def stored(self, message: Any, shown: Shown) -> None:
        """Print that something is stored: whole with --verbose."""
        self.done("\n".join(shown.lines(message)), plain_of(message))

    def many(self, messages: Iterable[Any], shown: Shown) -> None:
        """Print a list: a table, or with --quiet what identifies each."""
        if self.is_json:
            for message in messages:
                print_json(plain_of(message))
            return
        found = list(messages)
        if not found:
            typer.echo(_NOTHING, err=True)
        elif self.is_quiet:
            print_text("\n".join(map(shown.identity, found)))
        else:
            print_grid(shown.head, [shown.row(message) for message in found])


class Context:
    """What every command gets: a client and how to print."""

    def __init__(self, client: RunmClient, connection: Connection, output: Output) -> None:
        self.client = client
        self.connection = connection
        self.output = output


class EndedError(Exception):
    """The end of a command with an exit code and a text."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


def own_context(context: typer.Context) -> Context:
    """What the root made for the command."""
    own = context.obj
    assert isinstance(own, Context)
    return own


def object_named(own: Context, search: str, object_type: str) -> Any:
    """The object of a UUID or a name. A name that several types have needs the type; raises EndedError without it."""
    if parsed_uuid(search) is not None:
        return own.client.metadata.object_get_by_uuid(uuid=search)
    if object_type:
        return own.client.metadata.object_get_by_name(object_type_code=object_type, name=search)
    found = list(own.client.metadata.object_find(any=[{"name_filter": {"name": search}}]))
    if not found:
        raise EndedError(int(GrpcStatus.NOT_FOUND), f"no object that this session sees has the name {search}.")
    if len(found) > 1:
        kinds = ", ".join(sorted({one.object_type for one in found}))
        # Why not by type alone: a session of all projects sees one name in several.
        hint = "Say which by --type" if len({one.object_type for one in found}) == len(found) else "Give its UUID"
        raise EndedError(
            int(GrpcStatus.FAILED_PRECONDITION), f"{len(found)} objects have the name {search}, of {kinds}. {hint}."
        )
    return found[0]


class Paging(NamedTuple):
    """Which part of a list is asked for, and in which order."""

    limit: int = 0
    marker: str = ""
    sort: list[str] | None = None

    @property
    def options(self) -> dict[str, Any]:
        """The fields of SearchOptions. Raises InvalidInputError."""
        fields = [one.partition(":") for one in self.sort or ()]
        if any(order not in {"", "asc", "desc"} for _, _, order in fields):
            raise InvalidInputError(source="--sort", problem="a sort field is FIELD, FIELD:asc or FIELD:desc")
        sort_fields = [{"field": field, "direction": int(order == "desc")} for field, _, order in fields]
        return {"limit": self.limit, "marker": self.marker, "sort_fields": sort_fields}


def listed(call: Callable[..., Iterable[Any]], expressions: Sequence[Expression], paging: Paging) -> Iterable[Any]:
    """What a list call gives that fits any of the expressions; the limit counts what fits.

    The service matches values whole. Where a filter asks for the beginning of one, each is asked for by itself first: what fits
    one filter must not come in by another's fields.
    """
    filters = [one.fields for one in expressions]
    if not any(one.property_prefixes for one in expressions):
        return call(any=filters, options=paging.options)
    fitting = {found.uuid for one in expressions for found in call(any=[one.fields]) if one.fits(found)}
    every = call(any=filters, options=paging._replace(limit=0).options)
    return islice((one for one in every if one.uuid in fitting), paging.limit or None)


def document_of(file: Path | None) -> bytes:
    """The bytes of a file, or of standard input."""
    return sys.stdin.buffer.read() if file is None else file.read_bytes()


def text_of(file: Path) -> str:
    """The text of a file. Raises InvalidInputError."""
    try:
        return file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise InvalidInputError(source=str(file), problem=f"{file} is not UTF-8") from error


def plain_of(message: Any) -> dict[str, Any]:
    """A message as JSON data."""
    return MessageToDict(message, preserving_proto_field_name=True)
