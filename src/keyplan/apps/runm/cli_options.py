"""The options of `keyplan runm serve` that are ours: what the original has no setting for. The others are declared settings."""

from pathlib import Path
from typing import Annotated, NamedTuple

import typer

__all__ = ["ServeOptions"]


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
    object_type: Annotated[
        list[str] | None,
        typer.Option(
            "--object-type", metavar="CODE:SCOPE[=TEXT]", help="Register an object type; PARTITION or PROJECT."
        ),
    ] = None
    provider_type: Annotated[
        list[str] | None,
        typer.Option("--provider-type", metavar="CODE[=TEXT]", help="Register a provider type."),
    ] = None
    register: Annotated[bool, typer.Option("--register/--no-register", help="Be found in the service registry.")] = True
