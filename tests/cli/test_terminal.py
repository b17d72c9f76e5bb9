"""What a terminal is shown: columns, a head, cut lines, colours, a bar for long work."""

import io
import re
from collections.abc import Callable, Iterable, Iterator
from types import SimpleNamespace

import pytest

from keyplan.cli import print_grid, progress_bar, with_progress
from keyplan.cli.output import printable
from tests.cli.conftest import Keyplan


class Terminal(io.StringIO):
    """A stream that says that it is a terminal."""

    def isatty(self) -> bool:
        return True


Grid = Callable[[list[str], Iterable[list[str]]], list[str]]


@pytest.fixture
def grid(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Grid:
    """Rows printed to a terminal of 80 columns without colours: the lines that it shows."""

    def shown(head: list[str], rows: Iterable[list[str]]) -> list[str]:
        # Why: not before the test runs, because pytest puts another standard output in place until then.
        monkeypatch.setattr("sys.stdout.isatty", lambda: True)
        monkeypatch.setenv("TERM", "dumb")
        print_grid(head, rows)
        return [line.rstrip() for line in capsys.readouterr().out.splitlines()]

    return shown


def test_columns_stand_below_their_heads(grid: Grid) -> None:
    assert grid(["RACK", "N"], [["a", "1"], ["longer", "22"]]) == ["RACK    N", "a       1", "longer  22"]


def test_a_line_that_is_too_long_is_cut_and_never_wrapped(grid: Grid) -> None:
    assert grid(["RACK", "RECORD"], [["a", "x" * 100], ["b", "short"]]) == [
        "RACK  RECORD",
        "a     " + "x" * 73 + "…",
        "b     short",
    ]


def test_key_columns_are_never_cut(grid: Grid) -> None:
    assert grid(["KEY", "RECORD"], [["k" * 60, "y" * 100]])[1] == "k" * 60 + "  " + "y" * 19 + "…"


def test_wide_characters_take_two_columns(grid: Grid) -> None:
    assert grid(["A", "B"], [["機架", "1"], ["ab", "2"]]) == ["A     B", "機架  1", "ab    2"]


def test_square_brackets_are_text(grid: Grid) -> None:
    assert grid(["A"], [["[red]x[/red]"]]) == ["A", "[red]x[/red]"]


def test_what_would_move_the_cursor_is_escaped(grid: Grid) -> None:
    assert grid(["A"], [["\x1b[2Jgone\n"]]) == ["A", "\\x1b[2Jgone\\n"]
    assert printable("\u009b\ud800") == "\\x9b\\ud800"


def test_no_rows_have_no_head(grid: Grid) -> None:
    assert grid(["A"], []) == []


def test_a_long_list_is_printed_in_parts_with_one_head(grid: Grid) -> None:
    assert grid(["A"], ([str(number)] for number in range(1_200))) == ["A", *map(str, range(1_200))]


def test_a_record_is_shown_on_many_lines_with_its_history(site: Keyplan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert site("get", "notes", "hello").lines == ['"world"', "# revision 1, version 1, create revision 1"]
    assert site("get", "notes", "hello", "--value-only").lines == ['"world"']
    assert site("get", "boxes", "a", "2", "--value-only").lines[:3] == ["{", '  "name": "plates",', '  "size": 5,']


def test_values_with_more_behind_them_end_in_a_slash(site: Keyplan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert [line.rstrip() for line in site("ls", "boxes").lines] == ["ROOM", "a/", "b/"]
    assert [line.rstrip() for line in site("ls", "boxes", "b").lines] == ["NUMBER", "1"]


# ---- progress ----------------------------------------------------------------------------------------------------------


def test_work_that_is_soon_done_shows_no_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Terminal()
    monkeypatch.setattr("sys.stderr", screen)
    assert list(with_progress(range(3), total=3, title="work")) == [0, 1, 2]
    assert screen.getvalue() == ""


def test_long_work_shows_a_bar_and_passes_every_item_on_once(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Terminal()
    times: Iterator[float] = iter([0.0, 0.1, 0.6])
    monkeypatch.setattr("sys.stderr", screen)
    # Why not the clock's own method: threads of other tests would take times away, and end without any.
    monkeypatch.setattr("keyplan.engine.SYSTEM_CLOCK", SimpleNamespace(monotonic=lambda: next(times)))
    monkeypatch.setenv("TERM", "xterm")
    assert list(with_progress(range(5), total=5, title="counting racks")) == [0, 1, 2, 3, 4]
    assert "counting racks" in screen.getvalue()
    assert re.search(r"\b[\d,]+/s", screen.getvalue())


@pytest.mark.parametrize("title", ["2 of 3: [/x].root", "\x1b[2J"])
def test_a_bar_says_how_fast_each_part_of_the_work_is_and_how_long_it_takes(
    monkeypatch: pytest.MonkeyPatch, title: str
) -> None:
    screen = Terminal()
    times = [0.0]
    monkeypatch.setattr("sys.stderr", screen)
    monkeypatch.setattr("rich.console.monotonic", lambda: times[0])
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    with progress_bar(title) as report:
        for total, each in ((1_000, 500), (40_000, 10_000)):
            report(0, total)
            for done in range(each, total, each):
                times[0] += 100
                report(done, total)
    last = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", screen.getvalue()).split()
    assert last[-3:] == ["30000/40000", "100/s", "0:01:40"]
    assert printable(title).split()[-1] in last


def test_a_bar_of_work_whose_end_nobody_knows_says_how_much_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Terminal()
    times = [0.0]
    monkeypatch.setattr("sys.stderr", screen)
    monkeypatch.setattr("rich.console.monotonic", lambda: times[0])
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    with progress_bar("sweep") as report:
        report(0)
        times[0] += 10
        report(5_000)
    shown = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", screen.getvalue())
    assert shown.split()[-2:] == ["5000", "500/s"]
    assert "?" not in shown
    assert not re.search(r"\b0\b", shown), "that nothing is known is nothing to show"


def test_a_pipe_sees_no_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.StringIO()
    monkeypatch.setattr("sys.stderr", screen)
    assert list(with_progress(range(5), total=5, title="work")) == [0, 1, 2, 3, 4]
    assert screen.getvalue() == ""
