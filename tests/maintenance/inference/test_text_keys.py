"""Literals and fields of text keys: told apart by evidence, also where somebody chose unlucky names."""

import random

import pytest

from keyplan.layout import lint
from keyplan.maintenance import Confidence, infer_keys
from tests.maintenance.inference.foreign_stores import inferred, pairs_of, templates

RACKS = [f"r{number}" for number in range(8)]
PERSON = '{"name": "a", "age": 5}'


def test_nothing_is_inferred_from_an_empty_store() -> None:
    found = inferred({})
    assert (templates(found), found.keys) == ([], 0)
    assert [str(note) for note in found.notes] == ["(all keys): nothing (low): there are no keys"]


def test_a_single_key_is_a_template_without_fields_and_that_is_doubted() -> None:
    found = inferred(pairs_of(["/site/racks/r1"]))
    assert templates(found) == ["/site/racks/r1"]
    assert any("the only word seen here" in note.reason for note in found.doubts)


def test_a_single_number_or_uuid_is_a_field() -> None:
    assert templates(inferred(pairs_of(["/jobs/17"]))) == ["/jobs/{job:decimal}"]
    uuid = "3f2504e04f8941d39a0c0305e82c3301"
    assert templates(inferred(pairs_of([f"/jobs/{uuid}"]))) == ["/jobs/{job:hex_uuid}"]


def test_words_with_the_same_parts_below_are_values() -> None:
    pairs = pairs_of(f"/site/rack/{rack}/{part}" for rack in ("r1", "r2") for part in ("tor", "pdu"))
    pairs |= pairs_of((f"/site/rack/{rack}/blades/{blade}" for rack in ("r1", "r2") for blade in (1, 2)), PERSON)
    assert templates(inferred(pairs)) == [
        "/site/rack/{rack:text}/blades/{blade:decimal}",
        "/site/rack/{rack:text}/pdu",
        "/site/rack/{rack:text}/tor",
    ]


def test_names_that_are_also_literals_are_told_apart() -> None:
    names = ["rack", "tor", "pdu", "blades", "r1", "r2"]
    pairs = pairs_of(f"/rack/{name}/{part}" for name in names for part in ("tor", "pdu"))
    pairs |= pairs_of((f"/rack/{name}/blades/{blade}" for name in names for blade in (1, 2)), PERSON)
    assert templates(inferred(pairs)) == [
        "/rack/{rack:text}/blades/{blade:decimal}",
        "/rack/{rack:text}/pdu",
        "/rack/{rack:text}/tor",
    ]


def test_a_literal_beside_a_field_is_reserved_so_that_no_key_has_two_meanings() -> None:
    pairs = pairs_of(f"/partitions/p{number}/objects/o{number}" for number in range(9))
    pairs |= pairs_of((f"/partitions/by-name/n{number}" for number in range(9)), "1")
    found = inferred(pairs)
    assert templates(found) == [
        "/partitions/{partition:text(reserved='by-name')}/objects/{object:text}",
        "/partitions/by-name/{name:text}",
    ]
    assert lint(found.spec).of_rule("L1") == ()


def test_a_literal_that_cannot_be_reserved_is_a_value() -> None:
    pairs = pairs_of(f"/x/n{number}/v" for number in range(9)) | pairs_of(["/x/all of them"], "{}")
    assert templates(inferred(pairs)) == ["/x/{x:text}", "/x/{x:text}/v"]


def test_keys_with_and_without_a_trailing_slash_are_two_tables() -> None:
    pairs = pairs_of(f"/d/{name}" for name in RACKS) | pairs_of((f"/d/{name}/" for name in RACKS), "")
    assert templates(inferred(pairs)) == ["/d/{d:text}", "/d/{d:text}/"]


def test_a_record_that_is_also_a_directory_is_two_tables() -> None:
    pairs = pairs_of((f"/r/{name}" for name in RACKS), PERSON)
    pairs |= pairs_of((f"/r/{name}/x/{number}" for name in RACKS for number in range(3)), '{"c": 1, "d": 2}')
    assert templates(inferred(pairs)) == ["/r/{r:text}", "/r/{r:text}/x/{x:decimal}"]


def test_words_that_recur_behind_each_value_are_literals() -> None:
    pairs = pairs_of(f"/service/c{number}/{word}" for number in range(9) for word in ("leader", "initialize"))
    pairs |= pairs_of(["/service/c3/failover"], "{}")
    assert templates(inferred(pairs)) == [
        "/service/{service:text}/failover",
        "/service/{service:text}/initialize",
        "/service/{service:text}/leader",
    ]


def test_words_that_differ_behind_each_value_are_values() -> None:
    pairs = pairs_of(f"/tenants/t{number}/users/u{number}" for number in range(9))
    assert templates(inferred(pairs)) == ["/tenants/{tenant:text}/users/{user:text}"]


def test_words_that_differ_in_their_number_alone_are_values_though_they_recur() -> None:
    pairs = pairs_of(f"/sets/{name}/pods/pod-{number}" for name in ("web", "api", "db") for number in (0, 1))
    pairs |= pairs_of((f"/sets/{name}/size" for name in ("web", "api", "db")), "2")
    assert templates(inferred(pairs)) == ["/sets/{set:text}/pods/{pod:text}", "/sets/{set:text}/size"]


