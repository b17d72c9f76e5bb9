"""By which layouts a served explorer reads: the command line's option, its environment, its settings file."""

from pathlib import Path

import pytest

from keyplan.cli import serve
from keyplan.errors import InvalidInputError, UnknownNameError
from keyplan.server.explorer.layouts import LayoutBook, read_layouts

EXPLORER = ["explorer"]


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("KEYPLAN_LAYOUT", raising=False)
    return tmp_path


def test_options_come_before_the_environment_and_that_before_the_settings_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert serve._layouts(EXPLORER, [], [], None) == {}
    (tmp_path / "keyplan.toml").write_text(
        'layout = "cloudchamber"\n[parameters]\nnamespace = "Test/a b/"\nother = "x"\n'
    )
    assert serve._layouts(EXPLORER, [], [], None) == {"explorer.layout": "cloudchamber?namespace=Test%2Fa+b%2F"}
    monkeypatch.setenv("KEYPLAN_LAYOUT", "runm")
    assert serve._layouts(EXPLORER, [], [], None) == {"explorer.layout": "runm"}
    assert serve._layouts(EXPLORER, [], ["patroni", "runm"], None) == {"explorer.layout": "patroni,runm"}
    assert serve._layouts(EXPLORER, ["explorer.layout=hepnos-runs"], [], None) == {}
    assert serve._layouts([], [], [], None) == {}


@pytest.mark.parametrize(("apps", "given"), [([], []), (["explorer"], ["explorer.layout=runm"])])
def test_a_layout_that_nobody_would_read_by_is_refused(apps: list[str], given: list[str]) -> None:
    with pytest.raises(InvalidInputError):
        serve._layouts(apps, given, ["cloudchamber"], None)


def test_what_the_file_says_is_what_the_explorer_reads() -> None:
    (shown,) = read_layouts("cloudchamber?namespace=Test%2Fa+b%2F")
    assert shown.bound.root == b"/CloudChamber/V0.1/Test/a b/"


@pytest.mark.parametrize("text", ["cloudchamber?namespace", "cloudchamber?other=1", "no.such:Layout", "no-such.json"])
def test_a_name_that_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(InvalidInputError):
        read_layouts(text)


def test_a_key_space_is_read_by_its_own_setting_then_by_its_application_then_as_the_whole() -> None:
    book = LayoutBook({"layout": "runm", "layout.toys": "patroni"})
    labels = {
        (name, application): [shown.label for shown in book.of_keyspace(name, application)]
        for name, application in (("toys", "cloudchamber"), ("a", "patroni"), ("b", "unknown"))
    }
    assert labels == {("toys", "cloudchamber"): ["patroni"], ("a", "patroni"): ["patroni"], ("b", "unknown"): ["runm"]}
    with pytest.raises(UnknownNameError):
        LayoutBook({"layout.toys": "none"})
