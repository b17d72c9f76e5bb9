"""Every `.kpt` file of this folder is a conversation with a store; and the runner does find what differs."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from keyplan.errors import InvalidInputError
from keyplan.store import Store, open_store
from keyplan.testing.conversation import StoreConversation
from keyplan.testing.scripts import check_script, read_script, written_script
from tests.store.layouts import Site

SCRIPTS = sorted(Path(__file__).parent.glob("*.kpt"))


@pytest.fixture(params=["memory", "lmdb"])
def store(
    request: pytest.FixtureRequest, tmp_path: Path, check_after: Callable[..., AbstractContextManager[Store]]
) -> Iterator[Store]:
    url = "memory:" if request.param == "memory" else f"lmdb:{tmp_path / 'store'}"
    with check_after(open_store(url), Site) as store:
        yield store


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_the_conversation_goes_as_written(script: Path, store: Store) -> None:
    check_script(script, StoreConversation(store, Site))


def test_there_are_scripts() -> None:
    assert len(SCRIPTS) >= 8


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("KEYPLAN_REWRITE", raising=False)
    path = tmp_path / "talk.kpt"
    path.write_text("# Only a comment.\n\n# Louder.\nsay hello\n----\nHELLO\n\nsay two\n lines\n-----\nTWO\n LINES\n")
    return path


def loud(command: str) -> str:
    return command.removeprefix("say ").upper()


def test_a_script_is_read_and_written_back(script: Path) -> None:
    steps = read_script(script.read_text(), source="talk")

    assert [step.command for step in steps] == ["", "say hello", "say two\n lines"]
    assert [step.line for step in steps] == [1, 3, 8]
    assert written_script(steps) == script.read_text().replace("-----", "----")


def test_answers_as_expected_pass(script: Path) -> None:
    check_script(script, loud)


def test_another_answer_fails_and_shows_the_difference(script: Path) -> None:
    with pytest.raises(AssertionError, match=r"(?s)-HELLO.*\+hello"):
        check_script(script, lambda command: command.removeprefix("say "))


def test_answers_are_written_into_the_file_when_asked(script: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEYPLAN_REWRITE", "1")

    check_script(script, lambda command: "one\n\nthree" if "hello" in command else "")

    assert script.read_text() == (
        "# Only a comment.\n\n# Louder.\nsay hello\n----\none\n.\nthree\n\nsay two\n lines\n----\n"
    )
    monkeypatch.delenv("KEYPLAN_REWRITE")
    check_script(script, lambda command: "one\n\nthree" if "hello" in command else "")


def test_a_step_without_an_answer_line_is_refused() -> None:
    with pytest.raises(InvalidInputError) as caught:
        read_script("ask\n----\nanswer\n\nforgotten\n", source="talk.kpt")
    assert caught.value.facts["line"] == 5
