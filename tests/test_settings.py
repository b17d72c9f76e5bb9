"""Settings declared once: read from several sources in order, refused in the words of their place, shown as a table."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest

from keyplan.errors import InvalidInputError
from keyplan.settings import (
    Setting,
    TextForm,
    declared_settings,
    of_environment,
    of_options,
    of_service,
    one_of,
    read_settings,
    settings_table,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Small:
    """Of each kind one."""

    port: Annotated[int, Setting("where it listens", variable="SMALL_PORT", option="--port", least=1, most=65535)] = 80
    share: Annotated[float, Setting("how much", least=0.5, most=2)] = 1.0
    is_open: Annotated[bool, Setting("whether it is", name="open", variable="SMALL_OPEN")] = False
    mode: Annotated[Literal["fast", "safe"], Setting("how it writes")] = "safe"
    title: Annotated[str, Setting("what it is called", least=1, is_secret=True)] = "x"
    place: Annotated[Path | None, Setting("where it is", form=TextForm(Path, "a file"))] = None
    limit: Annotated[int | None, Setting("at most", least=1)] = None
    kind: Annotated[str, Setting("one of some", form=one_of("a", "b"))] = "a"
    other: int = 7


def read(name: str, text: str) -> Any:
    return getattr(read_settings(Small, of_service({name: text}, "small")), name.replace("-", "_"))


def test_nothing_given_is_the_default() -> None:
    assert read_settings(Small) == Small()
    assert read_settings(Small, other=8) == Small(other=8)


def test_the_first_source_that_has_a_setting_counts() -> None:
    options = of_options({"port": "1", "share": None})
    environment = of_environment({"SMALL_PORT": "2", "SMALL_OPEN": "yes", "": "nobody's"})
    found = read_settings(Small, options, environment, of_service({"port": "3", "share": "0.5", "mode": "FAST"}, "s"))
    assert found == Small(port=1, is_open=True, share=0.5, mode="fast")


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("port", "65535", 65535),
        ("share", "2", 2.0),
        ("mode", "Fast", "fast"),
        ("place", "a/b", Path("a/b")),
        ("limit", "3", 3),
        ("kind", "b", "b"),
        ("title", " ", " "),
    ],
)
def test_a_text_is_read_by_the_type_of_its_field(name: str, text: str, value: object) -> None:
    assert read(name, text) == value


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("port", "65536", "it is 65536; it must be from 1 to 65535"),
        ("port", "0", "it is 0; it must be from 1 to 65535"),
        ("port", "-1", "it must be a whole number from 1 to 65535"),
        ("port", "٣", "it must be a whole number from 1 to 65535"),
        ("port", "", "it must be a whole number from 1 to 65535"),
        ("share", "0.4", "it must be a number from 0.5 to 2"),
        ("share", "nan", "it must be a number from 0.5 to 2"),
        ("share", "1_0e-1", "it must be a number from 0.5 to 2"),
        ("share", "1_000", "it must be a number from 0.5 to 2"),
        ("share", "٣", "it must be a number from 0.5 to 2"),
        ("share", "1,5", "it must be a number from 0.5 to 2"),
        ("open", "maybe", "it must be true or false"),
        ("mode", "hasty", "it must be one of fast, safe"),
        ("title", "", "it must contain at least 1 character"),
        ("kind", "c", "it must be one of a, b"),
    ],
)
def test_what_cannot_be_read_is_refused_in_the_words_of_its_place(name: str, text: str, problem: str) -> None:
    with pytest.raises(InvalidInputError) as refused:
        read(name, text)
    assert (refused.value.facts["source"], refused.value.facts["problem"]) == (f"--setting small.{name}", problem)


def test_a_variable_and_an_option_are_named_when_they_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="SMALL_OPEN"):
        read_settings(Small, of_environment({"SMALL_OPEN": "perhaps"}))
    with pytest.raises(InvalidInputError, match="--port"):
        read_settings(Small, of_options({"port": "high"}), of_environment({"SMALL_PORT": "1"}))


def test_a_lenient_reading_passes_over_what_cannot_be_read() -> None:
    given = of_environment({"SMALL_PORT": "high", "SMALL_OPEN": "1"})
    assert read_settings(Small, given, is_lenient=True) == Small(is_open=True)


def test_the_table_says_what_the_class_says() -> None:
    assert [declared.name for declared in declared_settings(Small)] == [
        *("port", "share", "open", "mode", "title", "place", "limit", "kind"),
    ]
    rows = settings_table(Small, "small.")
    assert rows[0] == "| Flag | Variable | Means | May be | By default |"
    assert rows[2] == "| `--port` | `SMALL_PORT` | where it listens | 1 to 65535 | 80 |"


def test_a_secret_is_in_no_table() -> None:
    assert not any("`x`" in row for row in settings_table(Small))
