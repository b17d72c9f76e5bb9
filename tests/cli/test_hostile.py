"""What nobody means to type: files of anything, JSON without an end, a terminal without the letters. Never a traceback."""

import io
from pathlib import Path

import pytest

from tests.cli.conftest import Keyplan

DEEP = "[" * 40_000


@pytest.fixture
def store(tmp_path: Path) -> tuple[str, str]:
    return "--store", f"lmdb:{tmp_path}/spaces.kv"


def test_a_switch_of_endless_brackets_is_no_json(run: Keyplan, store: tuple[str, str]) -> None:
    answer = run("keyspace", "config", f"reservations={DEEP}", *store)
    assert (answer.code, "the value of reservations is not JSON" in answer.err) == (5, True)


@pytest.mark.parametrize("text", [DEEP, "\udcff", "{", '{"name": 1}'])
def test_a_record_that_cannot_be_read_is_refused(site: Keyplan, text: str) -> None:
    answer = site("put", "boxes", "c", "1", text)
    assert (answer.code, "Box" in answer.err) == (5, True)
    assert site("count", "boxes").lines == ["3"]


def test_a_record_from_standard_input_that_is_no_text_is_refused(
    site: Keyplan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b'{"name": "\xff"}')))
    answer = site("put", "boxes", "c", "1", "-")
    assert (answer.code, "standard input" in answer.err) == (5, True)


@pytest.mark.parametrize(
    "command",
    [
        ("map", "--layout", "tests.cli.layouts:Site", "--check", "FILE"),
        ("lint", "--layout", "FILE.json"),
        ("ls", "--config", "FILE"),
        ("keyspace", "apply", "FILE.json", "--store", "memory:"),
        ("keyspace", "apply", "FILE.toml", "--store", "memory:"),
        ("keyspace", "list", "--server", "http://127.0.0.1:1", "--token-file", "FILE"),
        ("region", "verify", "--regions", "FILE", "--key-spaces", "FILE", "--cluster", "c"),
        ("restore", "FILE", "--store", "memory:"),
    ],
    ids=lambda command: " ".join(command[:2]),
)
@pytest.mark.parametrize("content", [b"\xff\xfe\x00", DEEP.encode(), None], ids=["bytes", "deep", "absent"])
def test_a_file_of_anything_is_refused_by_its_name(
    run: Keyplan, tmp_path: Path, command: tuple[str, ...], content: bytes | None
) -> None:
    words = [word.replace("FILE", str(tmp_path / "anything")) for word in command]
    if content is not None:
        for ending in ("", ".json", ".toml"):
            (tmp_path / f"anything{ending}").write_bytes(content)
    answer = run(*words)
    assert answer.code in {1, 5, 6, 7, 8}
    assert answer.out == "" or "stale" in answer.out or "anything" in answer.out
    assert "anything" in answer.err + answer.out or "127.0.0.1:1" in answer.err


def test_what_the_terminal_has_no_letters_for_is_escaped(
    site: Keyplan, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert site("put", "notes", "ü", "日本").code == 0
    printed = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(printed, encoding="ascii"))
    assert site("list", "notes", "--starts-with", "ü").code == 0
    assert printed.getvalue() == b"\\xfc\t\\u65e5\\u672c\n"


@pytest.mark.parametrize("speed", ["0", "-1", "nan"])
def test_a_speed_that_is_none_is_refused_by_its_name(run: Keyplan, store: tuple[str, str], speed: str) -> None:
    run("keyspace", "init", *store)
    answer = run("keyspace", "sweep", "--keys-per-second", speed, *store)
    assert (answer.code, "keys_per_second" in answer.err) == (5, True)


@pytest.mark.parametrize("token", ["gehe\u00efm", "a\nb", "\udcff"])
def test_a_token_that_no_header_can_carry_is_refused_and_not_shown(
    run: Keyplan, monkeypatch: pytest.MonkeyPatch, token: str
) -> None:
    monkeypatch.setenv("KEYPLAN_TOKEN", token)
    answer = run("keyspace", "list", "--server", "http://127.0.0.1:1")
    assert (answer.code, "printable ASCII" in answer.err, token in answer.err) == (5, True, False)


@pytest.mark.parametrize("stream", ["stdin", "stdout", "stderr"])
def test_a_closed_stream_is_no_error(
    site: Keyplan, monkeypatch: pytest.MonkeyPatch, store: tuple[str, str], stream: str
) -> None:
    assert site("keyspace", "create", "a", "-a", "x", *store).code == 0
    monkeypatch.setattr(f"sys.{stream}", None)
    assert site("list", "notes").code == 0
    assert site("get", "boxes", "a", "1", "--json").code == 0
    assert site("keyspace", "delete", "a", *store).code == 5  # there is nobody to ask
