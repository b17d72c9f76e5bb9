"""The root: help, version, usage errors, errors as text and as JSON, exit codes, what is imported."""

import json
import subprocess
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest

import keyplan
from keyplan import errors
from keyplan.cli.failures import NOT_INSTALLED, USAGE
from keyplan.cli.main import COMMANDS, EXTRAS, _extra
from tests.cli.conftest import Keyplan
from tests.cli.layouts import Site

SCRIPT = Path(sys.executable).parent / "keyplan"
PROJECT = Path(__file__).parents[2] / "pyproject.toml"


def test_help_lists_commands_and_applications(run: Keyplan) -> None:
    for option in ("--help", "-h"):
        answer = run(option)
        assert answer.code == 0
        listed = [line.split()[0] for line in answer.lines if line.startswith("  ") and line[2] not in " -"]
        assert [name for name in COMMANDS if name not in listed] == []
        assert "cloudchamber" in listed


def test_help_of_the_root_imports_nothing_that_commands_need() -> None:
    program = (
        "import sys; from keyplan.cli.main import main; main(['--help']);"
        "heavy = 'rich msgspec lmdb yaml google keyplan.codec keyplan.layout keyplan.engine keyplan.store'.split();"
        "print([name for name in heavy if name in sys.modules], file=sys.stderr)"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stderr == "[]\n"


def test_a_command_that_prints_no_columns_does_without_rich() -> None:
    program = (
        "import sys; from keyplan.cli.main import main; main(['map', '--layout', 'cloudchamber']);"
        "print('rich' in sys.modules, file=sys.stderr)"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stderr == "False\n"


@pytest.mark.parametrize(
    ("command", "others"),
    [
        ("get", ("keyspace", "maintenance", "layout.difference", "layout.rules")),
        ("put", ("maintenance.migration.driver", "maintenance.restore", "layout.difference", "layout.rules")),
        ("check", ("maintenance.migration", "maintenance.backup", "layout.difference", "layout.rules")),
        ("lint", ("keyspace", "maintenance.migration", "maintenance.backup", "layout.difference")),
    ],
)
def test_a_command_does_without_what_others_need(command: str, others: tuple[str, ...]) -> None:
    program = (
        f"import sys; from keyplan.cli.main import main; main([{command!r}, '--help']);"
        "print(*sys.modules, file=sys.stderr)"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    imported = ran.stderr.split()
    assert "keyplan.layout" in imported
    assert [name for name in imported if name.startswith(tuple(f"keyplan.{other}" for other in others))] == []


def test_an_installed_layout_is_imported_without_its_application() -> None:
    program = (
        "import sys; from keyplan.cli.main import main; main(['map', '--layout', 'cloudchamber']);"
        "print(*sys.modules, file=sys.stderr)"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    own = {name for name in ran.stderr.split() if name.startswith("keyplan.apps.cloudchamber.")}
    assert "keyplan.apps.cloudchamber.layout" in own
    assert (
        own & {f"keyplan.apps.cloudchamber.{name}" for name in ("chamber", "indexed", "migrating", "sessions")} == set()
    )


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(run: Keyplan, command: str) -> None:
    for option in ("--help", "-h"):
        answer = run(command, option)
        assert answer.code == 0
        assert answer.out.startswith(f"Usage: keyplan {command} ")


def test_the_version_is_the_distributions(run: Keyplan) -> None:
    assert run("--version").lines == [f"keyplan {version('keyplan')}"]


def test_without_a_command_help_goes_to_standard_error(run: Keyplan) -> None:
    answer = run()
    assert (answer.code, answer.out, answer.err.startswith("Usage: keyplan ")) == (2, "", True)


def test_an_application_without_a_command_prints_its_help(run: Keyplan) -> None:
    answer = run("cloudchamber")
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.startswith("Usage: keyplan cloudchamber ")


def test_an_applications_command_fails_like_the_others(run: Keyplan) -> None:
    answer = run("cloudchamber", "import", "missing.yaml", "--store", "lmdb:x.kv", "--json")
    assert (answer.code, answer.error["code"]) == (5, "invalid-input")


def test_a_misspelt_command_gets_a_suggestion(run: Keyplan) -> None:
    answer = run("lnt")
    assert (answer.code, answer.err.splitlines()[0]) == (2, "keyplan: No such command 'lnt'. Did you mean 'lint'?")


def test_a_usage_error_tells_how_the_command_is_called(run: Keyplan) -> None:
    answer = run("get", "--xyz")
    assert answer.code == 2
    assert answer.err.splitlines() == [
        "keyplan: No such option: --xyz",
        "Usage: keyplan get [OPTIONS] {ITEM} [FIELD]...",
        "See keyplan get --help.",
    ]


def test_a_usage_error_is_json_when_json_is_asked_for(run: Keyplan) -> None:
    answer = run("get", "--json", "--xyz")
    assert (answer.code, answer.error) == (
        2,
        {"code": "usage", "summary": "No such option: --xyz", "facts": {"command": "keyplan get"}},
    )


def test_json_behind_the_end_of_options_is_a_word(site: Keyplan) -> None:
    answer = site("get", "notes", "--", "--json")
    assert (answer.code, answer.err.startswith("keyplan: there is no such record")) == (3, True)


def test_without_a_store_or_a_layout_the_ways_to_name_one_are_told(run: Keyplan) -> None:
    no_layout = run("ls")
    assert (no_layout.code, "--layout NAME, KEYPLAN_LAYOUT, or layout in keyplan.toml" in no_layout.err) == (5, True)
    no_store = run("ls", "--layout", "cloudchamber")
    assert (no_store.code, "--store URL, KEYPLAN_STORE, or store in keyplan.toml" in no_store.err) == (5, True)


def test_passwords_in_a_stores_address_are_never_printed(run: Keyplan) -> None:
    for option in ((), ("--json",)):
        answer = run("ls", "--layout", "cloudchamber", "--store", "etcd://me:hunter2@host", *option)
        assert (answer.code, "hunter2" in answer.err + answer.out, "etcd://me:***@host" in answer.err) == (
            7,
            False,
            True,
        )


def test_ctrl_c_ends_with_130(run: Keyplan, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("keyplan.cli.layout.render_map", interrupted)
    answer = run("map", "--layout", "cloudchamber")
    assert (answer.code, answer.err) == (130, "keyplan: interrupted\n")


# ---- exit codes --------------------------------------------------------------------------------------------------------

CODES = {
    "not-found": 3,
    "conflict": 4,
    "already-exists": 4,
    "unique-violation": 4,
    "stale-record": 4,
    "commit-conflict": 4,
    "record": 5,
    "invalid-key": 5,
    "invalid-record": 5,
    "invalid-page-token": 5,
    "invalid-input": 5,
    "layout": 6,
    "template": 6,
    "lint": 6,
    "unknown-name": 6,
    "engine": 7,
    "engine-unavailable": 7,
    "history-compacted": 7,
    "lease-not-found": 7,
    "engine-limit": 7,
    "unsupported": 7,
    "engine-open": 7,
    "corruption": 8,
    "commit-outcome-unknown": 9,
}


def kinds() -> list[type[errors.KeyplanError]]:
    found = [getattr(errors, name) for name in errors.__all__]
    return [kind for kind in found if issubclass(kind, errors.KeyplanError) and kind is not errors.KeyplanError]


def test_each_error_has_its_exit_code() -> None:
    assert {kind.code: kind().exit_code for kind in kinds() if kind.code in CODES} == CODES


def test_no_error_is_left_without_an_exit_code() -> None:
    assert [kind.code for kind in kinds() if kind().exit_code == errors.KeyplanError.exit_code] == []


# ---- the installed script ------------------------------------------------------------------------------------------------


def test_the_script_ends_with_the_exit_code() -> None:
    ran = subprocess.run(
        [SCRIPT, "lint", "--layout", "tests.cli.layouts:Colliding"],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parents[2],
    )
    assert (ran.returncode, ran.stderr) == (1, "")
    assert ran.stdout.splitlines()[-1] == "Colliding: 1 finding, 1 to fix or waive"


def test_a_reader_that_has_enough_is_no_error(site: Keyplan, tmp_path: Path) -> None:
    many = [json.dumps(number) for number in range(30_000)]
    program = f"import sys; sys.argv[1:] = {['dump', '--raw']!r}; from keyplan.cli.start import run; run()"
    with keyplan.open("lmdb:site.kv") as store, Site(store).transaction() as site_layout:
        for number in many:
            site_layout.notes.put(number, "x" * 20)
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stderr is not None
    first = process.stdout.readline()
    process.stdout.close()
    said = process.stderr.read()
    process.stderr.close()
    assert (process.wait(), said) == (0, "")
    assert json.loads(first)["key"] == b"/site/boxes/a/1".hex()


def test_a_full_disk_behind_the_output_is_told() -> None:
    with Path("/dev/full").open("w") as full:
        ran = subprocess.run(
            [SCRIPT, "map", "--layout", "cloudchamber"], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert (ran.returncode, ran.stderr) == (74, "keyplan: [Errno 28] No space left on device\n")


def test_without_its_packages_the_command_says_what_to_install() -> None:
    program = "import sys; sys.modules['typer'] = None; from keyplan.cli.start import run; run()"
    ran = subprocess.run([sys.executable, "-c", program, "--help"], capture_output=True, text=True, check=False)
    assert ran.returncode == NOT_INSTALLED
    assert ran.stderr == "keyplan: the command line needs the package typer: pip install 'keyplan[cli]'\n"


def test_without_an_applications_packages_its_command_says_what_to_install() -> None:
    program = (
        "import sys; sys.modules[sys.argv.pop(1)] = None;"
        "sys.modules.pop('keyplan.apps', None); from keyplan.cli.start import run; run()"
    )
    for package, command, extra in (
        ("numpy", ["hepnos", "--help"], "hepnos"),
        ("starlette", ["serve", "--store", "memory:"], "server"),
        ("google", ["runm", "--help"], "runm"),
        ("google.protobuf", ["runm", "serve"], "runm"),
    ):
        ran = subprocess.run(
            [sys.executable, "-c", program, package, *command], capture_output=True, text=True, check=False
        )
        shown = {"google.protobuf": "protobuf"}.get(package, package)
        advice = f"the package {shown!r} is not installed: pip install 'keyplan[{extra}]'"
        if ran.returncode:  # an application that starts without its packages may print its help
            assert (ran.returncode, ran.stderr) == (NOT_INSTALLED, f"keyplan: {advice}\n")
        assert "Traceback" not in ran.stderr
        assert ran.returncode or package == "google", package


def test_the_extra_is_the_applications_unless_it_has_one_for_the_package() -> None:
    assert _extra("numpy", ["hepnos", "--help"]) == "hepnos"
    assert _extra("h5py", ["hepnos", "load"]) == "hepnos-files"
    assert _extra("grpc", ["runm", "serve"]) == "runm"
    assert _extra("grpc", ["ls"]) == "etcd"
    assert _extra("patroni", ["patroni", "up"]) == "patroni-node"


def test_every_extra_that_is_advised_is_declared() -> None:
    declared = tomllib.loads(PROJECT.read_text())["project"]["optional-dependencies"]
    assert set(EXTRAS.values()) <= set(declared)


def test_options_may_stand_before_the_command(run: Keyplan, tmp_path: Path) -> None:
    store = f"lmdb:{tmp_path / 'site.kv'}"
    options = ["--store", store, "--layout=tests.cli.layouts:Site"]
    assert run(*options, "put", "notes", "hello", "world").code == 0
    assert run(*options, "--json", "get", "notes", "hello").document["record"] == "world"
    assert run(*options, "put", "notes", "--", "-a", "b").code == 0
    assert run("-s", store, "keyspace", "list").code == 0
    assert run("--store").code == USAGE
    assert "No such option: --store" in run("--store", store, "completion", "bash").err


def test_a_misspelt_name_is_answered_with_the_right_one(run: Keyplan, tmp_path: Path) -> None:
    at = ("--store", "memory:", "--layout", "tests.cli.layouts:Site")
    assert run("count", "boxs", *at).err == (
        "keyplan: there is no table, index or counter 'boxs' in Site; did you mean 'boxes'?\n"
    )
    assert run("count", "zzz", *at).err == (
        "keyplan: there is no table, index or counter 'zzz' in Site;"
        " known are boxes, notes, flags, holders, raw, by_name, by_tag, tickets\n"
    )
    assert "did you mean 'cloudchamber'?" in run("map", "--layout", "cloudchmber").err


def test_a_misspelt_setting_is_answered_with_the_right_one(run: Keyplan) -> None:
    serve = ("serve", "--store", "memory:", "--app", "etcd-v2", "--setting")
    assert "'etcd-v2.histroy'; did you mean 'etcd-v2.history'?" in run(*serve, "etcd-v2.histroy=200").err
    assert "'etcd-v2.zzz'; known are etcd-v2.advertise, etcd-v2.history (" in run(*serve, "etcd-v2.zzz=1").err
    assert "known are etcd-v2.advertise, " in run(*serve, "etcd-v3.progress=1").err


def test_a_key_space_that_is_not_there_is_answered_with_how_to_list_them(run: Keyplan, tmp_path: Path) -> None:
    store = ("--store", f"lmdb:{tmp_path}/site.kv")
    assert run("keyspace", "create", "orders", "--application", "shop", *store).code == 0
    assert "`keyplan keyspace list` shows the names" in run("keyspace", "show", "order", *store).err


def test_a_module_that_python_has_itself_is_named(run: Keyplan) -> None:
    answer = run("lint", "--layout", "types:Types")
    assert "Python has a module types of its own: give the file another name" in answer.err


def test_a_word_that_fits_no_field_is_answered_with_what_fits(run: Keyplan) -> None:
    answer = run("get", "boxes", "a", "seven", "--store", "memory:", "--layout", "tests.cli.layouts:Site")
    assert (answer.code, answer.err) == (5, "keyplan: number must be a whole number, got 'seven'\n")