def test_settings_of_different_kinds_are_literals_and_settings_of_one_kind_are_doubted() -> None:
    pairs = {b"/app/host": b"h", b"/app/mode": b"fast", b"/app/limits": b'{"a": 1, "b": 2}'}
    found = inferred(pairs)
    assert templates(found) == ["/app/host", "/app/limits", "/app/mode"]
    assert ["'host', 'mode': literals like those beside, or 2 values" in note.reason for note in found.doubts] == [True]


def test_a_damaged_record_among_many_is_a_record() -> None:
    pairs = pairs_of((f"/users/u{number}" for number in range(200)), PERSON) | {b"/users/u7": b"\x00damaged"}
    found = inferred(pairs, explains=99.5)
    assert templates(found) == ["/users/{user:text}"]
    assert [item["value"]["form"] for item in found.description["items"]] == ["json"]
    assert "users: values are json (fair): of 200 values 199 json, 1 bytes" in [str(note) for note in found.notes]


@pytest.mark.parametrize(
    ("words", "codec"),
    [
        (["1", "20", "300"], "decimal"),
        (["0001", "0020", "0300"], "decimal(width=4)"),
        (["7", "08", "123"], "text(allow='0-9')"),
        (["2026-11-21T09:41:08.000000000Z", "2026-11-21T09:41:09.000000001Z"], "timestamp"),
        (["3f2504e0-4f89-41d3-9a0c-0305e82c3301"], "text(bytes_max=36,allow='0-9a-f-')"),
        (
            [f"{number * 0x9E3779B97F4A7C15 % 2**64:016x}" for number in range(1, 9)],
            "text(bytes_max=16,allow='0-9a-f')",
        ),
        (["3f2504e04f8941d39a0c0305e82c3301"], "hex_uuid"),
        (["a%2Fb", "c d", "50%25", "e", "f", "g"], "percent"),
        (["100%", "a", "b", "c", "d", "e"], "text"),
        (["x" * 300, "a", "b", "c", "d", "e"], "text(bytes_max=511)"),
        (["ä", "ö", "ü", "é", "ß", "å"], "text"),
        (["", "a", "b", "c", "d", "e"], None),
    ],
)
def test_a_field_gets_the_narrowest_codec_that_spells_its_words(words: list[str], codec: str | None) -> None:
    found = inferred(pairs_of(f"/k/{word}/v" for word in words))
    assert templates(found) == ([f"/k/{{k:{codec}}}/v"] if codec else ["/k/{k:text}/v", "/k//v"])


def test_dividers_inside_a_segment_make_fields() -> None:
    hosts = [f"h{number}" for number in range(5)]
    assert templates(inferred(pairs_of(f"/c/{host}:{host}x:54{host[1]}2" for host in hosts))) == [
        "/c/{name:text(exclude='/:')}:{name_2:text(exclude='/:')}:{number:decimal}"
    ]
    addresses = ["10.0.0.1", "::1", "fe80::2", "h4"]
    assert templates(inferred(pairs_of(f"/c/{address}:{port}" for address in addresses for port in (80, 8080)))) == [
        "/c/{name:text}:{number:decimal}"
    ]


def test_another_separator_than_the_slash_is_found() -> None:
    pairs = pairs_of((f"user:{number}:name" for number in range(9)), "ada") | pairs_of(
        (f"session:{number * 0x9E3779B97F4A7C15F39CC0605CEDC835 % 2**128:032x}" for number in range(1, 9)), PERSON
    )
    assert templates(inferred(pairs)) == ["session:{session:hex_uuid}", "user:{user:decimal}:name"]


def test_files_in_folders_are_one_table_of_paths() -> None:
    chosen = random.Random(4)
    keys = {
        "/etc/" + "/".join(f"{chosen.choice('abcdef')}{chosen.randrange(90)}" for _ in range(chosen.randrange(1, 7)))
        for _ in range(400)
    }
    found = inferred({key.encode(): chosen.choice((b"x", b"5", b'{"a": 1}')) for key in sorted(keys)})
    assert templates(found) == ["/etc/{path:text_tail}"]
    assert any(note.decision == "any path" for note in found.doubts)


def test_binary_keys_in_a_store_of_text_are_left_out_and_shown() -> None:
    binary = {b"\x00\x01": b"", b"\xff\xfe": b""}
    found = inferred(pairs_of(f"/a/b{number}" for number in range(18)) | binary, explains=90.0)
    assert (templates(found), found.left_out, found.left_out_keys) == (["/a/{a:text}"], 2, (b"\x00\x01", b"\xff\xfe"))


def test_only_keys_below_a_prefix_are_looked_at() -> None:
    pairs = pairs_of(f"/a/b{number}" for number in range(9)) | pairs_of(f"/z/{number}" for number in range(9))
    found = inferred(pairs, prefix=b"/z/")
    assert (templates(found), found.keys) == (["/z/{z:decimal}"], 9)


def test_keys_alone_are_enough_for_templates() -> None:
    found = infer_keys([b"/jobs/1", b"/jobs/2", b"/jobs/2"])
    assert (templates(found), found.keys, found.suggestions) == (["/jobs/{job:decimal}"], 2, ())
    assert [item["value"]["form"] for item in found.description["items"]] == ["raw"]


def test_how_sure_a_decision_is_is_said() -> None:
    found = inferred(pairs_of(f"/jobs/{number}" for number in range(9)))
    assert {note.confidence for note in found.notes} == {Confidence.HIGH}
