"""Records of options: a command takes their fields one by one, and is called with the records."""

from dataclasses import dataclass
from inspect import Parameter, signature
from typing import Annotated, NamedTuple, get_args

import pytest

from keyplan.cli.options import spread
from keyplan.settings import Setting, Source, read_settings


class Where(NamedTuple):
    store: Annotated[str | None, "an option"] = None
    config: str = "here"


class Needed(NamedTuple):
    name: str


def command(item: str, *, at: Where, needed: Needed, json: bool = False) -> tuple[str, Where, Needed, bool]:
    """Say what came."""
    return item, at, needed, json


def test_the_fields_stand_in_the_place_of_their_record_with_options_and_defaults() -> None:
    parameters = signature(spread(command)).parameters
    assert list(parameters) == ["item", "store", "config", "name", "json"]
    assert parameters["store"].annotation == Annotated[str | None, "an option"]
    assert (parameters["config"].default, parameters["name"].default) == ("here", Parameter.empty)
    assert spread(command).__doc__ == "Say what came."


def test_the_command_is_called_with_the_records() -> None:
    called = spread(command)
    assert called(item="a", store="s", config="c", name="n", json=True) == ("a", Where("s", "c"), Needed("n"), True)


def test_a_field_that_was_not_given_is_an_error() -> None:
    with pytest.raises(KeyError):
        spread(command)(item="a", store="s", config="c", json=True)


@dataclass(frozen=True, kw_only=True)
class Told:
    port: Annotated[int, Setting("where it listens", option="--port", variable="TOLD_PORT")] = 80
    is_open: Annotated[bool, Setting("whether it is", option="--open/--shut")] = False
    kept: Annotated[int, Setting("not for the command line", variable="TOLD_KEPT")] = 1


def test_declared_settings_are_flags_and_the_command_is_called_with_their_source() -> None:
    def serve(*, told: Annotated[Source, Told]) -> Told:
        return read_settings(Told, told)

    called = spread(serve)
    parameters = signature(called).parameters
    assert list(parameters) == ["port", "is_open"]
    (kind, option) = get_args(parameters["port"].annotation)
    assert (kind, option.help) == (str | None, "Where it listens. [80; TOLD_PORT]")
    assert called(port=None, is_open=None) == Told()
    assert called(port="81", is_open=True) == Told(port=81, is_open=True)
