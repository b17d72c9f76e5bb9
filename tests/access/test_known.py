"""Grants on operations that there are not, or that need something else: found, with the line and what was meant."""

import logging
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

import pytest

from keyplan.access import EVERYTHING, OnOperation, idle_grants, known_operations, problem_of, read_policy
from keyplan.engine import MemoryEngine
from keyplan.operations import ITSELF, NOTHING, Act, Need, Rpc, key_space, needs_of, operation, operations_of, prefix
from keyplan.server import Application, PolicyAccess, service_builders
from tests.operations.declared import DECLARED

KNOWN = {
    "getAudit": Need(Act.AUDIT, ITSELF),
    "setBounds": Need(Act.ADMINISTER, ITSELF),
    "getHealth": Need(Act.READ, NOTHING),
    "deleteKeySpace": Need(Act.ADMINISTER, key_space("name")),
    "getKey": Need(Act.READ, prefix("path")),
    "runm.object_find": Need(Act.READ, ITSELF),
    "runm.object_create": Need(Act.WRITE, ITSELF),
}


def problem(words: str) -> str | None:
    act, _, name = words.partition(" ")
    return problem_of(Act(act), OnOperation(name), KNOWN)


@pytest.mark.parametrize(
    "words",
    [
        "audit getAudit",
        "administer setBounds",
        "read runm.object_find",
        "read runm.*",
        "write runm.*",
        "write runm.object_create",
    ],
)
def test_a_grant_that_an_operation_asks_for_is_none_of_them(words: str) -> None:
    assert problem(words) is None


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("audit getAduit", "there is no operation getAduit; did you mean operation:getAudit?"),
        ("read runm.objct_find", "there is no operation runm.objct_find; did you mean operation:runm.object_find?"),
        ("read runn.*", "there is no operation whose name begins with runn.; did you mean operation:runm.*?"),
        ("read zzz", "there is no operation zzz; if a package that is not installed here has it, all is well"),
        ("read *", "there is no operation *; if a package that is not installed here has it, all is well"),
        ("read getAudit", "getAudit needs audit, and read is granted: write it under audit"),
        ("audit runm.*", "none of runm.* needs audit: leave it out"),
        ("read getHealth", "getHealth needs no grant: leave it out"),
        (
            "administer deleteKeySpace",
            "deleteKeySpace is decided on its key space: grant keyspace:NAME, or application:NAME",
        ),
        ("read getKey", "getKey is decided on the keys that it names: grant prefix:KEY"),
    ],
)
def test_a_grant_that_nothing_asks_for_is_told_with_what_was_meant(words: str, told: str) -> None:
    assert problem(words) == told


def test_they_are_found_with_their_lines() -> None:
    text = '[principals.ada]\naudit = ["everything",\n  "operation:getAduit",\n  "operation:getAudit"]\nread = ["keyspace:x"]\n'
    (found,) = idle_grants(read_policy(text, source="f"), KNOWN)
    assert (found.principal, found.grant.line, str(found.grant.on)) == ("ada", 3, "operation:getAduit")


@pytest.mark.parametrize(
    ("on", "told"),
    [
        (
            "keyspace:*",
            "no key space can have the name *: name one, or grant application:NAME for all of an application",
        ),
        (
            "keyspace:-x",
            "no key space can have the name -x: name one, or grant application:NAME for all of an application",
        ),
        ("application:*", "no application can have the name *: name one, or grant everything"),
        ("application:sh*", "no application can have the name sh*: name one, or grant everything"),
        (
            "prefix:/b/*",
            "it is on keys that begin with a star there: write prefix:/b/ for all that begin so without it",
        ),
        ("prefix:*", "it is on keys that begin with a star there: write everything for all that begin so without it"),
    ],
)
def test_a_star_where_none_is_a_pattern_is_told(on: str, told: str) -> None:
    text = f'[principals.ada]\nread = ["keyspace:x.y-z", "application:shop", "prefix:/a*b/",\n  "{on}"]\n'
    (found,) = idle_grants(read_policy(text, source="f"), KNOWN)
    assert (found.principal, found.grant.line, found.problem) == ("ada", 3, told)


