"""Names: the parameters of `text`, exact languages without reserved words, and the codecs whose errors name limits."""

import itertools
import pickle
from uuid import UUID

import pytest

from keyplan.codec import Decimal, HexUuid, LevelPath, Percent, SlashPath, Tail, Text, element_of_spec
from keyplan.errors import InvalidKeyError, TemplateError, UnknownNameError
from tests.codec.registry import automaton_accepts

WORDS = ["a", "ab", "abc", "b.", "ca", "cab", "xyz"]


@pytest.mark.parametrize("is_empty_allowed", [False, True])
@pytest.mark.parametrize("allow", ["", "abc."])
def test_the_language_leaves_out_exactly_the_reserved_and_the_dot_names(allow: str, *, is_empty_allowed: bool) -> None:
    codec = Text(reserved=" ".join(WORDS), dots=False, empty=is_empty_allowed, allow=allow, bytes_max=4)
    machine = codec.language.automaton(relaxed=False)
    alphabet = "abc." if allow else "ab.cé"
    for length in range(5):
        for letters in itertools.product(alphabet, repeat=length):
            name = "".join(letters)
            expected = name not in {*WORDS, ".", ".."} and (bool(name) or is_empty_allowed) and len(name.encode()) <= 4
            assert codec.language.accepts(name.encode()) == expected, name
            assert automaton_accepts(machine, name.encode()) == expected, name


def test_a_name_has_one_run_although_words_are_left_out() -> None:
    machine = Text(reserved="a ab abc", dots=False).language.automaton()
    for name in ["abcd", "abd", "é", "aé", "ac", "..."]:
        states = frozenset({0})
        for byte in name.encode():
            states = machine.step(states, byte)
        assert len(states & machine.accepting) == 1, name


@pytest.mark.parametrize(
    ("allow", "members", "others"),
    [
        ("a-z", "amz", "A-é0"),
        ("a-z0-9_.-", "a9_.-", "A+"),
        ("-a", "-a", "b"),
        ("a-", "a-", "b"),
        ("+--", "+,-", "*."),
        ("!--", "!,-", " ."),
        ("a-c-e", "abc-e", "d"),
    ],
)
def test_allowed_characters_are_listed_with_ranges(allow: str, members: str, others: str) -> None:
    codec = Text(allow=allow)
    for one in members:
        assert codec.decode(codec.encode(one)) == one
    for one in others:
        with pytest.raises(InvalidKeyError, match="may not occur"):
            codec.encode(one)
    assert element_of_spec(codec.spec) == codec
    assert element_of_spec(codec.spec).language == codec.language


@pytest.mark.parametrize(
    ("one", "same"),
    [
        ("text(exclude='#/')", "text(exclude='/#')"),
        ("text(exclude='/')", "text"),
        ("text(reserved='b a')", "text(reserved='a  b')"),
        ("text(allow='abcd')", "text(allow='a-d')"),
        ("text( bytes_max = 64 , dots=false )", "text(dots=false,bytes_max=64)"),
        ("text(bytes_max=255)", "text"),
        ("text(exclude='')", "text(exclude='')"),
        (r"text(exclude='\'\\')", r"text(exclude='\\\'')"),
        ("decimal(most=9999,width=4)", "decimal(width=4)"),
    ],
)
def test_two_ways_to_declare_one_codec_are_equal(one: str, same: str) -> None:
    assert element_of_spec(one) == element_of_spec(same)
    assert element_of_spec(element_of_spec(one).spec) == element_of_spec(one)


@pytest.mark.parametrize(
    "spec",
    [
        "text(bytes_max=0)",
        "text(bytes_max=true)",
        "text(bytes_max='9')",
        "text(exclude='é')",
        "text(exclude=5)",
        "text(allow='/')",
        "text(unknown=1)",
        "text(exclude='/'",
        "text(exclude=/)",
        f"text(reserved='{'x' * 65}')",
        "fixed",
        "fixed(width=0)",
        "fixed(width=5000)",
        "decimal(width=0)",
        "decimal(width=41)",
        "decimal(most=1" + "0" * 40 + ")",
        "decimal(least=5,most=4)",
        "decimal(width=2,most=100)",
        "decimal(least=100,width=2)",
        "u8(most=256)",
        "u64(width=3)",
        "Text",
        "",
    ],
)
def test_parameters_that_make_no_sense_are_mistakes_of_the_template(spec: str) -> None:
    with pytest.raises(TemplateError):
        element_of_spec(spec)


