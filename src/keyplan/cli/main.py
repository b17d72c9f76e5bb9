"""The root of the command line: finds commands without importing them, and turns errors into exit codes."""

import io
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from importlib import import_module
from importlib.metadata import EntryPoint, version
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from keyplan.cli.catalog import COMMANDS, application_groups
from keyplan.cli.completion import COMPLETION_VARIABLE, register_shells
from keyplan.cli.exit_codes import INTERRUPTED, NOT_INSTALLED, OUTPUT_FAILED, USAGE, exit_code_of
from keyplan.cli.failures import print_failure, print_usage_error
from keyplan.cli.spread import spread
from keyplan.errors import KeyplanError

__all__ = ["main", "root"]

PROGRAM: Final = "keyplan"

EXTRAS: Final = {"starlette": "server", "uvicorn": "server", "prometheus_client": "server", "httpx": "server"}
"""Packages that a command's module imports, and the extra that brings them."""

_SETTINGS: Final = {"help_option_names": ["-h", "--help"]}


class LazyCommand(TyperCommand):
    """A command that is imported when it is called or completed, not when it is listed."""

    def __init__(self, name: str, text: str, load: Callable[[], Any]) -> None:
        super().__init__(name, help=text, short_help=text, rich_markup_mode=None)
        self._load = load

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        return self._load().make_context(info_name, args, parent, **extra)


class LazyGroup(TyperGroup):
    """The root, with the catalog's commands and the groups of installed applications."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        for name, command in COMMANDS.items():
            self.add_command(LazyCommand(name, command.help, partial(_command, name)))
        self._applications = application_groups()
        for name, entry in self._applications.items():
            self.add_command(LazyCommand(name, f"Commands of the application {name}.", partial(_group, entry)))

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        for title, is_application in (("Commands", False), ("Applications", True)):
            rows = [
                (name, command.help)
                for name, command in self.commands.items()
                if (name in self._applications) == is_application
            ]
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)


def _command(name: str) -> Any:
    module = import_module(COMMANDS[name].module)
    if hasattr(module, "app"):
        return _with_settings(get_command(module.app))
    command = typer.Typer(add_completion=False, rich_markup_mode=None, context_settings=_SETTINGS)
    command.command(name)(spread(module.run))
    return get_command(command)


def _group(entry: EntryPoint) -> Any:
    return _with_settings(get_command(entry.load()))


def _with_settings(group: Any) -> Any:
    group.context_settings = {**_SETTINGS, **group.context_settings}
    return group


_application = typer.Typer(
    name=PROGRAM, cls=LazyGroup, add_completion=False, rich_markup_mode=None, context_settings=_SETTINGS
)


def _print_version(*, is_asked: bool) -> None:
    if is_asked:
        typer.echo(f"{PROGRAM} {version(PROGRAM)}")
        raise typer.Exit


@_application.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    _version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version.", is_eager=True, callback=lambda value: _print_version(is_asked=value)
        ),
    ] = False,
) -> None:
    """Typed records, indexes and proofs on an ordered key-value store, from one declared layout.

    A store is given by --store URL, KEYPLAN_STORE, or `store` in keyplan.toml; a layout by --layout, KEYPLAN_LAYOUT, or
    `layout` in keyplan.toml: the name of an installed one, module:Class, or a JSON description.
    """
    if context.invoked_subcommand is None and not context.resilient_parsing:
        typer.echo(context.get_help(), err=True)
        raise typer.Exit(USAGE)


root: Final = get_command(_application)
"""The root as typer calls it."""


def main(arguments: Sequence[str]) -> int:
    """Run keyplan with these arguments and return the exit code; what went wrong is printed to standard error."""
    with _whole_streams():
        try:
            code = _exit_code(list(arguments))
            sys.stdout.flush()
        except BrokenPipeError:
            # Why: the reader of a pipe, as in `keyplan dump | head`, had enough; nothing is wrong.
            _discard_output()
            return 0
        except OSError as error:
            print(f"{PROGRAM}: {error}", file=sys.stderr)
            return OUTPUT_FAILED
        return code


@contextmanager
def _whole_streams() -> Iterator[None]:
    """Give the process the streams that its caller closed (`>&-`) for a block, and let the output hold any text."""
    with ExitStack() as stack:
        for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
            if getattr(sys, name) is None:
                nowhere = stack.enter_context(Path(os.devnull).open(mode, encoding="utf-8"))
                setattr(sys, name, nowhere)
                stack.callback(setattr, sys, name, None)
        # Why: a record may hold text that the terminal's encoding has no bytes for; an escape says more than a failure.
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(errors="backslashreplace")
        yield


def _exit_code(arguments: list[str]) -> int:
    if COMPLETION_VARIABLE in os.environ:
        register_shells()
        root.main(arguments, prog_name=PROGRAM, complete_var=COMPLETION_VARIABLE)  # ends the process
    # Why: a command line that cannot be read has no options yet, and its error is printed as JSON too.
    is_json = "--json" in arguments[: arguments.index("--") if "--" in arguments else None]
    try:
        with root.make_context(PROGRAM, arguments) as context:
            root.invoke(context)
    except typer.Exit as ended:
        return ended.exit_code
    except (typer.Abort, KeyboardInterrupt):
        print(f"{PROGRAM}: interrupted", file=sys.stderr)
        return INTERRUPTED
    except typer.TyperException as error:
        print_usage_error(error, is_json=is_json)
        return error.exit_code
    except KeyplanError as error:
        print_failure(error, is_json=is_json)
        return exit_code_of(error)
    except ModuleNotFoundError as error:
        extra = EXTRAS.get((error.name or "").partition(".")[0])
        if extra is None:
            raise
        print(f"{PROGRAM}: this needs the package {error.name}: pip install 'keyplan[{extra}]'", file=sys.stderr)
        return NOT_INSTALLED
    return 0


def _discard_output() -> None:
    # Why: the interpreter flushes standard output when it ends, and would complain about the closed pipe.
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
