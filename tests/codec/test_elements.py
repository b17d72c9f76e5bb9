"""The promises that every codec makes, for each codec and parameter set of the registry document."""

import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keyplan.codec import Element, Language, Refined, TupleElement, element_of_spec, registered_elements
from keyplan.errors import InvalidKeyError
from keyplan.testing.strategies import element_members, element_values
from tests.codec.registry import automaton, automaton_accepts, element, specs

every_spec = pytest.mark.parametrize("spec", specs())
# Why: fifty codecs and ten promises; the profile for long runs multiplies all of them.
few = settings(max_examples=settings().max_examples // 8)

WRONG_TYPES: list[object] = [None, True, False, 1.5, "1", b"1", 1, -1, 2**600, (), [], object(), float("nan"), "\ud800"]


def is_decodable(codec: Element[Any], raw: bytes) -> bool:
    try:
        codec.decode(raw)
    except InvalidKeyError:
        return False
    return True


def has_rule(language: Language) -> bool:
    """Whether a rule beyond regular languages is part of it: then automata are larger than the language."""
    parts = [getattr(language, name) for name in ("item",) if hasattr(language, name)]
    parts += [part for name in ("parts", "options") for part in getattr(language, name, ())]
    return isinstance(language, Refined) or any(has_rule(part) for part in parts)


def mutated(data: st.DataObject, raw: bytes) -> bytes:
    """`raw` with a byte changed, added or taken away: mostly near misses."""
    position = data.draw(st.integers(0, len(raw)))
    byte = data.draw(st.sampled_from([*b"\x00\x01\x7f\x80\xff/%.09aFz", *raw[:8]]) | st.integers(0, 255))
    kind = data.draw(st.sampled_from(["change", "add", "remove", "cut"]))
    if kind == "change" and position < len(raw):
        return raw[:position] + bytes([byte]) + raw[position + 1 :]
    if kind == "remove":
        return raw[:position] + raw[position + 1 :]
    return raw[:position] if kind == "cut" else raw[:position] + bytes([byte]) + raw[position:]


@every_spec
@given(data=st.data())
@few
def test_a_value_survives_being_encoded_and_its_bytes_are_a_member_of_the_language(
    spec: str, data: st.DataObject
) -> None:
    codec = element(spec)
    value = data.draw(element_values(codec))
    raw = codec.encode(value)
    assert codec.decode(raw) == value
    assert isinstance(codec.decode(raw), codec.value_type)
    assert codec.language.accepts(raw)
    assert codec.bytes_min <= len(raw)
    assert codec.bytes_max is None or len(raw) <= codec.bytes_max


@every_spec
@given(data=st.data())
@few
def test_exactly_the_members_of_the_language_decode_and_each_has_one_spelling(spec: str, data: st.DataObject) -> None:
    codec = element(spec)
    raw = mutated(data, codec.encode(data.draw(element_values(codec))))
    assert codec.language.accepts(raw) == is_decodable(codec, raw)
    if is_decodable(codec, raw):
        assert codec.encode(codec.decode(raw)) == raw


@every_spec
@given(data=st.data())
@few
def test_the_automata_accept_every_member_and_the_exact_one_nothing_else(spec: str, data: st.DataObject) -> None:
    codec = element(spec)
    raw = codec.encode(data.draw(element_values(codec)))
    if data.draw(st.booleans()):
        raw = mutated(data, raw)
    is_member = codec.language.accepts(raw)
    if is_member:
        assert automaton_accepts(automaton(spec, relaxed=True), raw)
        assert automaton_accepts(automaton(spec, relaxed=False), raw)
    elif not has_rule(codec.language):
        assert not automaton_accepts(automaton(spec, relaxed=False), raw)


@pytest.mark.parametrize("spec", [spec for spec in specs() if not isinstance(element(spec), TupleElement)])
@given(data=st.data())
@few
def test_bytes_sort_as_values_do_where_the_codec_says_so(spec: str, data: st.DataObject) -> None:
    codec = element(spec)
    one, other = data.draw(element_values(codec)), data.draw(element_values(codec))
    if codec.is_ordered:
        assert codec.disorder == ""
        assert (one < other) == (codec.encode(one) < codec.encode(other))


DISORDER: dict[str, tuple[Any, Any]] = {
    "decimal": (9, 10),
    "directory": ("a", "a!"),
    "level_path": ("a/a", "b"),
    "percent": ("a(", "a/"),
    "uvarint": (129, 256),
}


@pytest.mark.parametrize("code", registered_elements())
def test_a_codec_that_does_not_keep_order_has_a_pair_to_show(code: str) -> None:
    unordered = [codec for spec in specs() if (codec := element(spec)).code == code and not codec.is_ordered]
    assert (code in DISORDER) == bool(unordered)
    for codec in unordered:
        smaller, larger = DISORDER[code]
        if is_encodable(codec, larger):
            assert smaller < larger
            assert codec.encode(smaller) > codec.encode(larger)
            assert codec.disorder


def is_encodable(codec: Element[Any], value: object) -> bool:
    try:
        codec.encode(value)
    except InvalidKeyError:
        return False
    return True


@every_spec
def test_values_of_other_types_are_refused_with_the_codec_named(spec: str) -> None:
    codec = element(spec)
    for value in WRONG_TYPES:
        if type(value) is codec.value_type:
            continue
        with pytest.raises(InvalidKeyError) as caught:
            codec.encode(value)
        assert caught.value.facts["element"] == codec.spec


@every_spec
def test_a_codec_is_made_again_from_its_spec(spec: str) -> None:
    codec = element(spec)
    again = element_of_spec(codec.spec)
    assert again == codec
    assert hash(again) == hash(codec)
    assert type(again) is type(codec)
    assert again.language == codec.language or has_rule(codec.language)


@pytest.mark.parametrize("spec", [spec for spec in specs() if element(spec).fast_text()])
@given(data=st.data())
@few
def test_generated_text_agrees_with_the_codec(spec: str, data: st.DataObject) -> None:
    codec = element(spec)
    fast = codec.fast_text()
    assert fast is not None
    value = data.draw(element_values(codec) | st.sampled_from(WRONG_TYPES) | st.text() | st.integers())
    names: dict[str, Any] = {**fast.names, "value": value}
    if eval(fast.check.format(v="value"), names):
        raw = eval('f"{' + fast.format.format(v="value") + '}"', names).encode()
        assert raw == codec.encode(value)
    if is_encodable(codec, value):
        raw = codec.encode(value)
        assert eval(fast.parse.format(raw="raw"), {**names, "raw": raw}) == value


@pytest.mark.parametrize("spec", [spec for spec in specs() if element(spec).fast_struct()])
@given(data=st.data())
@few
def test_generated_struct_items_agree_with_the_codec(spec: str, data: st.DataObject) -> None:
    codec = element(spec)
    fast = codec.fast_struct()
    assert fast is not None
    item = struct.Struct(">" + fast.code)
    assert item.size == codec.width
    value = data.draw(element_values(codec) | st.sampled_from(WRONG_TYPES) | st.binary() | st.integers())
    names: dict[str, Any] = {**fast.names, "value": value}
    if eval(fast.check.format(v="value"), names):
        try:
            raw = item.pack(eval(fast.pack.format(v="value"), names))
        except struct.error:
            assert not is_encodable(codec, value)
        else:
            assert raw == codec.encode(value)
    raw = data.draw(st.binary(min_size=item.size, max_size=item.size))
    (unpacked,) = item.unpack(raw)
    if not fast.member or eval(fast.member.format(raw="unpacked"), {**fast.names, "unpacked": unpacked}):
        assert eval(fast.parse.format(raw="unpacked"), {**fast.names, "unpacked": unpacked}) == codec.decode(raw)
    else:
        assert not is_decodable(codec, raw)


STARTING = [
    "escaped",
    "escaped_text",
    "fixed(width=4)",
    "path",
    "percent",
    "tail",
    "text",
    "text(exclude='#')",
    "text_tail",
]


@pytest.mark.parametrize("spec", STARTING)
@given(data=st.data())
@few
def test_encodings_begin_with_the_encoded_start_exactly_when_values_do(spec: str, data: st.DataObject) -> None:
    codec = element(spec)
    one, other = data.draw(element_values(codec)), data.draw(element_values(codec))
    start = one[: data.draw(st.integers(0, len(one)))]
    try:
        raw = codec.encode_start(start)
    except InvalidKeyError:
        # Why: a start that no value has, e.g. a path that goes on behind two slashes.
        pytest.fail(f"{start!r} is the start of {one!r}")
    assert codec.encode(one).startswith(raw)
    assert codec.encode(other).startswith(raw) == other.startswith(start)


@pytest.mark.parametrize("spec", ["u64", "decimal", "hex_uuid", "uvarint", "timestamp", "tuple", "level_path"])
def test_codecs_without_starts_refuse_them(spec: str) -> None:
    codec = element(spec)
    with pytest.raises(InvalidKeyError, match="starts_with is not possible"):
        codec.encode_start(codec.decode(b"") if spec == "tuple" else 1)


@pytest.mark.parametrize("spec", ["text", "percent", "decimal(width=4)", "hex_uuid", "uvarint", "timestamp", "escaped"])
@given(data=st.data())
@few
def test_members_drawn_from_the_language_alone_decode(spec: str, data: st.DataObject) -> None:
    codec = element(spec)
    raw = data.draw(element_members(codec))
    assert codec.encode(codec.decode(raw)) == raw
