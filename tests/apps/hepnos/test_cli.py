"""The commands of `keyplan hepnos`, run as a user runs them."""

import json
import shlex
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from typer.testing import CliRunner

from keyplan.access import OnPrefix, target_of
from keyplan.apps import hepnos
from keyplan.apps.hepnos.cli import app
from keyplan.apps.hepnos.extent import unevenness
from keyplan.cli.main import main
from keyplan.engine import Commit, Engine, Put
from keyplan.errors import InvalidInputError, KeyplanError
from keyplan.ring import Rebalanced, rebalance


class Commands:
    """Runs commands on one store."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.url = f"lmdb:{folder}/store?durability=none"

    def __call__(self, *words: str, code: int = 0) -> str:
        answer = CliRunner().invoke(app, list(words), env={"KEYPLAN_STORE": self.url})
        if answer.exception is not None and not isinstance(answer.exception, SystemExit):
            raise answer.exception
        assert answer.exit_code == code, answer.output
        return answer.stdout


@pytest.fixture
def run(tmp_path: Path) -> Commands:
    """Commands on a store with two events, loaded from an HDF5 file."""
    with h5py.File(tmp_path / "nd_r00012096_s03.h5", "w") as file:
        file["rec.slc/evt"] = np.array([8, 7, 8])
        file["rec.slc/calE"] = np.array([1.0, 2.0, 3.0], "f4")
    commands = Commands(tmp_path)
    commands("load-h5", str(tmp_path / "nd_r00012096_s03.h5"), "--into", "nova/nd", "--databases", "events=2")
    return commands


def test_ls_lists_what_is_in_a_container(run: Commands) -> None:
    assert run("ls", "nova").split("\t")[:2] == ["dataset", "nd"]
    assert run("ls", "nova/nd") == "run\t12096\t\n"
    assert run("ls", "nova/nd", "12096", "3") == "event\t7\t\nevent\t8\t\n"
    assert run("ls", "nova/nd", "12096", "3", "8", "-p") == "product\trec_slc\tvector<struct{calE:float32}>\n"
    assert [json.loads(line) for line in run("ls", "nova/nd", "12096", "--json").splitlines()] == [
        {"kind": "subrun", "name": "3"}
    ]


def test_ls_of_what_is_not_there_names_it(run: Commands) -> None:
    with pytest.raises(KeyplanError) as refused:
        run("ls", "nova/nd", "12096", "4")
    assert refused.value.facts["key"] == "nova/nd 12096 4"


def test_tree_shows_the_levels_and_says_when_there_are_more(run: Commands) -> None:
    assert run("tree", "--depth", "5", "--limit", "1", "nova").splitlines() == [
        "[D] nd",
        "  [R] 12096",
        "    [S] 3",
        "      [E] 7",
        "      ... more than 1; --limit shows more",
    ]
    whole = run("tree", "nova/nd", "12096", "3", "-p")
    assert (
        whole == "[E] 7\n  rec_slc -> vector<struct{calE:float32}>\n[E] 8\n  rec_slc -> vector<struct{calE:float32}>\n"
    )


def test_where_says_the_database_and_whether_the_key_is_there(run: Commands) -> None:
    with hepnos.open(run.url) as store:
        event = store["nova/nd"].runs[12096].subruns[3].events[8]
        expected = {"kind": "events", "database": store.where(event)[1], "raw_key": event.raw_key.hex(), "exists": True}
    assert json.loads(run("where", "nova/nd", "12096", "3", "8", "--json")) == expected
    assert json.loads(run("where", "--raw", str(expected["raw_key"]), "--json")) == expected
    assert "is not there" in run("where", "nova/nd", "12096", "3", "9")
    assert run("where", "--raw", "006e6f7661").startswith("datasets\t0\t006e6f7661")


def test_grants_are_those_that_lead_to_a_data_set_and_to_no_other(run: Commands) -> None:
    with hepnos.open(run.url) as store:
        for name in ("nova/nd2", "nova/other", "nd"):
            store.root.ensure(name)
        uuids = {name: store[name].uuid for name in ("nova/nd", "nova/nd2", "nova/other")}
    told = CliRunner().invoke(app, ["grants", "nova/nd"], env={"KEYPLAN_STORE": run.url})
    assert told.exit_code == 0
    grants = [target_of(line, source="a test") for line in told.stdout.splitlines()]
    for name, uuid in uuids.items():
        places = [b"hepnos/datasets/\x01" + name.encode()]
        places += [f"hepnos/{kind}/".encode() + uuid.bytes for kind in ("runs", "subruns", "events", "products")]
        is_granted = [any(grant.covers(OnPrefix(place)) for grant in grants) for place in places]
        # Why the entry of nd2: the end of a name is no end of a prefix, and that is told.
        assert is_granted == [name != "nova/other", *[name == "nova/nd"] * 4], name
    assert told.stderr.count("begins as nova/nd does") == 1
    assert json.loads(run("grants", "nova/nd", "--json")) == {
        "dataset": "nova/nd",
        "grants": told.stdout.splitlines(),
        "beside": ["nova/nd2"],
    }
    with pytest.raises(KeyplanError, match="prefix:hepnos/"):
        run("grants", "/")


def test_check_finds_exactly_what_was_planted(run: Commands) -> None:
    assert run("check") == "Nothing is wrong.\n"
    with hepnos.open(run.url) as store:
        dataset = store["nova/nd"]
        store.make_dataset("lost/child")
        dataset.runs.handle(9).subruns.create(1)
        event = dataset.runs.handle(12096).subruns.handle(77).create_event(5)
        dataset.runs.handle(500).store("n", 1.0)
        elsewhere = dataset.runs[12096].subruns[3].create_event(30)
        right = store.where(elsewhere)[1]
        ring = store.databases.rings[hepnos.Kind.EVENT]
        ring.databases[1 - right].commit(Commit((), (Put(elsewhere.raw_key, b""),)))
        gone = store.root.ensure("gone")
        gone.create_run(4)
        store.remove(hepnos.Kind.DATASET, b"\x00gone")
    found = [json.loads(line) for line in run("check", "--json", code=1).splitlines()]
    uuid = str(gone.uuid)
    assert sorted((each["finding"], each["kind"], each["meaning"]) for each in found) == sorted(
        [
            ("no-parent", "datasets", "lost/child"),
            ("no-dataset", "runs", f"{uuid} 4"),
            ("no-parent", "subruns", "nova/nd 9 1"),
            ("no-parent", "events", event.path),
            ("misplaced", "events", "nova/nd 12096 3 30"),
            ("no-container", "products", "nova/nd 500 n#float64"),
        ]
    )
    assert run("sweep", "--dry-run") == f"orphan\t{uuid}\t1 key would be removed\n"
    assert f"orphan\t{uuid}\t1 key removed\n" in run("check", "--repair", code=1)
    assert run("sweep") == "Nothing is left over.\n"
    assert uuid not in run("check", code=1)


def test_rebalance_grows_a_kind_and_every_event_is_found(run: Commands) -> None:
    with hepnos.open(run.url) as store:
        numbers = np.arange(400)
        store["nova/nd"].create_items(numbers // 50, numbers // 2, numbers)
    assert run("rebalance", "events=3").startswith("events: 3 databases, ")
    with hepnos.open(run.url) as store:
        assert store.counts()["events"] == 3
        assert store["nova/nd"].events().count() == 402
    assert run("check") == "Nothing is wrong.\n"


def test_a_rebalance_that_was_killed_is_listed_with_the_command_that_goes_on(
    run: Commands, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def killed(engines: Sequence[Engine], **options: Any) -> Rebalanced:
        def told(_moved: int) -> None:
            raise KeyboardInterrupt

        options |= {"progress": told}
        return rebalance(engines, **options)

    with hepnos.open(run.url) as store:
        numbers = np.arange(400)
        store["nova/nd"].create_items(numbers // 50, numbers // 2, numbers)
    monkeypatch.chdir(run.folder)
    with monkeypatch.context() as patch:
        patch.setattr("keyplan.apps.hepnos.cli_jobs.grow", killed)
        assert main(["hepnos", "rebalance", "events=3", "--store", "lmdb:./store?durability=none"]) == 130
    monkeypatch.chdir("/")
    jobs = []
    for number in range(3):
        capsys.readouterr()
        assert main(["jobs", "--store", f"lmdb:{run.folder}/store/events.{number}?history=off", "--json"]) == 0
        jobs.append(json.loads(capsys.readouterr().out))
    assert {(job["kind"], job["stage"]) for job in jobs} == {("rebalance", "moving")}
    command = shlex.split(jobs[-1]["command"])
    assert command[-1] == f"lmdb:{run.folder}/store?durability=none"
    assert main(command[1:]) == 0
    with hepnos.open(run.url) as store:
        assert store.counts()["events"] == 3
        assert store["nova/nd"].events().count() == 402
    capsys.readouterr()
    assert main(["jobs", "--store", f"lmdb:{run.folder}/store/events.0?history=off"]) == 0
    assert capsys.readouterr().out == "no job is open\n"


@pytest.mark.slow
def test_stat_counts_keys_and_draws_them(run: Commands) -> None:
    rows = [json.loads(line) for line in run("stat", "--json", "--plot", str(run.folder / "stat.svg")).splitlines()]
    assert [(row["kind"], row["keys"]) for row in rows if row["kind"] != "events"] == [
        *(("datasets", 2), ("runs", 1), ("subruns", 1), ("products", 3)),
    ]
    assert sum(row["keys"] for row in rows if row["kind"] == "events") == 2
    assert all(row["disk_bytes"] > 0 for row in rows)
    drawn = (run.folder / "stat.svg").read_text()
    assert drawn.startswith("<?xml")
    assert drawn.count("<!-- dashed: the mean; fullest ") == 2
    with pytest.raises(KeyplanError):
        run("stat", "--plot", str(run.folder / "stat.nothing"))


def test_unevenness_is_the_fullest_over_the_mean() -> None:
    assert unevenness([2, 1, 0]) == 1.0
    assert unevenness([5, 5]) == 0.0
    assert unevenness([0, 0]) == 0.0


@pytest.fixture
def years(run: Commands) -> Commands:
    """The same with an event of another year, whose slices have a name, too."""
    with h5py.File(run.folder / "nd_r00012097_s01.h5", "w") as file:
        file["rec.slc/evt"] = [5]
        file["rec.slc/calE"] = [4.0]
        file["rec.slc/name"] = ["é"]
        file["rec.slc/other"] = [1]
    run("load-h5", str(run.folder / "nd_r00012097_s01.h5"), "--into", "nova/nd", "--exclude", "o*")
    return run


@pytest.mark.slow
def test_process_calls_a_function_for_each_event_once_with_the_rows_of_its_version(years: Commands) -> None:
    done = years(
        "process", "nova/nd", "tests.apps.hepnos.work:slices_of", "--preload", "rec_slc", "-w", "1", "--results"
    )
    found = sorted(json.loads(line) for line in done.splitlines())
    assert [(number, energies) for number, energies, _ in found] == [(5, [4.0]), (7, [2.0]), (8, [1.0, 3.0])]
    assert all(hits > 0 for _, _, hits in found)


def test_export_writes_the_events(run: Commands) -> None:
    file = run.folder / "out.parquet"
    assert run("export", "nova/nd", str(file)).endswith("out.parquet: 2 events\n")
    assert run("load-parquet", str(file), "-d", "again").count("2 of them new") == 1


def test_tables_of_several_versions_are_listed_and_exported_as_one(years: Commands) -> None:
    assert years("tables", "nova/nd") == "rec_slc: 2 versions\n  calE float64\n  name option<str>\n"
    (listed,) = [json.loads(line) for line in years("tables", "nova/nd", "--json").splitlines()]
    assert sorted(version["columns"]["calE"] for version in listed["versions"]) == ["float32", "float64"]
    file = str(years.folder / "out.parquet")
    assert years("export", "nova/nd", file, "--exclude", "rec_slc.n*", "--missing", "0").endswith(": 3 events\n")
    assert years("load-parquet", file, "-d", "again").count("3 of them new") == 1
    assert years("tables", "again") == "rec_slc: 1 version\n  calE float64\n"
    for words, problem in (
        (("--columns", "none.x"), "names no table"),
        (("--missing", "nothing"), "neither null"),
        (("--missing", "7"), "no value of column name"),
    ):
        with pytest.raises(KeyplanError, match=problem):
            years("export", "nova/nd", file, *words)


def test_a_file_that_cannot_be_loaded_is_named_and_the_others_are_loaded(run: Commands) -> None:
    files = [run.folder / f"nd_r0001209{number}_s03.h5" for number in (7, 8, 9)]
    for file in files:
        shutil.copyfile(run.folder / "nd_r00012096_s03.h5", file)
    files[1].write_bytes(files[1].read_bytes()[:600])
    answer = CliRunner().invoke(app, ["load-h5", *map(str, files), "-d", "nova/nd"], env={"KEYPLAN_STORE": run.url})
    assert answer.exit_code == InvalidInputError.exit_code
    assert answer.stdout.count("2 of them new") == 2
    assert answer.stderr.count(files[1].name) == 1
    assert run("ls", "nova/nd").split() == ["run", "12096", "run", "12097", "run", "12099"]
