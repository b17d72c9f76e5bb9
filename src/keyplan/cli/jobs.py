"""The command `keyplan jobs`: the long work that stands open in a store.

And what commands share that do such work: their words, which are kept with it, its pace, and how Ctrl-C and SIGTERM end it.
"""

import shlex
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import Enum
from functools import partial
from pathlib import Path
from signal import SIGHUP, SIGTERM, Signals
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from keyplan import signals
from keyplan.cli.failures import FINDINGS, HUNG_UP, TERMINATED, print_hint
from keyplan.cli.options import (
    SETTINGS_FILE,
    ConfigOption,
    JsonOption,
    StoreOption,
    Unfinished,
    absolute_url,
    read_settings,
    store_of_option,
    store_url_of_option,
)
from keyplan.cli.output import print_answer, print_text
from keyplan.errors import InvalidArgumentError, InvalidInputError, StoppedError
from keyplan.jobs import UNPACED, Pace

if TYPE_CHECKING:
    from keyplan.maintenance import OpenJob

__all__ = ["PaceOption", "jobs_command", "pace_of_option", "stopped_by_signals", "words_of"]

PaceOption = Annotated[
    str | None,
    typer.Option(
        "--pace",
        metavar="N",
        help="At most N records a second; or N% of the time; or none. Without it, what other writers leave.",
        show_default=False,
    ),
]


def jobs_command(*, store: StoreOption = None, config: ConfigOption = None, json: JsonOption = False) -> None:
    """Print the long work that stands open in a store: how far it is, who holds it, and the command that goes on with it.

    Copies, restores, migrations, builds of indexes and deletions of key spaces, those within key spaces included. Nothing is
    written. Exit code 1 when the record of one cannot be read.
    """
    # Why here: commands that ask for their words start without it.
    from keyplan.maintenance import open_jobs  # noqa: PLC0415

    url = absolute_url(store_url_of_option(store, config))
    with store_of_option(store, config, readonly=True, unfinished=Unfinished.PASSED) as opened:
        found = open_jobs(opened.engine, url=url)
    for job in found:
        print_answer(_plain(job, url), *_lines(job, url), json=json)
    if not found and not json:
        print_text("no job is open")
    if any(job.problem for job in found):
        raise typer.Exit(FINDINGS)


def _lines(job: "OpenJob", url: str) -> list[str]:
    within = f" in the key space {job.keyspace}" if job.keyspace else ""
    facts = [job.problem] if job.problem else [f"{job.stage or 'begun'}, {job.done} done"]
    facts += [f"begun at {job.begun_at}"] if job.begun_at else []
    facts += [f"last heard of at {job.touched_at}"] if job.touched_at else []
    facts += [_holder(job)] if job.holder is not None else []
    command = job.command_line(url)
    return [
        f"{job.kind} {job.subject}{within}",
        f"  {'; '.join(facts)}",
        *([f"  goes on with: {command}"] if command else []),
        *([f"  {job.remedy}"] if job.remedy else []),
    ]


def _holder(job: "OpenJob") -> str:
    words = {True: "is there", False: "is gone", None: "may be there or gone"}
    return "" if job.holder is None else f"{job.holder} {words[job.holder.is_alive]}"


def _plain(job: "OpenJob", url: str) -> dict[str, Any]:
    holder = job.holder
    return {
        "kind": str(job.kind),
        "subject": job.subject,
        "keyspace": job.keyspace or None,
        "stage": job.stage,
        "done": job.done,
        "begun_at": job.begun_at or None,
        "touched_at": job.touched_at or None,
        "host": None if holder is None else holder.host,
        "process": None if holder is None else holder.process,
        "is_alive": None if holder is None else holder.is_alive,
        "command": job.command_line(url) or None,
        "remedy": job.remedy or None,
        "problem": job.problem or None,
        "key": job.raw_key.hex(),
    }


# ---- the words of a command ----------------------------------------------------------------------------------------------