# ---- what is known -----------------------------------------------------------------------------------------------------


def described(openapi: Any) -> Iterator[str]:
    for methods in openapi.get("paths", {}).values():
        yield from (one["operationId"] for one in methods.values() if isinstance(one, dict) and "operationId" in one)


def test_whatever_a_service_describes_is_known() -> None:
    builders = service_builders(("etcd-v2", "etcd-v3", "explorer"))
    with MemoryEngine() as engine:
        built = Application.build(engine, builders)
        named = {name for service in built.services for name in described(service.openapi)}
        built.workers.close()
    assert len(named) > 30
    assert named <= known_operations().keys()


def test_every_service_with_operations_and_runm_declare_them() -> None:
    declaring = {point.name for point in entry_points(group="keyplan.operations")}
    assert {point.name for point in entry_points(group="keyplan.services")} <= declaring
    assert {"runm.object_find", "runm.partition_create"} <= known_operations().keys()


def test_whatever_is_declared_anywhere_is_known_with_what_it_needs() -> None:
    known = known_operations()
    for declared in DECLARED.values():
        name = f"runm.{declared.name}" if isinstance(declared, Rpc) else declared.name
        assert known[name] == declared.needs, name


def test_a_declaration_is_what_is_known_of_it() -> None:
    class Own:
        @operation("GET", "/own", name="getOwn", needs=Need(Act.READ, ITSELF), answers="It.")
        def own(self) -> int:
            """Give it."""
            raise NotImplementedError

    assert needs_of(Own, family="x.") == {"x.getOwn": Need(Act.READ, ITSELF)}
    assert list(operations_of(Own)) == ["own"]


# ---- where it is told --------------------------------------------------------------------------------------------------


def test_a_server_tells_them_at_its_start_and_when_the_file_changes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Hand:
        seconds = 0.0

        def monotonic(self) -> float:
            return self.seconds

        def wall(self) -> float:
            return self.seconds

        def epoch(self) -> bytes:
            return b"test"

    file, hand = tmp_path / "access.toml", Hand()
    file.touch(mode=0o600)
    file.write_text('[principals.ada]\naudit = ["operation:getAduit"]\n')
    with caplog.at_level(logging.WARNING):
        access = PolicyAccess.of_file(file, clock=hand)
        assert [getattr(one, "facts")["place"] for one in caplog.records] == [f"{file}:2"]  # noqa: B009
        file.write_text('[principals.ada]\n\naudit = ["operation:getAuditt"]\n')
        hand.seconds += 60
        assert not access.policy.decide("ada", Act.AUDIT, EVERYTHING).is_allowed
    facts: list[dict[str, Any]] = [getattr(one, "facts") for one in caplog.records]  # noqa: B009
    assert [one["place"] for one in facts] == [f"{file}:2", f"{file}:3"]
    assert "did you mean operation:getAudit?" in facts[0]["problem"]


def imported(program: str) -> list[str]:
    """What of keyplan's applications a new process has imported at the end of a program."""
    code = f"{program}\nimport sys; print(*sorted(name for name in sys.modules if name.startswith('keyplan.apps.')))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.split()


SEARCH = """
from keyplan.access import idle_grants, read_policy
from keyplan.server import shell
print(*(found.problem for found in idle_grants(read_policy('[principals.ada]\\nread = ["operation:{name}"]', source="f"))))
"""


def test_a_grant_that_is_asked_for_here_imports_no_other_package() -> None:
    assert imported(SEARCH.format(name="getDescription")) == []
    found = imported(SEARCH.format(name="getDescriptoin"))
    assert "did you mean operation:getDescription?" in " ".join(found)
    assert "keyplan.apps.runm.operations" in found


def test_a_package_that_is_installed_as_it_was_before_ends_no_search(monkeypatch: pytest.MonkeyPatch) -> None:
    former = EntryPoint("former", "keyplan.errors:NEEDS_OF_BEFORE", "keyplan.operations")
    monkeypatch.setattr("keyplan.access.known.entry_points", lambda group: [former, *entry_points(group=group)])
    known_operations.cache_clear()
    assert "getDescription" in known_operations()
    known_operations.cache_clear()
