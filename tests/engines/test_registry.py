"""From a URL to an engine: what opens, what is refused and how it is said, what is imported when."""

import subprocess
import sys
from importlib.metadata import EntryPoint
from threading import Thread
from typing import Any

import pytest

from keyplan.engine import ALL_KEYS, Commit, Engine, EngineUrl, MemoryEngine, Put, known_schemes, open_engine
from keyplan.engine import memory as memory_module
from keyplan.engine import registry as registry_module
from keyplan.errors import EngineOpenError


def problem_of(url: str) -> str:
    with pytest.raises(EngineOpenError) as caught:
        open_engine(url)
    return str(caught.value.problem)


def is_empty(engine: Engine) -> bool:
    with engine.snapshot() as snapshot:
        return snapshot.count(ALL_KEYS) == 0


def put(engine: Engine, key: bytes) -> int:
    return engine.commit(Commit((), (Put(key, b""),)))


def open_for_test(url: EngineUrl) -> Engine:
    """What an installed package would offer."""
    assert url.scheme == "third"
    assert url.address == "place"
    assert url.options == {"option": "1"}
    return MemoryEngine()


def test_memory_is_a_new_empty_store_each_time() -> None:
    with open_engine("memory:") as first, open_engine("memory:") as second:
        put(first, b"a")
        assert is_empty(second)


def test_a_named_memory_is_shared_while_it_is_open() -> None:
    with open_engine("memory:shared") as first:
        put(first, b"a")
        with open_engine("memory:shared") as second:
            assert not is_empty(second)
            put(second, b"b")
        with open_engine("memory:other") as other:
            assert is_empty(other)
        assert put(first, b"c") == 3
    with open_engine("memory:shared") as again:
        assert is_empty(again)


def test_the_history_of_a_memory_is_bounded_by_its_option() -> None:
    with open_engine("memory:?history=3") as engine:
        for _ in range(10):
            put(engine, b"a")
        assert [event.revision for event in engine.watch(ALL_KEYS, after=7).poll(5)] == [8, 9, 10]
        with pytest.raises(Exception, match="compacted"):
            engine.watch(ALL_KEYS, after=6)


def test_an_unknown_scheme_is_refused_with_the_known_ones() -> None:
    engines = "etcd, lmdb, memory, postgres, postgresql, ring"
    assert problem_of("mysql://host") == f"there is no engine 'mysql'; the engines are {engines}"


@pytest.mark.parametrize("url", ["", "chamber.kv", "/var/lib/store", "?x=y", ":"])
def test_what_is_no_url_is_refused_with_an_example(url: str) -> None:
    assert "memory: or lmdb:PATH" in problem_of(url)


def test_an_unknown_option_is_refused_with_the_known_ones() -> None:
    assert problem_of("memory:?size=3") == "there is no option 'size'; the options of memory: are history"


@pytest.mark.parametrize("url", ["etcd://a%00b", "postgresql://u:p%00@a/x", "memory:a\x00", "memory:?history=%00"])
def test_a_url_that_drivers_would_cut_off_is_refused(url: str) -> None:
    with pytest.raises(EngineOpenError, match="it holds a zero byte"):
        open_engine(url)


def test_an_option_given_twice_is_refused() -> None:
    assert "given twice" in problem_of("memory:?history=1&history=2")


@pytest.mark.parametrize("value", ["", "0", "-1", "many", "1.5", "\u0663", "9" * 5_000])
def test_a_history_that_is_no_number_is_refused(value: str) -> None:
    assert "whole number of at least 1" in problem_of(f"memory:?history={value}")


def test_a_missing_driver_is_refused_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in [name for name in sys.modules if name == "lmdb" or name.startswith("keyplan.engine.lmdb")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "lmdb", None)
    assert problem_of("lmdb:x") == "the package 'lmdb' is not installed: pip install 'keyplan[lmdb]'"


