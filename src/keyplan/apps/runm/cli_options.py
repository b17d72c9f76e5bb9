"""Options of `keyplan runm`: those of `serve` that the original has no setting for, and what `migrate` is told to decide."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, NamedTuple
from uuid import UUID

import typer

from keyplan.apps.runm.identity import parsed_uuid
from keyplan.apps.runm.original import Decisions
from keyplan.apps.runm.records import ObjectType, ObjectTypeScope
from keyplan.errors import InvalidInputError

__all__ = ["ObjectTypeOption", "ServeOptions", "code_and_text", "decisions_of", "object_type_of"]

ObjectTypeOption = Annotated[
    list[str] | None,
    typer.Option("--object-type", metavar="CODE:SCOPE[=TEXT]", help="Register an object type; PARTITION or PROJECT."),
]


class ServeOptions(NamedTuple):
    """What `serve` is given beside its settings."""

    access: Annotated[
        Path | None,
        typer.Option("--access", metavar="FILE", help="Who may do what, and in which partitions and projects."),
    ] = None
    tokens: Annotated[
        Path | None,
        typer.Option("--tokens", metavar="FILE", help="Bearer tokens, as of keyplan serve; all calls need one."),
    ] = None
    tls_client_ca: Annotated[
        Path | None,
        typer.Option("--tls-client-ca", metavar="FILE", help="Who signs the certificates of --access, in PEM."),
    ] = None
    allow_anyone: Annotated[
        bool, typer.Option("--allow-anyone", help="Listen beyond this machine without tokens, as the original does.")
    ] = False
    enforce_definitions: Annotated[
        bool,
        typer.Option(
            "--enforce-definitions", help="Hold properties of every object against definitions that were set."
        ),
    ] = False
    isolate: Annotated[
        bool,
        typer.Option("--isolate", help="Keep sessions to their own partition and project in all calls."),
    ] = False
    keep_deleted: Annotated[
        int,
        typer.Option("--keep-deleted", metavar="SECONDS", min=0, help="How long what is deleted can be restored."),
    ] = 0
    metrics_listen: Annotated[
        str | None,
        typer.Option("--metrics-listen", metavar="HOST:PORT", help="Give figures for Prometheus there, over HTTP."),
    ] = None
    processes: Annotated[
        int,
        typer.Option("--processes", metavar="N", min=1, max=64, help="Serve by so many processes behind one port."),
    ] = 1
    object_type: ObjectTypeOption = None
    provider_type: Annotated[
        list[str] | None,
        typer.Option("--provider-type", metavar="CODE[=TEXT]", help="Register a provider type."),
    ] = None
    register: Annotated[bool, typer.Option("--register/--no-register", help="Be found in the service registry.")] = True


def object_type_of(text: str) -> ObjectType:
    """Return the object type of a text CODE:SCOPE[=TEXT]. Raises InvalidInputError."""
    named, description = code_and_text(text)
    code, _, scope = named.partition(":")
    if scope not in ObjectTypeScope.__members__:
        raise InvalidInputError(source="--object-type", problem="the scope is PARTITION or PROJECT, as in a.b:PROJECT")
    return ObjectType(code, description, ObjectTypeScope[scope])


def code_and_text(text: str) -> tuple[str, str]:
    """Return the parts of a text CODE[=TEXT]."""
    code, _, description = text.partition("=")
    return code, description


def decisions_of(renames: Sequence[str], projects: Sequence[str], uuids: Sequence[str]) -> Decisions:
    """Return what the options of `migrate` decide. Raises InvalidInputError."""
    owned = {text: pair for text in projects if (pair := _by_uuid(text)) is not None}
    shared = [text for text in projects if text not in owned]
    if len(shared) > 1:
        raise InvalidInputError(
            source="--project", problem="one project alone can be that of all objects that have none"
        )
    names = [_by_uuid(text) for text in renames]
    if None in names:
        raise InvalidInputError(source="--rename", problem="it is UUID=NAME, and the name is not empty")
    return Decisions(
        names=dict(pair for pair in names if pair is not None),
        projects=dict(owned.values()),
        project="".join(shared),
        uuids=dict(map(_stood_for, uuids)),
    )


def _by_uuid(text: str) -> tuple[str, str] | None:
    """The digits of a UUID and the text behind it; None for a text that does not begin with one."""
    named, _, value = text.partition("=")
    uuid = parsed_uuid(named)
    return (uuid.hex, value) if uuid is not None and value else None


def _stood_for(text: str) -> tuple[str, UUID]:
    odd, _, given = text.rpartition("=")
    uuid, spelled = parsed_uuid(given), parsed_uuid(odd)
    if not odd or uuid is None or (spelled is not None and spelled.hex == odd):
        problem = "it is TEXT=UUID, and the text is not spelled as a UUID is here, in 32 small digits"
        raise InvalidInputError(source="--uuid", problem=problem)
    return odd, uuid
