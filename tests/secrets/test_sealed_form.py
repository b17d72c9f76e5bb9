"""Sealed secrets as bytes: written down by hand, opened by the primitive itself, refused when anything of them was changed."""

import base64
import json
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from hypothesis import given
from hypothesis import strategies as st

from keyplan import Secret, SecretKeys
from keyplan.codec import (
    Envelope,
    SecretPath,
    SecretPlace,
    SecretSyntax,
    change_secrets,
    envelope_in,
    has_exact_paths,
    marked,
    secrets_in,
    value_form_of,
)
from keyplan.errors import CorruptionError, InvalidRecordError, SecretKeyError

KEY = bytes(range(32))
NONCE = bytes(range(100, 112))
PLACE = SecretPlace("Vault", "accounts", ("passWord",), (b"ada",))
CONTEXT = b'["keyplan/1","k1","Vault","accounts",["passWord"],["616461"]]'

# What `AESGCM(KEY).encrypt(NONCE, b'"correct horse"', CONTEXT)` of OpenSSL gave: stored values must be read for ever.
GOLDEN = "keyplan/1:k1:ZGVmZ2hpamtsbW5vanixFAuMNeoeCjCaqQBIrcHyDRPEB9Hq1GHCYdl8IA=="


def keys(*ids: str, nonces: Sequence[bytes] = ()) -> SecretKeys:
    """Keys that differ by their last byte; the first id is the current one."""
    made = {key_id: KEY[:-1] + bytes([number]) for number, key_id in enumerate(ids, 31)}
    if not nonces:
        return SecretKeys(made, ids[0])
    given = iter(nonces)
    return SecretKeys(made, ids[0], random=lambda _: next(given))


def test_the_bytes_of_an_envelope_stay_what_they_are() -> None:
    cipher = keys("k1", nonces=[NONCE])
    assert PLACE.context("k1") == CONTEXT
    assert Envelope.of(cipher, b'"correct horse"', PLACE).text == GOLDEN
    assert Envelope.read(GOLDEN).opened(cipher, PLACE) == b'"correct horse"'


def test_the_context_names_every_step_and_field() -> None:
    place = SecretPlace("Haus", "t\u00fcren", ("tokens", "a/b", None, 2, b"\xff"), (b"\x00", b"h1"))
    assert json.loads(place.context("k1")) == [
        "keyplan/1",
        "k1",
        "Haus",
        "t\u00fcren",
        ["tokens", "a/b", None, 2, "ff"],
        ["00", "6831"],
    ]


steps = st.none() | st.integers(0, 9) | st.text(max_size=5)
places = st.builds(
    SecretPlace,
    st.text(max_size=8),
    st.text(max_size=8),
    st.lists(steps, max_size=3).map(tuple),
    st.lists(st.binary(max_size=5), max_size=3).map(tuple),
)


@given(plain=st.binary(max_size=40), place=places, key_id=st.sampled_from(["k1", "k2"]))
def test_the_primitive_alone_opens_what_was_sealed_and_the_other_way_round(
    plain: bytes, place: SecretPlace, key_id: str
) -> None:
    cipher = keys(key_id)
    text = Envelope.of(cipher, plain, place).text
    form, read_id, content = text.split(":")
    raw = base64.b64decode(content)
    way = [step.hex() if isinstance(step, bytes) else step for step in place.way]
    context = json.dumps(
        ["keyplan/1", key_id, place.layout, place.table, way, [field.hex() for field in place.fields]],
        separators=(",", ":"),
        ensure_ascii=False,
    ).encode()
    # Why read both ways: msgspec and json may spell a control character differently.
    assert json.loads(context) == json.loads(place.context(key_id))
    assert (form, read_id) == ("keyplan/1", key_id)
    assert AESGCM(KEY).decrypt(raw[:12], raw[12:], place.context(key_id)) == plain
    nonce = bytes(12)
    other = Envelope(key_id, nonce + AESGCM(KEY).encrypt(nonce, plain, place.context(key_id)))
    assert Envelope.read(other.text).opened(cipher, place) == plain


@given(places=st.lists(places, min_size=2, max_size=2, unique=True))
def test_two_places_have_two_contexts_and_neither_opens_what_the_others_is(places: list[SecretPlace]) -> None:
    here, there = places
    cipher = keys("k1")
    assert here.context("k1") != there.context("k1")
    with pytest.raises(CorruptionError, match="sealed for another place"):
        Envelope.of(cipher, b"plain", here).opened(cipher, there)


