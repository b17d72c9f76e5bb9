"""Finds, by both of their ways, against a slow reader, whatever the store holds.

Whatever was changed between two finds that are alike, too.
"""

from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID

import pytest

import keyplan
from keyplan.apps.runm.bounds import EVERY_PROJECT, UNBOUNDED, Bounds
from keyplan.apps.runm.definitions import set_definition
from keyplan.apps.runm.read_ahead import Scope
from keyplan.apps.runm.records import Object, ObjectDefinition, Property, PropertyPermission, PropertyPermissions
from keyplan.apps.runm.refusal import RefusedError
from keyplan.apps.runm.wire_table import messages
from keyplan.store import Store
from tests.apps.runm.changing import (
    BOUNDS,
    OPERATOR,
    PROJECTS,
    UUIDS,
    changing_process,
)
from tests.apps.runm.client import PROJECT, WEST
from tests.apps.runm.counting import CountingEngine
from tests.apps.runm.finding import Scene, SlowReader


def test_what_another_process_writes_counts_at_once(tmp_path: Path) -> None:
    url = f"lmdb:{tmp_path}/store?durability=none"
    with ExitStack() as stack:
        scene, gone_short = Scene(stack.enter_context(keyplan.open(url)), Random(7)), 0
        change = stack.enter_context(changing_process(url))
        for _ in range(80):
            change()
            for request in [scene.request_like_others() for _ in range(12)]:
                short = scene.short(request, UNBOUNDED)
                try:
                    expected = [one.SerializeToString() for one in scene.find(request, UNBOUNDED)]
                except RefusedError:
                    assert short is None
                    continue
                assert short is None or list(short) == expected, request
                gone_short += bool(short)
        assert gone_short > 10


@pytest.mark.parametrize(("seed", "is_far"), [(1, False), (2, True), (5, False)])
def test_a_find_gives_what_a_slow_reader_gives(seed: int, *, is_far: bool) -> None:
    with keyplan.open("memory:") as opened:
        store = Store(CountingEngine(opened.engine)) if is_far else opened
        scene, reader, compared, gone_short = Scene(store, Random(seed)), SlowReader(opened), 0, 0
        for _ in range(120):
            scene.change()
            bounds = scene.random.choice(BOUNDS)
            requests = [(scene.request(), bounds) for _ in range(20)]
            requests += [(scene.request_like_others(), one) for one in (bounds, UNBOUNDED) for _ in range(8)]
            for request, reach in requests:
                try:
                    answers = [one.SerializeToString() for one in scene.find(request, reach)]
                except RefusedError:
                    assert scene.short(request, reach) is None, request
                    continue
                expected = list(reader.found(request, reach))
                assert answers == expected, request
                short = scene.short(request, reach)
                assert short is None or list(short) == expected, request
                compared += bool(expected)
                gone_short += bool(short)
        assert compared > 250
        assert bool(gone_short) is not is_far
        assert is_far or gone_short > 25, "the short way has to be gone, too"
        assert reader.left_out, "a definition that cannot be read was needed"


def test_each_object_is_shown_by_the_rules_of_its_own_project() -> None:
    with keyplan.open("memory:") as store:
        scene, west = Scene(store, Random(1)), UUID(WEST)
        for uuid, project in zip(UUIDS, (*PROJECTS, *PROJECTS), strict=False):
            record = Object(west, "runm.image", uuid, uuid.hex, project, (Property("secret", "s"),))
            scene.deployment.runm.objects.insert(uuid, record)
        of_one = (PropertyPermissions("secret", (PropertyPermission(project=PROJECTS[1], permission=0),)),)
        definition = ObjectDefinition(UUID(int=0), "{}", of_one)
        set_definition(scene.deployment, OPERATOR, Scope(None, "runm.image"), "", definition)
        session = {"user": "u", "partition": WEST, "project": EVERY_PROJECT}
        request = messages.ObjectFindRequest(session=session)
        for _ in range(2):
            shown = [len(one.properties) for one in scene.find(request, Bounds(has_every_project=True))]
            assert shown == [1, 0, 1, 0]


def test_rules_of_any_size_are_not_kept() -> None:
    with keyplan.open("memory:") as store:
        scene, uuid = Scene(store, Random(1)), UUIDS[0]
        secret = Property("secret", "s")
        scene.deployment.runm.objects.insert(uuid, Object(UUID(WEST), "runm.image", uuid, "one", PROJECT, (secret,)))
        session = {"user": "u", "partition": WEST, "project": PROJECT}
        hiding = (PropertyPermissions("secret", (PropertyPermission(permission=0),)),)

        def found(**more: Any) -> list[int]:
            request = messages.ObjectFindRequest(session={**session, **more})
            return [len(one.properties) for one in scene.find(request, UNBOUNDED)]

        assert found(roles=["r" * 30_000]) == [1]
        assert not scene.deployment.ahead.rules
        for schema, kept in (("{}", 1), ('{"description": "' + "x" * 30_000 + '"}', 0)):
            scene.deployment.ahead.rules.clear()
            definition = ObjectDefinition(UUID(int=0), schema, hiding)
            set_definition(scene.deployment, OPERATOR, Scope(None, "runm.image"), "", definition)
            assert found() == found() == [0]
            assert len(scene.deployment.ahead.rules) == kept
