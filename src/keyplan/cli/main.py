"""The root of the command line: finds commands without importing them, and turns errors into exit codes."""

import sys
from importlib import import_module
from typing import Any

import click

from keyplan.cli.catalog import COMMANDS, application_groups
from keyplan.cli.exit_codes import exit_code_of
from keyplan.errors import KeyplanError

__all__ = ["root", "run"]


class LazyGroup(click.Group):
    """A group whose commands are imported when they are called, not when they are listed."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # Why: click's signature.
        return [*COMMANDS, *application_groups()]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # Why: click's signature.
        if cmd_name in COMMANDS:
            return _made_command(cmd_name)
        entry = application_groups().get(cmd_name)
        return None if entry is None else _of_typer(entry.load(), cmd_name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # Why: click's signature.
        with formatter.section("Commands"):
            formatter.write_dl([(name, command.help) for name, command in COMMANDS.items()])
        groups = application_groups()
        if groups:
            with formatter.section("Applications"):
                formatter.write_dl([(name, f"Commands of the {name} application.") for name in groups])


def _made_command(name: str) -> click.Command:
    # Why: typer costs as much as all the rest of `keyplan --help`; only a command that runs needs it.
    typer = import_module("typer")
    app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
    app.command(name, help=COMMANDS[name].help, no_args_is_help=False)(import_module(COMMANDS[name].module).run)
    return _of_typer(app, name)


def _of_typer(app: Any, name: str) -> click.Command:
    command: click.Command = import_module("typer").main.get_command(app)
    command.name = name
    return command


@click.command(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="keyplan", message="keyplan %(version)s")
def root() -> None:
    """Typed records, indexes and proofs on an ordered key-value store, from one declared layout.

    A store is given by --store URL, KEYPLAN_STORE, or `store` in keyplan.toml; a layout by --layout, KEYPLAN_LAYOUT, or `layout`
    in keyplan.toml: the name of a shipped one, module:Class, or a JSON description.
    """


def run() -> None:
    """The console script `keyplan`."""
    sys.exit(main(sys.argv[1:]))


def main(arguments: list[str]) -> int:
    """Run keyplan with these arguments and return the exit code; what went wrong is printed to standard error."""
    try:
        answer = root.main(arguments, prog_name="keyplan", standalone_mode=False)
    except KeyplanError as error:
        print(f"keyplan: {error}", file=sys.stderr)
        return exit_code_of(error)
    except click.exceptions.Abort:
        print("keyplan: interrupted", file=sys.stderr)
        return 130
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except click.exceptions.Exit as error:
        return error.exit_code
    except BrokenPipeError:
        # Why: the reader of a pipe, as in `keyplan dump | head`, had enough; nothing is wrong, and nothing can be printed.
        sys.stdout = None  # type: ignore[assignment]  # Why: so that the interpreter does not flush into the closed pipe.
        return 0
    return answer if isinstance(answer, int) else 0
