"""The declared calls: each is performed, spoken and documented; what is logged of a call that has ended."""

import logging
from types import ModuleType

import pytest

from keyplan.apps.runm.calls import handlers_of
from keyplan.apps.runm.client import Connection, RunmClient
from keyplan.apps.runm.logs import CALL, LOGGER
from keyplan.apps.runm.operations import ApiOperations, MetadataOperations
from keyplan.apps.runm.wire_table import RUNM
from keyplan.operations import CallerKind, rpcs_of
from keyplan.store import Store
from tests.apps.runm.client import EAST, PROJECT, WEST, refused
from tests.apps.runm.conftest import served
from tests.apps.runm.reference import PAGE, page


def test_the_reference_is_current() -> None:
    assert PAGE.read_text() == page(), "python -m tests.apps.runm.reference writes it anew"


def test_a_call_that_nothing_performs_is_told_when_the_server_is_made() -> None:
    with pytest.raises(LookupError, match="provider_create"):
        handlers_of(ApiOperations, [ModuleType("empty")])


@pytest.mark.parametrize("interface", [MetadataOperations, ApiOperations])
def test_a_call_of_a_session_takes_one_in_its_request(interface: type) -> None:
    for declared in rpcs_of(interface).values():
        fields = {one.name for one in RUNM.messages[declared.request]}
        assert "session" in fields or declared.caller is CallerKind.ANYBODY, declared.name


def test_the_client_has_a_method_for_each_call(lmdb_store: Store) -> None:
    with served(lmdb_store) as running:
        host, _, port = running.address.rpartition(":")
        with RunmClient(Connection(host, int(port), "admin", PROJECT, WEST)) as client:
            made = client.metadata.partition_create(partition={"uuid": WEST, "name": "west"}).partition
            assert client.api.partition_get(filter={"primary_filter": {"search": "west"}}) == made
            assert list(client.metadata.partition_find()) == [made]


def test_each_call_that_has_ended_is_a_line_of_the_log(
    lmdb_store: Store, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LOGGER, "propagate", True)
    hostile = {"user": "a\nb", "project": PROJECT, "partition": WEST}
    with served(lmdb_store) as running, caplog.at_level(CALL, LOGGER.name):
        running.client.partition_create(partition={"uuid": WEST, "name": "west"})
        running.client.partition_find(hostile)
        with refused("NOT_FOUND"):
            running.client.partition_get_by_uuid(hostile, uuid=EAST)
        with refused("FAILED_PRECONDITION"):
            running.client.partition_get_by_uuid(uuid=EAST)
    of = f"user 'a\\nb', partition '{WEST}'"
    nobody = "user '', partition ''"
    assert [record.getMessage() for record in caplog.records if record.levelno == CALL] == [
        f"change RunmMetadata/partition_create: {nobody}: OK",
        f"read RunmMetadata/partition_find: {of}: OK",
        f"read RunmMetadata/partition_get_by_uuid: {of}: NOT_FOUND",
        f"read RunmMetadata/partition_get_by_uuid: {nobody}: FAILED_PRECONDITION",
    ]


def test_calls_are_not_logged_below_level_2(
    lmdb_store: Store, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LOGGER, "propagate", True)
    with served(lmdb_store) as running, caplog.at_level(logging.INFO, LOGGER.name):
        running.client.partition_create(partition={"uuid": WEST, "name": "west"})
    assert not [record for record in caplog.records if record.levelno == CALL]