def test_any_changed_bit_is_refused() -> None:
    cipher = keys("k1")
    sealed = Envelope.of(cipher, b"pin", PLACE)
    for place in range(len(sealed.sealed) * 8):
        changed = bytearray(sealed.sealed)
        changed[place // 8] ^= 1 << place % 8
        with pytest.raises(CorruptionError):
            Envelope("k1", bytes(changed)).opened(cipher, PLACE)
    for length in range(len(sealed.sealed)):
        with pytest.raises(CorruptionError):
            Envelope("k1", sealed.sealed[:length]).opened(cipher, PLACE)


def test_the_id_of_the_key_is_sealed_too_also_where_two_ids_have_one_key() -> None:
    same = SecretKeys({"k1": KEY, "k2": KEY}, "k1")
    sealed = Envelope.of(same, b"pin", PLACE)
    with pytest.raises(CorruptionError):
        sealed._replace(key_id="k2").opened(same, PLACE)
    with pytest.raises(CorruptionError):
        sealed._replace(key_id="k2").opened(keys("k1", "k2"), PLACE)
    with pytest.raises(SecretKeyError, match="'k3'"):
        sealed._replace(key_id="k3").opened(same, PLACE)


def test_no_nonce_is_used_twice() -> None:
    cipher = keys("k1")
    found = {Envelope.of(cipher, b"pin", PLACE).sealed[:12] for _ in range(500)}
    assert len(found) == 500


@pytest.mark.parametrize(
    "text", ["", "keyplan/1", "keyplan/1:k1", "keyplan/2:k1:AAAA", "keyplan/1:k1:A", "keyplan/1:k1:\u00e4", "k1:AAAA"]
)
def test_what_is_no_envelope_is_refused_by_what_it_lacks(text: str) -> None:
    with pytest.raises(CorruptionError, match="the sealed secret"):
        Envelope.read(text)


# ---- how they stand in a value -------------------------------------------------------------------------------------------

MODULES: dict[SecretSyntax, Any] = {SecretSyntax.JSON: msgspec.json, SecretSyntax.MSGPACK: msgspec.msgpack}


@pytest.mark.parametrize("syntax", MODULES)
def test_only_what_a_way_leads_to_is_changed(syntax: SecretSyntax) -> None:
    module = MODULES[syntax]
    value = {
        "a": 1.50,
        "b": {"c": "x", "d": ["y", "z"], "e": None},
        "list": [{"code": 1}, {"code": 2, "name": "n"}, {}],
        "map": {"k/1": "s", "k2": "t"},
        "array": ["u", ["v", "w"]],
    }
    paths: list[SecretPath] = [
        ("b", "c"),
        ("list", None, "code"),
        ("map", None),
        ("array", 1),
        ("gone", "x"),
        ("a", "x"),
    ]
    found = secrets_in(syntax, module.encode(value), paths)
    assert [(way, module.decode(raw)) for way, raw in found] == [
        (("b", "c"), "x"),
        (("list", None, "code"), 1),
        (("list", None, "code"), 2),
        (("map", "k/1"), "s"),
        (("map", "k2"), "t"),
        (("array", 1), ["v", "w"]),
    ]
    changed = change_secrets(
        syntax, module.encode(value), paths, lambda way, raw: module.encode([way[-1], module.decode(raw)])
    )
    assert module.decode(changed) == {
        "a": 1.50,
        "b": {"c": ["c", "x"], "d": ["y", "z"], "e": None},
        "list": [{"code": ["code", 1]}, {"code": ["code", 2], "name": "n"}, {}],
        "map": {"k/1": ["k/1", "s"], "k2": ["k2", "t"]},
        "array": ["u", [1, ["v", "w"]]],
    }


def test_what_is_not_changed_stays_byte_for_byte() -> None:
    raw = b'{"z":1.50e0,"a":"\\u00e4", "secret" : "x", "big":123456789012345678901234567890,"more":{"z":1,  "a":2}}'
    assert change_secrets(SecretSyntax.JSON, raw, [("secret",)], lambda _, found: found) == raw
    changed = change_secrets(SecretSyntax.JSON, raw, [("secret",)], lambda _, found: b'"y"')
    for kept in (b"1.50e0", b'"\\u00e4"', b"123456789012345678901234567890", b'{"z":1,  "a":2}', b'"secret":"y"'):
        assert kept in changed


@pytest.mark.parametrize("raw", [b"", b"{", b'{"secret":', b"\xff", b"["])
def test_what_is_no_document_is_damaged(raw: bytes) -> None:
    with pytest.raises(CorruptionError):
        change_secrets(SecretSyntax.JSON, raw, [("secret",)], lambda _, found: found)


FORMS: dict[str, tuple[Any, str | None, SecretSyntax]] = {
    "text": (Secret[str], None, SecretSyntax.WHOLE),
    "bytes": (Secret[bytes], None, SecretSyntax.WHOLE),
    "number": (Secret[int], None, SecretSyntax.WHOLE),
    "mapping": (Secret[dict[str, str]], "json", SecretSyntax.JSON),
    "packed mapping": (Secret[dict[str, str]], "msgpack", SecretSyntax.MSGPACK),
}


@pytest.mark.parametrize("name", FORMS)
def test_a_clear_secret_that_looks_like_a_sealed_one_is_not_written(name: str) -> None:
    kind, form_name, syntax = FORMS[name]
    form = value_form_of(kind, form=form_name, is_text=True)
    assert form.secret_syntax is syntax
    stored = marked(syntax, GOLDEN)
    assert envelope_in(syntax, stored) == GOLDEN
    assert form.decode(stored).sealed.envelope == GOLDEN
    assert form.encode(form.decode(stored)) == stored
    looks_so = {"bytes": stored, "mapping": {"$sealed": "x"}, "packed mapping": {"$sealed": "x"}}
    if name in looks_so:
        with pytest.raises(InvalidRecordError, match="looks like a sealed one"):
            form.encode(kind(looks_so[name]))


class Cat(msgspec.Struct, tag=True):
    code: Secret[str]


class Dog(msgspec.Struct, tag=True):
    code: str


class Hen(msgspec.Struct, tag=True):
    name: str
    codes: dict[str, Secret[str]] = {}


class House(msgspec.Struct):
    pets: list[Cat | Hen] = []
    keeper: Secret[str] | None = None


class Kennel(msgspec.Struct):
    pets: list[Cat | Dog] = []


@pytest.mark.parametrize(
    ("kind", "is_exact"), [(House, True), (Kennel, False), (Secret[str], True), (Cat | None, True)]
)
def test_a_way_that_leads_to_clear_fields_too_is_found(kind: Any, *, is_exact: bool) -> None:
    assert has_exact_paths(kind) is is_exact


def test_the_primitive_refuses_what_the_test_refuses() -> None:
    with pytest.raises(InvalidTag):
        AESGCM(KEY).decrypt(NONCE, AESGCM(KEY).encrypt(NONCE, b"x", CONTEXT), CONTEXT + b" ")