def test_etcd_without_protobuf_is_refused_with_what_to_install() -> None:
    program = """
import sys
sys.modules["google.protobuf"] = sys.modules["google"] = None
import keyplan.engine
try:
    keyplan.engine.open_engine("etcd://127.0.0.1:1")
except keyplan.errors.EngineOpenError as error:
    print(error.problem)
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout == "the package 'protobuf' is not installed: pip install 'keyplan[etcd]'\n"


def test_the_driver_is_imported_only_when_its_scheme_is_opened() -> None:
    program = "import sys, keyplan.engine as e; e.open_engine('memory:'); print('lmdb' in sys.modules)"
    assert (
        subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout == "False\n"
    )


def test_an_installed_package_may_bring_an_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    points = [
        EntryPoint("third", f"{__name__}:open_for_test", "keyplan.engines"),
        EntryPoint("broken", "no_such_module:open", "keyplan.engines"),
    ]

    def entry_points(*, group: str, name: str | None = None) -> list[EntryPoint]:
        assert group == "keyplan.engines"
        return [point for point in points if name in (None, point.name)]

    monkeypatch.setattr(registry_module, "entry_points", entry_points)
    assert known_schemes() == ["broken", "etcd", "lmdb", "memory", "postgres", "postgresql", "third"]
    with open_engine("third:place?option=1") as engine:
        assert is_empty(engine)
    assert "no_such_module:open of an installed package cannot be loaded" in problem_of("broken:")


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("x://user:secret@host/db", "x://user:***@host/db"),
        ("x://user:se/cr@et:1@host/db", "x://user:***@host/db"),
        ("x://[::1]:2379,[::2]:2379?user=a@b", "x://[::1]:2379,[::2]:2379?user=a@b"),
        ("x://host/db?password=secret&a=1", "x://host/db?password=***&a=1"),
        ("x://host?a=1&api_token=secret", "x://host?a=1&api_token=***"),
        ("x:plain", "x:plain"),
    ],
)
def test_an_error_about_a_url_hides_its_secrets(url: str, shown: str) -> None:
    with pytest.raises(EngineOpenError) as caught:
        open_engine(url)
    assert caught.value.url == shown
    assert "secret" not in str(caught.value)


def test_a_parsed_url_shows_no_secrets() -> None:
    shown = repr(EngineUrl.parse("x://user:secret@host?password=hidden&a=1"))
    assert "x://user:***@host?password=***&a=1" in shown
    assert "secret" not in shown
    assert "hidden" not in shown


def test_a_path_may_hold_any_character_percent_encoded() -> None:
    assert EngineUrl.parse("lmdb:/a%3Fb%25c/d e").address == "/a?b%c/d e"
    assert EngineUrl.parse("LMDB:/a").scheme == "lmdb"


def test_two_threads_that_open_one_name_share_one_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[Engine] = []
    other = Thread(target=lambda: opened.append(open_engine("memory:twice")))

    class Slow(memory_module.Memory):
        """The other thread comes while this one is being made."""

        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            if other.ident is None:
                other.start()
                other.join(0.2)  # it ends here only if nothing makes it wait

    monkeypatch.setattr(memory_module, "Memory", Slow)
    with open_engine("memory:twice") as mine:
        other.join()
        put(mine, b"k")
        with opened[0] as theirs:
            assert not is_empty(theirs)


def test_each_package_of_a_driver_is_refused_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for package, name in (("google", "protobuf"), ("grpc", "grpcio")):
        program = (
            f"import sys; sys.modules[{package!r}] = None\n"
            "from keyplan.engine import open_engine\n"
            "from keyplan.errors import EngineOpenError\n"
            "try: open_engine('etcd://127.0.0.1:1')\n"
            "except EngineOpenError as error: print(error.facts['problem'])"
        )
        ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
        assert ran.stdout == f"the package {name!r} is not installed: pip install 'keyplan[etcd]'\n", ran.stderr
