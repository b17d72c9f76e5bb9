"""Refusals name the property that they are about; figures count what was answered and refused."""

from collections.abc import Callable
from functools import partial
from typing import Any
from urllib.request import urlopen
from uuid import UUID

import pytest

from keyplan.apps.runm import Object, ObjectType, Property, Runm
from keyplan.apps.runm.definition_document import compiled_definition
from keyplan.apps.runm.definitions import checked_permissions
from keyplan.apps.runm.deployment import Deployment
from keyplan.apps.runm.documents import object_document, read_document
from keyplan.apps.runm.figures import Figures
from keyplan.apps.runm.figures_port import figures_served
from keyplan.apps.runm.identity import checked_object
from keyplan.apps.runm.permission import PropertyRules, Reader
from keyplan.apps.runm.records import PropertyPermission, PropertyPermissions
from keyplan.apps.runm.refusal import RefusedError
from keyplan.apps.runm.server import Listening, serving
from keyplan.apps.runm.start import ensure_started
from keyplan.engine import MemoryEngine
from keyplan.errors import InvalidInputError
from keyplan.store import Store
from keyplan.testing.engine_suite.promise import eventually
from tests.apps.runm.client import SW, WEST, Client, refused

DENIED = (PropertyPermission(permission=0),)


def stored(*properties: tuple[str, str], tags: tuple[str, ...] = ()) -> Object:
    made = tuple(Property(*one) for one in properties)
    return checked_object(
        Runm.bound(prefix=""), Object(UUID(WEST), "t", UUID(int=1), "n", "", made, tags), ObjectType("t")
    )


def document(text: str) -> Any:
    return object_document(read_document(text.encode()))


def definition(text: str) -> Any:
    return compiled_definition(read_document(f"property_definitions: {{os.arch: {text}}}".encode()), "p")


REFUSED: list[Callable[[], Any]] = [
    lambda: stored(("os.arch", "1"), ("os.arch", "2")),
    lambda: stored(("fine", "1"), ("os.arch", "")),
    lambda: stored(("os.arch", "x" * 300)),
    lambda: document("{name: n, properties: {os.arch: [1]}}"),
    lambda: definition("{schema: {type: text}}"),
    lambda: definition("{schema: {type: [string, string]}}"),
    lambda: definition("{permissions: [{permission: x}]}"),
    lambda: checked_permissions((PropertyPermissions("os.arch"), PropertyPermissions("os.arch"))),
    lambda: checked_permissions((PropertyPermissions("os.arch", (PropertyPermission(permission=9),)),)),
    lambda: PropertyRules({"os.arch": DENIED}, Reader("p", frozenset(), None)).require_writable(["os.arch"]),
]


@pytest.mark.parametrize("act", REFUSED)
def test_a_refusal_names_its_property(act: Callable[[], Any]) -> None:
    with pytest.raises(RefusedError, match=r"os\.arch"):
        act()


def test_a_long_key_is_named_by_its_beginning_and_a_tag_as_one() -> None:
    with pytest.raises(RefusedError, match=f"property {'k' * 80}[.]{{3}} does not fit"):
        stored(("k" * 300, "v"))
    with pytest.raises(RefusedError, match="a tag does not fit"):
        stored(tags=("t" * 300,))


def test_figures_count_calls_by_name_and_status() -> None:
    deployment, figures = Deployment(Store(MemoryEngine())), Figures()
    ensure_started(deployment)
    with (
        figures_served(figures.registry, "127.0.0.1:0") as address,
        serving(deployment, Listening(("127.0.0.1:0",)), figures=figures) as running,
    ):
        client = Client(running.addresses[0])

        def page() -> str:
            return str(urlopen(f"http://{address}/metrics").read().decode())

        def shows(line: str) -> bool:
            return line in page()

        client.partition_create(partition={"uuid": WEST, "name": "p"})
        assert client.object_find(SW) == []
        with refused("NOT_FOUND"):
            client.object_get_by_uuid(SW, uuid="1" * 32)
        for call, status in (
            ("partition_create", "OK"),
            ("object_find", "OK"),
            ("object_get_by_uuid", "NOT_FOUND"),
        ):
            line = f'keyplan_runm_calls_total{{call="RunmMetadata/{call}",status="{status}"}} 1.0'
            eventually(partial(shows, line))  # Why: a call is counted after its answer has left.
        assert 'keyplan_runm_call_seconds_count{call="RunmMetadata/partition_create"} 1.0' in page()
        figures.tell_store(False)
        assert "keyplan_runm_store_answers 0.0" in page()
        client.close()
        with pytest.raises(InvalidInputError, match="cannot be listened on"), figures_served(figures.registry, address):
            pass
