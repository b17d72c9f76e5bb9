"""The commands about test name spaces and settings, and the option that others share: `tests|watch|purge|settings`."""

import os
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Final

import typer

from keyplan.apps.cloudchamber.configuration import read_configuration
from keyplan.apps.cloudchamber.layout import LayoutSide
from keyplan.apps.cloudchamber.layout_choice import held_sides
from keyplan.apps.cloudchamber.namespaces import (
    NamespaceInstance,
    instances_of_tests,
    purge_instances,
    purge_production,
    range_of_tests,
)
from keyplan.cli import ConfigOption, JsonOption, StoreOption, print_grid, print_json, print_text, store_of_option
from keyplan.engine import Engine, Event, KeyRange
from keyplan.errors import InvalidInputError
from keyplan.layout import shown_key

__all__ = ["NamespaceOption", "list_tests", "namespace_of_option", "purge", "show_settings", "watch"]

_POLL_SECONDS: Final = 1.0
_SECONDS: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}

NamespaceOption = Annotated[
    str,
    typer.Option(
        "--namespace", metavar="Test/NAME", help="A test instance, as in Test/Standard, in place of production."
    ),
]
_TestsFlag = Annotated[bool, typer.Option("--tests", help="The test name spaces, as against production.")]
_Instance = Annotated[
    str | None,
    typer.Option("--instance", metavar="NAME", help="One test name space, as in Standard.", show_default=False),
]


def namespace_of_option(given: str) -> str:
    """Return the layout's `namespace` for what --namespace says; "" is production."""
    return f"{given.strip('/')}/" if given else ""


def list_tests(*, store: StoreOption = None, as_json: JsonOption = False, config: ConfigOption = None) -> None:
    """List the test name spaces of both programs with the number of their keys, their age, and whose keys they are."""
    now = datetime.now(UTC)
    with store_of_option(store, config, readonly=True) as opened:
        found = list(instances_of_tests(opened.engine))
    if as_json:
        for instance in found:
            began = instance.started_at
            told = {"instance": instance.name, "keys": instance.keys, "started_at": began and began.isoformat()}
            print_json({**told, "layout": instance.side.value})
    else:
        rows = ([one.name, str(one.keys), _age(one, now), one.side.value] for one in found)
        print_grid(["instance", "keys", "age", "layout"], rows)


def watch(
    *,
    store: StoreOption = None,
    tests: _TestsFlag = False,
    instance: _Instance = None,
    source: Annotated[LayoutSide, typer.Option("--from", help="Whose keys.")] = LayoutSide.DOCUMENT,
    limit: Annotated[int | None, typer.Option("--limit", "-n", min=1, help="End after so many changes.")] = None,
    as_json: JsonOption = False,
    config: ConfigOption = None,
) -> None:
    """Print what changes, key by key, until Ctrl-C: production without its tests, or with --tests nothing but tests.

    The keys are the document's, or with --from go the Go program's. On etcd, `etcdctl watch --prefix
    /CloudChamber/V0.1/Test/` shows the same.
    """
    is_tests = tests or instance is not None
    watched = range_of_tests(instance, source) if is_tests else KeyRange.of_prefix(source.bound().root)
    hidden = None if is_tests else range_of_tests(side=source)
    with store_of_option(store, config, readonly=True) as opened:
        left = limit
        changes = opened.engine.watch(watched, after=opened.revision)
        try:
            while left is None or left > 0:
                for event in changes.poll(_POLL_SECONDS):
                    if left == 0 or (hidden is not None and event.key in hidden):
                        continue
                    _print_event(event, is_json=as_json)
                    left = None if left is None else left - 1
        finally:
            changes.close()


