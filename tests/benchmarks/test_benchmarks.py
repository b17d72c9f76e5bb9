"""The benchmarks run, compare with code that writes the same bytes, and report what they measured. No speed is judged."""

from pathlib import Path
from xml.etree import ElementTree as ET

import lmdb
import pytest

from benchmarks.__main__ import main
from benchmarks.cases import BENCHMARKS, migrations
from benchmarks.inventory import Inventory, item, item_key
from benchmarks.measure import compared
from benchmarks.report import read_run
from benchmarks.stand import Stand, Stands
from keyplan.store import Transaction

OF_PROCESSES = {"lint", "import"}
ON_ETCD = {"aio-etcd", "etcd", "etcd-list", "etcd-watch", "migration-etcd", "runm"}
ON_POSTGRES = {"postgres", "migration-postgres"}
QUICKLY = [name for name in BENCHMARKS if name not in OF_PROCESSES]


def contents(environment: lmdb.Environment) -> dict[bytes, list[tuple[bytes, bytes]]]:
    """Everything in an LMDB file, by database, but what the file says of itself, and the log from before it was copied.

    keyplan removes that log bit by bit, and the comparator does not: a copy goes on at revisions beyond 2^32.
    """
    with environment.begin() as transaction:
        names = [name for name, _ in transaction.cursor()]
    found = {}
    for name in names:
        database = environment.open_db(name, create=False)
        with environment.begin(database) as transaction:
            found[name] = [
                (key, value)
                for key, value in transaction.cursor()
                if (name, key) != (b"meta", b"lineage") and not (name == b"log" and key.startswith(bytes(4)))
            ]
    return found


@pytest.mark.parametrize("has_history", [True, False], ids=["history", "raw"])
def test_the_comparator_writes_the_same_bytes(tmp_path: Path, *, has_history: bool) -> None:
    with Stands(tmp_path).stand(30, has_history=has_history) as stand:
        insert_both(stand)
        stand.store.close()
        ours = lmdb.open(str(stand.folder), max_dbs=8, lib_version=0)
        assert contents(ours) == contents(stand.by_hand.environment)
        ours.close()
        assert len(contents(stand.by_hand.environment)[b"data"]) == 5 * 33


def insert_both(stand: Stand) -> None:
    """One record by itself, then two in a transaction, on both sides."""
    records = [(item_key(number), item(number)) for number in range(30, 33)]

    def insert_two(transaction: Transaction) -> None:
        for key, record in records[1:]:
            Inventory(transaction).items.insert(key, record)

    stand.inventory.items.insert(*records[0])
    stand.store.run(insert_two)
    stand.by_hand.insert(records[:1])
    stand.by_hand.insert(records[1:])


def test_the_comparator_refuses_a_taken_id_and_a_taken_name(tmp_path: Path) -> None:
    with Stands(tmp_path).stand(3) as stand:
        with pytest.raises(KeyError):
            stand.by_hand.insert([(item_key(1), item(7))])
        with pytest.raises(KeyError):
            stand.by_hand.insert([(item_key(7), item(1))])
        assert stand.by_hand.get(item_key(7)) is None


def test_the_comparator_reads_what_keyplan_reads(tmp_path: Path) -> None:
    with Stands(tmp_path).stand(25) as stand:
        assert stand.by_hand.get(item_key(24)) == stand.inventory.items.get(item_key(24)) == item(24)
        assert list(stand.by_hand.list()) == list(stand.inventory.items.list())
        assert [key for key, _ in stand.by_hand.by_project("project-00000002")] == [item_key(n) for n in range(20, 25)]


def test_a_ratio_is_of_speeds_and_both_take_turns() -> None:
    calls: list[tuple[str, int]] = []
    result = compared(
        "sample",
        "variant",
        against="other",
        subject=lambda operations: calls.append(("subject", operations)),
        comparator=lambda operations: calls.append(("comparator", operations)),
        operations=8,
        comparator_operations=2,
        rounds=2,
    )
    a_round = [("comparator", 2), ("subject", 8)]
    assert calls == [*a_round, *reversed(a_round), *a_round]
    assert result.rounds == 2
    assert result.ratio is not None
    assert result.low <= result.ratio <= result.high


@pytest.mark.slow
@pytest.mark.parametrize("name", QUICKLY)
def test_a_benchmark_runs(
    name: str, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    if name.startswith("migration-") and name != "migration-memory":
        # Why: in memory all of them run, and which one it is makes no difference to an engine. Each starts two processes.
        monkeypatch.setattr(migrations, "_CHANGES", migrations._CHANGES[-1:])
    if name in ON_ETCD:
        request.getfixturevalue("etcd_program")
    if name in ON_POSTGRES:
        request.getfixturevalue("postgres_program")
    report = tmp_path / "run.json"
    assert main([name, "--tiny", "--json", str(report), "--folder", str(tmp_path)]) == 0
    run = read_run(report)
    assert run.results
    assert all(result.benchmark.startswith(name) for result in run.results)
    assert all(result.rate > 0 for result in run.results)


def test_a_run_is_reported_as_lines_json_and_a_plot(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report, plot = tmp_path / "results" / "run.json", tmp_path / "run.svg"
    arguments = ["get", "insert", "--tiny", "--json", str(report), "--plot", str(plot), "--folder", str(tmp_path)]
    assert main(arguments) == 0
    run = read_run(report)
    assert {result.benchmark for result in run.results} == {"get", "insert"}
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1 + len(run.results)
    drawing = ET.fromstring(plot.read_text())
    words = {element.text for element in drawing.iter("{http://www.w3.org/2000/svg}text")}
    assert {"get", "insert", "history", "raw"} <= words
    assert {path.name for path in tmp_path.iterdir()} == {"results", "run.svg"}


@pytest.mark.slow
def test_lint_and_imports_are_measured_in_processes_of_their_own(tmp_path: Path) -> None:
    report = tmp_path / "run.json"
    assert main(["lint", "import", "--tiny", "--json", str(report)]) == 0
    found = {(result.benchmark, result.variant) for result in read_run(report).results}
    assert {("lint", "runm"), ("lint", "hepnos"), ("import", "import keyplan"), ("import", "keyplan --help")} <= found


def test_an_unknown_benchmark_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["sideways"])
    assert stopped.value.code == 2
    assert "sideways" in capsys.readouterr().err


def test_the_kept_results_can_be_read(repository: Path) -> None:
    kept = sorted((repository / "benchmarks" / "results").glob("*.json"))
    assert kept
    for path in kept:
        run = read_run(path)
        assert path.stem.startswith(run.at[:10])
        assert run.results