def test_an_unknown_codec_is_told_the_known_ones() -> None:
    with pytest.raises(UnknownNameError) as caught:
        element_of_spec("u63")
    known = caught.value.facts["known"]
    assert isinstance(known, list)
    assert {"u64", "text", "tuple"} <= set(known)


def test_a_refused_name_says_where_and_which_rule() -> None:
    with pytest.raises(InvalidKeyError) as caught:
        Text().encode("rack/1")
    assert caught.value.facts == {
        "element": "text",
        "value": "rack/1",
        "problem": "a character that may not occur",
        "character": "/",
        "position": 4,
    }


@pytest.mark.parametrize("name", ["é" * 127, "a" * 255])
def test_the_bound_counts_bytes_of_utf8(name: str) -> None:
    assert Text().encode(name) == name.encode()
    with pytest.raises(InvalidKeyError) as caught:
        Text().encode(name + "éa")
    assert caught.value.facts["bytes_max"] == 255
    assert caught.value.facts["bytes_found"] == len(name.encode()) + 3


def test_the_bound_of_percent_counts_escapes() -> None:
    assert Percent(bytes_max=3).encode("/") == b"%2F"
    with pytest.raises(InvalidKeyError, match="too long"):
        Percent(bytes_max=3).encode("a/")


def test_out_of_range_numbers_are_told_their_range() -> None:
    with pytest.raises(InvalidKeyError) as caught:
        Decimal(least=1024, most=65535).encode(80)
    assert (caught.value.facts["least"], caught.value.facts["most"]) == (1024, 65535)


@pytest.mark.parametrize(("least", "most"), [(0, 0), (0, 9), (7, 1234), (10, 99), (95, 105), (1000, 1000), (0, 1999)])
def test_an_unpadded_range_is_exact(least: int, most: int) -> None:
    language = Decimal(least=least, most=most).language
    assert {number for number in range(2100) if language.accepts(str(number).encode())} == set(range(least, most + 1))
    assert not language.accepts(f"0{most}".encode())


def test_decimals_of_one_length_are_in_order_without_padding() -> None:
    assert Decimal(least=100, most=999).is_ordered
    assert not Decimal(least=99, most=999).is_ordered


@pytest.mark.parametrize("path", ["a", "a/b", "a/b/c"])
def test_a_path_knows_its_level_parent_and_name(path: str) -> None:
    attributes = SlashPath.attributes
    assert attributes["level"](path) == path.count("/")
    assert attributes["parent"](path) == path[:-2]
    assert attributes["name"](path) == path[-1]


def test_a_path_of_257_components_has_no_level() -> None:
    deepest = "/".join(["a"] * 256)
    assert LevelPath().encode(deepest)[0] == 255
    with pytest.raises(InvalidKeyError) as caught:
        LevelPath().encode(f"{deepest}/a")
    assert caught.value.facts["components_max"] == 256
    assert caught.value.facts["element"] == "level_path"


@pytest.mark.parametrize(
    ("spec", "start"), [("text", "a/"), ("path", "/a"), ("path", "a//"), ("fixed(width=2)", b"abc"), ("path", "a\x00")]
)
def test_a_start_that_no_value_has_is_refused(spec: str, start: object) -> None:
    with pytest.raises(InvalidKeyError):
        element_of_spec(spec).encode_start(start)


def test_an_empty_start_is_no_bytes() -> None:
    assert Text().encode_start("") == b""
    assert Percent().encode_start("") == b""
    assert Tail().encode_start(b"") == b""


def test_decoded_uuids_are_whole_ones() -> None:
    decoded = HexUuid().decode(b"00112233445566778899aabbccddeeff")
    made = UUID("00112233-4455-6677-8899-aabbccddeeff")
    assert (decoded, hash(decoded), str(decoded), decoded.is_safe) == (made, hash(made), str(made), made.is_safe)
    assert pickle.loads(pickle.dumps(decoded)) == made
