"""The frames of runm's get, from the bytes of a request to those of its answer: as gRPC hands them in, without gRPC."""

from collections.abc import Callable
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from keyplan.apps.runm.deployment import Deployment
from keyplan.apps.runm.dispatch import Dispatcher
from keyplan.apps.runm.start import ensure_started
from keyplan.apps.runm.wire_table import RUNM, messages
from keyplan.store import open_store
from tests.apps.runm.client import I1, PROJECT, SW, WEST
from tests.ways.frames import frames_of

AT_MOST = 20
BY_NAME = {**SW, "partition": "us-west.example.com"}
IMAGE = {"partition": WEST, "object_type": "runm.image", "project": PROJECT, "uuid": I1, "name": "one"}


class Details:
    """What gRPC tells of a call."""

    def __init__(self, method: str) -> None:
        self.method = method
        self.invocation_metadata = ()


class Context:
    """A call that must not fail."""

    def peer(self) -> str:
        return "ipv4:127.0.0.1:1"

    def abort(self, code: object, text: str) -> None:
        raise AssertionError(f"{code}: {text}")


def calling(deployment: Deployment, name: str, **fields: Any) -> Callable[[], bytes]:
    """Return the call, with its request spelled as bytes."""
    service = RUNM.full_name("RunmMetadata")
    handlers: list[Any] = [*Dispatcher(deployment, Event()).handlers()]
    found = [one.service(Details(f"/{service}/{name}")) for one in handlers]
    (handler,) = [one for one in found if one is not None]
    spelled = "".join(word.capitalize() for word in name.split("_"))
    raw = getattr(messages, f"{spelled}Request")(**fields).SerializeToString()
    return lambda: handler.unary_unary(raw, Context())


@pytest.mark.parametrize("session", [SW, BY_NAME], ids=["by-uuid", "by-name"])
def test_a_get_of_an_object(tmp_path: Path, session: dict[str, str]) -> None:
    with open_store(f"lmdb:{tmp_path / 'store'}?durability=none") as store:
        deployment = Deployment(store)
        ensure_started(deployment)
        calling(deployment, "partition_create", session=SW, partition={"uuid": WEST, "name": "us-west.example.com"})()
        properties = [{"key": "secret", "value": "s"}, {"key": "os", "value": "linux"}]
        calling(deployment, "object_create", session=SW, object={**IMAGE, "properties": properties})()
        get = calling(deployment, "object_get_by_uuid", session=session, uuid=I1)
        get()

        frames = min((frames_of(get) for _ in range(3)), key=len)
        assert len(frames) <= AT_MOST, "\n".join([f"{len(frames)} frames, at most {AT_MOST}", *frames])
