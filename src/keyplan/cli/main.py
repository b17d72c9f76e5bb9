"""The root of the command line: finds commands without importing them, and turns errors into exit codes."""

import errno
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from importlib.metadata import EntryPoint, version
from threading import current_thread, main_thread
from typing import Annotated, Any, Final

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from keyplan.cli.catalog import COMMANDS, application_groups
from keyplan.cli.completion import COMPLETION_VARIABLE, register_shells
from keyplan.cli.exit_codes import INTERRUPTED, NOT_INSTALLED, OUTPUT_FAILED, TERMINATED, USAGE
from keyplan.cli.failures import print_failure, print_usage_error
from keyplan.cli.spread import spread
from keyplan.cli.streams import ReaderGone, standard_streams
from keyplan.errors import KeyplanError

__all__ = ["main", "root"]

PROGRAM: Final = "keyplan"

EXTRAS: Final = {"starlette": "server", "uvicorn": "server", "prometheus_client": "server", "httpx": "server"}
"""Packages that a command's module imports, and the extra that brings them."""

NUMBER_MAX: Final = 2**62
"""Why: revisions, leases and counts have 63 bits at most, and one more than the largest is still a number of the machine."""

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
    return _with_bounded_numbers(get_command(command))


def _group(entry: EntryPoint) -> Any:
    return _with_settings(get_command(entry.load()))


def _with_settings(group: Any) -> Any:
    group.context_settings = {**_SETTINGS, **group.context_settings}
    return _with_bounded_numbers(group)


def _with_bounded_numbers(command: Any) -> Any:
    """Give each whole number of a command's options, and of its subcommands', an upper bound where it has none."""
    for parameter in command.params:
        described = getattr(parameter, "type_descriptor", None)
        if described is not None and described.annotation in (int, list[int]):
            bounds = described.parameter_info
            bounds.min = -NUMBER_MAX if bounds.min is None else bounds.min
            bounds.max = NUMBER_MAX if bounds.max is None else bounds.max
    for subcommand in getattr(command, "commands", {}).values():
        _with_bounded_numbers(subcommand)
    return command


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
    with standard_streams() as output, _ended_by_sigterm():
        try:
            code = _exit_code(list(arguments))
            sys.stdout.flush()
        except ReaderGone:
            return 0  # as in `keyplan dump | head`: who reads has had enough, and nothing is wrong
        except _Terminated:
            return TERMINATED
        except OSError as error:
            print(f"{PROGRAM}: {error}", file=sys.stderr)
            return OUTPUT_FAILED
        if output is not None and output.failure is not None and output.failure.errno != errno.EPIPE:
            print(f"{PROGRAM}: {output.failure}", file=sys.stderr)
            return code or OUTPUT_FAILED
        return code


class _Terminated(BaseException):
    """SIGTERM: the command ends as with Ctrl-C, so that what it holds is let go of and half-written files go."""


@contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """Let SIGTERM end a block by an exception. A command that handles the signal itself does so instead."""

    def end(_number: int, _frame: object) -> None:
        raise _Terminated

    if current_thread() is not main_thread() or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


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
        return error.exit_code
    except ModuleNotFoundError as error:
        extra = EXTRAS.get((error.name or "").partition(".")[0])
        if extra is None:
            raise
        print(f"{PROGRAM}: this needs the package {error.name}: pip install 'keyplan[{extra}]'", file=sys.stderr)
        return NOT_INSTALLED
    return 0