def words_of(
    context: typer.Context,
    *,
    leaves_out: Collection[str] = (),
    replaced: Mapping[str, str] | None = None,
    with_store: bool = False,
) -> tuple[str, ...]:
    """Return the words behind `keyplan` that give the running command again, from any folder; --store only `with_store`.

    What the environment and the settings said is said; files are named from the root, and so is the store of the settings.
    Options of `leaves_out` are not given, nor is --json, and the parameters of `replaced` have those values.
    """
    words: list[str] = []
    arguments: list[str] = []
    left_out = {"json", "as_json", *leaves_out}
    values: dict[str, Any] = {**context.params, **(replaced or {})}
    if not with_store:
        left_out.add("store")
    elif "store" in values and (url := values["store"] or read_settings(values.get("config")).store):
        values["store"] = absolute_url(url)
    for parameter in context.command.params:
        name = parameter.name or ""
        if name in left_out or not parameter.expose_value:
            continue
        value = values.get(name)
        if name == "config" and value is None and Path(SETTINGS_FILE).exists():
            value = Path(SETTINGS_FILE)
        if value is None or value is False or value in ([], parameter.default):
            continue
        given = [_word(each) for each in (value if isinstance(value, list | tuple) else [value])]
        if parameter.param_type_name == "argument":
            arguments += given
        elif value is True:
            words.append(parameter.opts[0])
        else:
            words += [word for each in given for word in _option(parameter.opts[0], each)]
    dashes = ["--"] if any(word.startswith("-") for word in arguments) else []
    return (*context.command_path.split()[1:], *words, *dashes, *arguments)


def _option(name: str, value: str) -> tuple[str, ...]:
    return (f"{name}={value}",) if value.startswith("-") else (name, value)


def _word(value: object) -> str:
    if isinstance(value, Enum):
        return str(value.value)
    if isinstance(value, Path) or (isinstance(value, str) and value.endswith(".json") and Path(value).is_file()):
        return str(Path(value).absolute())
    return str(value)


# ---- how a command is stopped --------------------------------------------------------------------------------------------


class _TerminatedError(StoppedError):
    """The work was stopped by SIGTERM."""

    exit_code = TERMINATED


class _HungUpError(StoppedError):
    """The work was stopped by SIGHUP."""

    exit_code = HUNG_UP


_KINDS: Final[Mapping[Signals | None, type[StoppedError]]] = {SIGTERM: _TerminatedError, SIGHUP: _HungUpError}


def pace_of_option(given: str | None) -> Pace | None:
    """Read `--pace`: records a second, the share of the time that is worked, or none; None: as other writers leave it.

    Raises InvalidInputError.
    """
    if given is None:
        return None
    if given == "none":
        return UNPACED
    number, percent = given.removesuffix("%"), given.endswith("%")
    try:
        return Pace(share=float(number) / 100) if percent else Pace(float(number))
    except (ValueError, InvalidArgumentError) as error:
        problem = (
            f"{given!r} is neither a number of records a second, above 0, nor a share as in 25%, at most 100%, nor none"
        )
        raise InvalidInputError(source="--pace", problem=problem) from error


@contextmanager
def stopped_by_signals(words: Callable[[], Sequence[str]]) -> Iterator[signals.SignalStop]:
    """Give what the first Ctrl-C, SIGTERM or SIGHUP sets, for work that ends by it between two batches.

    The second signal ends all at once. Raises StoppedError with the command of these words, which goes on with the work:
    `words_of` with the store, asked for then.
    """
    stop = signals.SignalStop()
    hint = "stopping as soon as the batch under way is written; the signal once more ends the command at once"
    try:
        with signals.stopped_by_signals(partial(print_hint, hint)) as stop:
            yield stop
    except StoppedError as error:
        if stop.by is None:
            raise  # Why: no signal ended it; the error itself says who did, and what goes on with it.
        kind = _KINDS.get(stop.by, StoppedError)
        remedy = f"`{shlex.join(['keyplan', *words()])}` goes on with it; `keyplan jobs` lists what stands open"
        raise kind(**{**error.facts, "remedy": remedy}) from error
