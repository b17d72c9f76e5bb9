"""A secret shows itself to nobody who does not call `reveal`, whatever is done with it."""

import copy
import dataclasses
import json
import logging
import pickle
import pprint
import string
import traceback
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from keyplan import Secret
from keyplan.errors import InvalidRecordError
from tests.secrets.vault import Account, Door, Vault, account, traces

SECRET = "xyzzy-plugh"

# What anybody may do to print or write a value, without asking for what it holds.
RENDERINGS: dict[str, Callable[[Any], object]] = {
    "str": str,
    "repr": repr,
    "ascii": ascii,
    "f-string": lambda value: f"{value} {value!r} {value!s:>40}",
    "percent": lambda value: "%s %r" % (value, value),  # noqa: UP031  # Why: it is one of the ways.
    "format": "{0} {0!r}".format,
    "pprint": pprint.pformat,
    "a list of it": lambda value: str([value, {"value": value}]),
    "json with default": lambda value: json.dumps({"value": value}, default=str),
    "builtins": lambda value: msgspec.to_builtins(value, enc_hook=str, str_keys=True),
    "builtins by repr": lambda value: msgspec.to_builtins(value, enc_hook=repr, str_keys=True),
}


@pytest.mark.parametrize("way", RENDERINGS)
@given(secret=st.text(string.ascii_letters + string.digits, min_size=6, max_size=40))
def test_no_rendering_of_a_secret_or_of_a_record_with_one_holds_it(way: str, secret: str) -> None:
    for value in (Secret(secret), Secret(secret.encode()), account(secret), Door("cellar", Secret(secret))):
        assert not traces(str(RENDERINGS[way](value)), secret)


@pytest.mark.parametrize("encode", [json.dumps, msgspec.json.encode, msgspec.msgpack.encode, msgspec.to_builtins])
def test_what_encodes_values_without_being_told_how_refuses_a_secret(encode: Callable[[Any], object]) -> None:
    for value in (Secret(SECRET), {"password": Secret(SECRET)}, [account(SECRET).pass_word]):
        with pytest.raises(TypeError, match="Secret"):
            encode(value)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_secret_is_not_pickled(protocol: int) -> None:
    with pytest.raises(TypeError, match="a secret is not pickled"):
        pickle.dumps(account(SECRET), protocol)


def test_a_secret_has_no_truth_value_no_order_no_hash_and_no_attributes() -> None:
    secret = Secret(SECRET)
    acts: list[Callable[[Any], object]] = [
        bool,
        hash,
        len,
        iter,
        vars,
        bytes,
        int,
        lambda value: value < Secret(SECRET),
    ]
    for act in acts:
        with pytest.raises(TypeError):
            act(secret)
    with pytest.raises(AttributeError):
        _ = secret.value  # type: ignore[attr-defined]  # Why: what anybody would try.


def test_secrets_are_equal_by_what_they_hold_and_of_one_kind() -> None:
    assert Secret("a") == Secret("a") != Secret("b")
    assert Secret("a") != Secret(b"a")
    assert Secret("a") != "a"
    assert Secret(None) == Secret(None) != Secret("None")
    assert Secret("\ud800") == Secret("\ud800")
    assert Secret[str]("a") == Secret("a")


def test_copies_are_the_secret_itself() -> None:
    record = Door("cellar", Secret(SECRET))
    assert copy.copy(record.code) is copy.deepcopy(record).code is record.code
    assert dataclasses.asdict(record)["code"] is record.code


def test_a_traceback_and_a_log_line_hold_no_secret(caplog: pytest.LogCaptureFixture) -> None:
    record = account(SECRET)
    try:
        raise ValueError(record, record.pass_word)
    except ValueError as error:
        shown = "".join(traceback.TracebackException.from_exception(error, capture_locals=True).format())
        logging.getLogger(__name__).exception(
            "it failed with %s", record, extra={"facts": {"password": record.pass_word}}
        )
    assert "ValueError" in shown
    assert not traces(shown.replace(f"SECRET = '{SECRET}'", ""), SECRET)
    assert not traces(caplog.text, SECRET)


@pytest.mark.parametrize("table", ["accounts", "packed"])
def test_an_error_of_a_record_that_is_refused_holds_no_secret(table: str) -> None:
    form = Vault.spec.tables[table].form
    wrong = account(SECRET)
    wrong.pass_word = Secret([SECRET])  # type: ignore[arg-type]  # Why: a value of another type.
    with pytest.raises(InvalidRecordError, match=r"Expected `str`, got `list` - at `\$\.passWord`") as refused:
        form.encode(wrong)
    shown = "".join(traceback.format_exception(refused.value))
    assert "passWord" in shown
    assert not traces(shown, SECRET)


def test_a_type_checker_knows_what_a_secret_holds_and_so_does_the_class() -> None:
    assert (Secret[str].kind, Secret[bytes].kind) == (str, bytes)
    assert Secret[str] is Secret[str]
    assert issubclass(Secret[str], Secret)
    length: int = len(Account("a", Secret("abc")).pass_word.reveal())
    assert length == 3