def purge(
    *,
    store: StoreOption = None,
    tests: _TestsFlag = False,
    instance: _Instance = None,
    older_than: Annotated[
        str | None,
        typer.Option(
            "--older-than", metavar="AGE", help="Only instances named by a timestamp this old, as in 36h, 7d."
        ),
    ] = None,
    production: Annotated[
        bool, typer.Option("--production", help="In place of tests: remove everything but the tests.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would be removed, and remove nothing.")
    ] = False,
    as_json: JsonOption = False,
    config: ConfigOption = None,
) -> None:
    """Remove test name spaces of both programs whole: all of them, one, or those of a certain age. Production stays.

    With --production, which goes with none of these, it is the other way round: production goes, and all tests stay. It is that
    under the document's keys; a store that has the Go program's alone is refused.
    """
    is_tests = tests or instance is not None
    if is_tests == production or (production and older_than is not None):
        problem = (
            "say --tests for every test name space, --instance NAME for one, or --production for all that is no test"
        )
        raise InvalidInputError(source="purge", problem=problem)
    if production:
        _purge_production(store, config, is_dry_run=dry_run, is_json=as_json)
        return
    seconds = None if older_than is None else _seconds_of(older_than)
    with store_of_option(store, config, readonly=dry_run) as opened:
        removed = _purged(opened.engine, instance, seconds, is_dry_run=dry_run)
    if as_json:
        print_json({"removed_keys": sum(removed.values()), "instances": removed, "dry_run": dry_run})
        return
    for name, keys in removed.items():
        print_text(f"{name}\t{keys}")
    told = "would be removed; this was a dry run" if dry_run else "removed"
    print_text(f"{sum(removed.values())} keys of {len(removed)} test name spaces {told}.")


def _purge_production(store: str | None, config: Path | None, *, is_dry_run: bool, is_json: bool) -> None:
    with store_of_option(store, config, readonly=is_dry_run) as opened:
        held = held_sides(opened.engine, "")
        of_go = held.get(LayoutSide.GO)
        if of_go is not None and LayoutSide.DOCUMENT not in held:
            problem = f"production is the Go program's there, as {of_go}, and --production is for the document's keys"
            raise InvalidInputError(source="the store", problem=problem)
        keys = purge_production(opened.engine, is_dry_run=is_dry_run)
    if of_go is not None:
        typer.echo(f"What production has under the Go program's keys stays, as {of_go}.", err=True)
    if is_json:
        print_json({"removed_keys": keys, "instances": {}, "dry_run": is_dry_run})
        return
    told = "would be removed; this was a dry run" if is_dry_run else "removed"
    print_text(f"{keys} keys of production {told}.")


def show_settings(
    place: Annotated[
        Path, typer.Argument(help="The folder of cloudchamber.yaml, or the file.", metavar="PLACE")
    ] = Path(),
    *,
    as_json: JsonOption = False,
) -> None:
    """Print the settings in force: of cloudchamber.yaml, with defaults and the environment's overrides. Secrets are hidden."""
    configuration = read_configuration(place, os.environ)
    shown = configuration.shown()
    if as_json:
        print_json(shown)
    else:
        print_grid(["setting", "value"], ([name, str(value)] for name, value in shown.items()))
    for name in configuration.store.ignored_options:
        typer.echo(f"{name} means nothing without UseTestNamespace.", err=True)


def _purged(engine: Engine, instance: str | None, seconds: int | None, *, is_dry_run: bool) -> dict[str, int]:
    now = datetime.now(UTC)

    def is_chosen(found: NamespaceInstance) -> bool:
        is_named = instance is None or found.name == instance
        is_old = seconds is None or (
            found.started_at is not None and now - found.started_at >= timedelta(seconds=seconds)
        )
        return is_named and is_old

    if not is_dry_run:
        return purge_instances(engine, is_chosen)
    chosen: dict[str, int] = {}
    for found in filter(is_chosen, instances_of_tests(engine)):
        chosen[found.name] = chosen.get(found.name, 0) + found.keys
    return chosen


def _print_event(event: Event, *, is_json: bool) -> None:
    if is_json:
        print_json({"kind": event.kind.value, "key": shown_key(event.key), "revision": event.revision})
    else:
        print_text(f"{event.kind.value}\t{event.revision}\t{shown_key(event.key)}")
    sys.stdout.flush()  # Why: who reads a pipe wants each change when it happens.


def _age(instance: NamespaceInstance, now: datetime) -> str:
    if instance.started_at is None:
        return "-"
    seconds = max(int((now - instance.started_at).total_seconds()), 0)
    unit = next((unit for unit in ("d", "h", "m") if seconds >= _SECONDS[unit]), "s")
    return f"{seconds // _SECONDS[unit]}{unit}"


def _seconds_of(age: str) -> int:
    count, unit = age[:-1], age[-1:]
    if unit not in _SECONDS or not (count.isdecimal() and len(count) <= 6):
        raise InvalidInputError(
            source="--older-than", problem=f"{age!r} is no age: a number with s, m, h, d or w, as in 36h"
        )
    return int(count) * _SECONDS[unit]
