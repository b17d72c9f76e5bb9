"""Records of options: a command takes their fields one by one, and is called with the records."""

from inspect import Parameter, signature
from typing import Annotated, NamedTuple

import pytest

from keyplan.cli.options import spread


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
