"""Every operation of the registry has a command, and every parameter of it an option, or the reason why not."""

from collections.abc import Callable
from typing import Any, Final

import pytest
import typer.main

from keyplan.cli.audit_log import audit_log_command
from keyplan.cli.keyspace import keyspace_app
from keyplan.cli.maintenance import doctor_command
from keyplan.cli.options import spread
from keyplan.keyspace import RegistryOperations
from keyplan.operations import operations_of

COMMANDS: Final = {
    "create": "create",
    "list": "list",
    "get": "show",
    "update": "update",
    "delete": "delete",
    "disable": "disable",
    "enable": "enable",
    "undelete": "undelete",
    "sweep": "sweep",
    "history": "history",
    "usage": "usage",
    "quota": "quota",
    "set_quota": "quota",
    "header": "init",
    "init": "init",
    "diagnose": "doctor",
    "repair": "doctor",
    "configuration": "config",
    "configure": "config",
    "audit_page": "audit-log",
    "verify_audit": "audit-log",
}

APART: Final[dict[str, Callable[..., None]]] = {"doctor": doctor_command, "audit-log": audit_log_command}
"""Commands that are none of `keyplan keyspace`."""

SPELLED: Final = {
    ("configure", "changes"): "switches",
    ("list", "include_deleted"): "deleted",
    ("set_quota", "bytes"): "bytes_max",
    ("sweep", "name"): "names",
    ("usage", "name"): "names",
}
"""Parameters whose option has another name."""

WITHOUT: Final = {
    ("create", "adopt_existing_data"): "it is `adopt`",
    ("create", "allow_legacy_prefix"): "it is `adopt --legacy`",
    ("list", "limit"): "all pages are read",
    ("list", "name"): "it is `show`",
    ("list", "page_token"): "all pages are read",
    ("update", "sent"): "an object that is sent back whole is HTTP's",
}
"""Parameters without an option, and why."""

PARAMETERS: Final = [
    (operation, parameter.name)
    for operation, declared in operations_of(RegistryOperations).items()
    for parameter in declared.parameters
]


def options_of(command: str) -> set[str]:
    """The names of a command's arguments and options."""
    if command in APART:
        app = typer.Typer()
        app.command()(spread(APART[command]))
        found: Any = typer.main.get_command(app)
    else:
        found = typer.main.get_command(keyspace_app).commands[command]  # type: ignore[attr-defined] # a group has them
    return {one.name for one in found.params}


def test_every_operation_has_a_command() -> None:
    assert COMMANDS.keys() == operations_of(RegistryOperations).keys()


@pytest.mark.parametrize(("operation", "parameter"), PARAMETERS)
def test_every_parameter_of_an_operation_has_an_option_or_a_reason_why_not(operation: str, parameter: str) -> None:
    options = options_of(COMMANDS[operation])
    if (operation, parameter) in WITHOUT:
        assert parameter not in options
    else:
        assert SPELLED.get((operation, parameter), parameter) in options


def test_what_is_said_of_parameters_is_of_such_as_there_are() -> None:
    assert {*SPELLED, *WITHOUT} <= {*PARAMETERS}
    assert not SPELLED.keys() & WITHOUT.keys()
