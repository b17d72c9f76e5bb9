"""The command line `runm`: the original's commands on the front end, and those that its users were promised."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Final

import grpc
import typer
from typer.main import get_command

from keyplan.apps.runm.cli_definitions import definitions, provider_definitions
from keyplan.apps.runm.cli_frame import Context, EndedError, Output, command_group, own_context
from keyplan.apps.runm.cli_objects import objects, providers
from keyplan.apps.runm.cli_resources import GROUPS, RESOURCES
from keyplan.apps.runm.client import Connection, RunmClient
from keyplan.apps.runm.refusal import RefusedError
from keyplan.apps.runm.rendering import PARTITION
from keyplan.cli import print_grid
from keyplan.errors import InvalidInputError, KeyplanError

__all__ = ["app", "main", "run"]

app = command_group()
providers.add_typer(provider_definitions, name="definition", help="Definitions of providers.")
for resource in RESOURCES:
    app.add_typer(GROUPS[resource.name], name=resource.name, help=resource.help)
app.add_typer(objects, name="object", help="Objects of any type.")
app.add_typer(definitions, name="definition", help="Definitions of objects of any type.")

_GLOBAL_VALUES: Final = (
    *("--host", "--port", "--user", "--project", "--token", "--role"),
    *("--tls-authority", "--tls-certificate", "--tls-key"),
)
_GLOBAL_FLAGS: Final = ("--quiet", "-q", "--verbose", "-v", "--json")
_ENVIRONMENT: Final = {
    "RUNM_HOST": "--host",
    "RUNM_PORT": "--port",
    "RUNM_PARTITION": "--partition",
    "RUNM_USER": "--user",
    "RUNM_PROJECT": "--project",
    "RUNM_TOKEN": "--token",
    "RUNM_ROLES": "--role",
    "RUNM_TLS_AUTHORITY": "--tls-authority",
    "RUNM_TLS_CERTIFICATE": "--tls-certificate",
    "RUNM_TLS_KEY": "--tls-key",
}


@app.callback()
def _root(
    context: typer.Context,
    host: Annotated[str, typer.Option(envvar="RUNM_HOST", help="The service's host.")] = "localhost",
    port: Annotated[int, typer.Option(envvar="RUNM_PORT", help="The service's port.")] = 10000,
    partition: Annotated[str, typer.Option(envvar="RUNM_PARTITION", help="The session's partition.")] = "",
    user: Annotated[str, typer.Option(envvar="RUNM_USER", help="The session's user.")] = "",
    project: Annotated[str, typer.Option(envvar="RUNM_PROJECT", help="The session's project.")] = "",
    role: Annotated[
        list[str] | None, typer.Option(envvar="RUNM_ROLES", help="A role of the session; repeated.")
    ] = None,
    token: Annotated[
        str, typer.Option(envvar="RUNM_TOKEN", help="The bearer token, where the service asks for one.")
    ] = "",
    authority: Annotated[
        Path | None,
        typer.Option("--tls-authority", envvar="RUNM_TLS_AUTHORITY", help="Use TLS, and trust this certificate."),
    ] = None,
    certificate: Annotated[
        Path | None,
        typer.Option("--tls-certificate", envvar="RUNM_TLS_CERTIFICATE", help="Show this certificate, with TLS."),
    ] = None,
    key: Annotated[Path | None, typer.Option("--tls-key", envvar="RUNM_TLS_KEY", help="The certificate's key.")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print identifiers alone.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Print whole records.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Administer a runmachine deployment: partitions, types, definitions, providers and other objects."""
    if (certificate is None) is not (key is None) or (certificate is not None and authority is None):
        raise InvalidInputError(source="--tls-certificate", problem="give --tls-key and --tls-authority with it")
    own = (certificate, key) if certificate and key else None
    connection = Connection(host, port, user, project, partition, tuple(role or ()), token, authority, own)
    client = RunmClient(connection)
    context.call_on_close(client.close)
    context.obj = Context(client, connection, Output(is_quiet=quiet, is_verbose=verbose, is_json=as_json))


@app.command("bootstrap")
def bootstrap(
    context: typer.Context,
    token: Annotated[str, typer.Argument(help="The bootstrap token that the service was started with.")],
    name: Annotated[str, typer.Argument(metavar="PARTITION", help="The partition's name.")],
    partition_uuid: Annotated[str, typer.Option("--partition-uuid", help="Its UUID; a new one without it.")] = "",
) -> None:
    """Make the first partition of a deployment, by the token. Prints its UUID."""
    own = own_context(context)
    fields: dict[str, Any] = {"bootstrap_token": token, "partition_name": name}
    if partition_uuid:
        fields["partition_uuid"] = {"value": partition_uuid}
    own.output.made(own.client.metadata.bootstrap(**fields).partition, PARTITION)


@app.command("helpenv")
def helpenv() -> None:
    """List the environment variables, the options that they stand for, and their values; a token is not shown."""
    rows = [
        [name, option, "(set)" if name == "RUNM_TOKEN" and os.environ.get(name) else os.environ.get(name, "")]
        for name, option in _ENVIRONMENT.items()
    ]
    print_grid(("Env Name", "CLI Option", "Value"), rows)


_HINTS: Final = {
    f"{word} is required in session.": f" Give --{word} or set RUNM_{word.upper()}."
    for word in ("user", "partition", "project")
} | {f"{word} is required.": f" Give --{word}, or name it in the file." for word in ("partition", "project")}
"""What the service cannot know: how its caller says who calls."""


def main(arguments: Sequence[str]) -> int:
    """Run a command and return its exit code: 0, the number of the call's gRPC status, or 1 for usage and connection."""
    try:
        with get_command(app).make_context("runm", _hoisted(list(arguments))) as context:
            get_command(app).invoke(context)
    except typer.Exit as ended:
        return ended.exit_code
    except (typer.Abort, KeyboardInterrupt):
        return _failed(130, "interrupted")
    except typer.TyperException as error:
        return _failed(1, error.format_message())
    except grpc.RpcError as error:
        is_connection = error.code() is grpc.StatusCode.UNAVAILABLE
        text = error.details() or error.code().name
        return _failed(1 if is_connection else int(error.code().value[0]), f"{text}{_HINTS.get(text, '')}")
    except RefusedError as error:
        return _failed(int(error.status), error.text)
    except EndedError as error:
        return _failed(error.code, error.text)
    except KeyplanError as error:
        return _failed(1, str(error.facts.get("problem", error.summary)))
    except OSError as error:
        named = "" if error.filename is None else f"{error.filename}: "
        return _failed(1, f"{named}{error.strerror or error}")
    return 0


def run() -> None:
    """Run the program, and end the process with its exit code."""
    sys.exit(main(sys.argv[1:]))


def _failed(code: int, text: str) -> int:
    sys.stdout.flush()
    typer.echo(f"Error: {text}", err=True)
    return code


def _hoisted(arguments: list[str]) -> list[str]:
    """Global options may stand anywhere, as in the original; they are moved to the front.

    `--partition` of a definition command is that command's own.
    """
    is_of_definition = "definition" in arguments
    values = _GLOBAL_VALUES if is_of_definition else (*_GLOBAL_VALUES, "--partition")
    front: list[str] = []
    rest: list[str] = []
    waiting = iter(arguments)
    for word in waiting:
        if word == "--":
            rest += [word, *waiting]
        elif word in values:
            front += [word, *([given] if (given := next(waiting, None)) is not None else [])]
        elif word in _GLOBAL_FLAGS or word.partition("=")[0] in values:
            front.append(word)
        else:
            rest.append(word)
    return [*front, *rest]
