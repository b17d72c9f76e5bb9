"""CloudChamber's REST API in this process, on a clock that the test moves: for what waits."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar
from unittest.mock import patch

import httpx

import keyplan
from keyplan import SecretKeys
from keyplan.apps.cloudchamber.service import build
from keyplan.audit_log import AuditLog
from keyplan.server import Access, Application
from keyplan.store import Store
from keyplan.testing.faults import FakeClock
from tests.apps.cloudchamber.web import ADMIN, SETTINGS

__all__ = ["BOUND_SECONDS", "Site", "site_of"]

T = TypeVar("T")

_COUNTED = "keyplan.apps.cloudchamber.service.first_number"

BOUND_SECONDS = 60
"""How long a test waits for what must come; only a failure takes so long."""


@dataclass
class Site:
    """A server without a socket, the store behind it, and its clock. `run` runs a test's coroutine."""

    application: Application
    store: Store
    clock: FakeClock
    runner: asyncio.Runner
    _clients: list[httpx.AsyncClient] = field(default_factory=list)

    def run(self, act: Callable[["Site"], Awaitable[T]]) -> T:
        async def bounded() -> T:
            async with self.application.running():
                try:
                    return await asyncio.wait_for(act(self), BOUND_SECONDS)
                finally:
                    for client in self._clients:
                        await client.aclose()

        return self.runner.run(bounded())

    def client(self) -> httpx.AsyncClient:
        """Somebody who is not logged in."""
        transport = httpx.ASGITransport(self.application.asgi, client=("127.0.0.1", 50_000))
        client = httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1", timeout=None)
        self._clients.append(client)
        return client

    async def logged_in(self, name: str = ADMIN[0], password: str = ADMIN[1]) -> httpx.AsyncClient:
        """Somebody who is."""
        client = self.client()
        answer = await client.put(f"/api/users/{name}?op=login", content=password)
        assert answer.status_code == 200, answer.text
        return client


@contextmanager
def site_of(
    url: str,
    folder: Path,
    settings: str = SETTINGS,
    *,
    counts_from: int | None = 1,
    access: Access | None = None,
    secrets: SecretKeys | None = None,
    audit_log: AuditLog | None = None,
    as_original: str = "",
    layout: str = "",
) -> Iterator[Site]:
    """Build the service on a store, not yet running. It counts from 1, which reads easier; from its own number with None."""
    (folder / "cloudchamber.yaml").write_text(settings)
    clock = FakeClock()
    # Why: passwords are tested elsewhere, and a hash takes longer than the rest of a test.
    cheap = patch("keyplan.apps.cloudchamber.accounts._COST", 4)
    counting = nullcontext() if counts_from is None else patch(_COUNTED, lambda _clock: counts_from)
    with cheap, counting, keyplan.open(url) as store, asyncio.Runner() as runner:
        given = {"cloudchamber.config": str(folder)}
        options = {"as-original": as_original, "layout": layout}
        given |= {f"cloudchamber.{name}": text for name, text in options.items() if text}
        builders = {"cloudchamber": build}
        application = Application.build(
            store.engine, builders, settings=given, clock=clock, access=access, secrets=secrets, audit_log=audit_log
        )
        yield Site(application, store, clock, runner)
