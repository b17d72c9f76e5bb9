"""Users get types: every case says exactly what its comments expect, to mypy --strict and to pyright."""

from pathlib import Path

import pytest

from tests.typing.checkers import mypy_says, pyright_says
from tests.typing.expectations import Checker, Said, differences, expected, plain_type

CASES = Path(__file__).parent / "cases"
FILES = sorted(CASES.glob("*.py"))


def wanted(checker: Checker) -> list[Said]:
    return [one for file in FILES for one in expected(file.name, file.read_text(), checker)]


def compare(checker: Checker, said: list[Said]) -> None:
    found = differences(wanted(checker), said)
    if found:
        pytest.fail(f"{checker}:\n" + "\n".join(found), pytrace=False)


def test_there_are_cases() -> None:
    assert FILES


@pytest.mark.timeout(400)
def test_mypy_says_what_the_cases_expect(tmp_path: Path) -> None:
    compare("mypy", mypy_says(CASES, tmp_path / "cache"))


@pytest.mark.timeout(400)
def test_pyright_says_what_the_cases_expect() -> None:
    compare("pyright", pyright_says(CASES))


CASE = """\
x: int = "a"  # error
f("a")  # expect: mypy[arg-type] pyright[reportArgumentType]
reveal_type(f(1))  # revealed: builtins.str | None
reveal_type(f)  # revealed: mypy=def () -> int; pyright=() -> int
"""


def test_a_case_s_comments_are_read_for_each_checker() -> None:
    assert list(expected("a.py", CASE, "mypy")) == [
        Said("a.py", 1, "*"),
        Said("a.py", 2, "arg-type"),
        Said("a.py", 3, "revealed", "str | None"),
        Said("a.py", 4, "revealed", "def () -> int"),
    ]
    assert Said("a.py", 4, "revealed", "() -> int") in list(expected("a.py", CASE, "pyright"))


@pytest.mark.parametrize(
    ("said", "plain"),
    [
        ("builtins.int", "int"),
        ("typing.Iterator[tuple[builtins.str, a.b.Rack]]", "Iterator[tuple[str, Rack]]"),
        ("builtins.list[tuple[tuple[list[str], int, fallback=a.RackKey], bytes]]", "list[tuple[RackKey, bytes]]"),
        ("tuple[tuple[int, fallback=In], str, fallback=Out] | None", "Out | None"),
    ],
)
def test_types_are_compared_without_modules_and_marks(said: str, plain: str) -> None:
    assert plain_type(said) == plain


def test_an_expectation_without_a_code_is_refused() -> None:
    with pytest.raises(ValueError, match=r"a\.py:1"):
        list(expected("a.py", "x  # expect: an error\n", "mypy"))


def test_what_is_said_as_expected_makes_no_difference() -> None:
    said = [
        Said("a.py", 1, "assignment", "Incompatible types"),
        Said("a.py", 2, "arg-type", "Argument 1"),
        Said("a.py", 3, "revealed", "str | None"),
        Said("a.py", 4, "revealed", "def () -> int"),
    ]
    assert differences(list(expected("a.py", CASE, "mypy")), said) == []


def test_every_difference_is_named() -> None:
    said = [
        Said("a.py", 2, "call-arg", "Too many"),
        Said("a.py", 3, "revealed", "str"),
        Said("a.py", 4, "revealed", "def () -> int"),
        Said("a.py", 9, "misc", "Something else"),
    ]
    assert differences(list(expected("a.py", CASE, "mypy")), said) == [
        "expected, not said: a.py:2: arg-type",
        "expected, not said: a.py:3: revealed: str | None",
        "expected, not said: a.py:1: an error",
        "said, not expected: a.py:2: call-arg: Too many",
        "said, not expected: a.py:3: revealed: str",
        "said, not expected: a.py:9: misc: Something else",
    ]
