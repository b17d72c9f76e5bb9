"""CloudChamber's REST API as a process, on LMDB or etcd, and clients of it that keep their cookies."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import httpx

import keyplan
from keyplan.store import Store
from tests.servers.keyplan_server import KeyplanServer

__all__ = ["ADMIN", "Web", "served"]

ADMIN: Final = ("admin", "adminPassword")

SETTINGS: Final = """webServer:
  systemAccount: admin
  systemAccountPassword: adminPassword
"""


class Web(NamedTuple):
    """A running server, and the store behind it."""

    server: KeyplanServer
    store_url: str

    def client(self) -> httpx.Client:
        """Somebody who is not logged in."""
        return httpx.Client(base_url=self.server.url, timeout=30)

    @contextmanager
    def as_user(self, name: str = ADMIN[0], password: str = ADMIN[1]) -> Iterator[httpx.Client]:
        """Somebody who is."""
        with self.client() as client:
            answer = client.put(f"/api/users/{name}?op=login", content=password)
            assert answer.status_code == 200, answer.text
            yield client

    def store(self) -> Store:
        """The store, opened beside the server."""
        return keyplan.open(self.store_url)

    def raw(self, key: str) -> bytes | None:
        """The value at a raw key, read past the layout."""
        with self.store() as store:
            return store.engine.value(key.encode())


@contextmanager
def served(
    store_url: str,
    folder: Path,
    *,
    settings: str = SETTINGS,
    environment: Mapping[str, str] | None = None,
    arguments: tuple[str, ...] = (),
) -> Iterator[Web]:
    """Serve a store with the settings in `folder`."""
    (folder / "cloudchamber.yaml").write_text(settings)
    options: Any = ("--app", "cloudchamber", "--setting", f"cloudchamber.config={folder}", *arguments)
    with KeyplanServer(store_url, *options, environment=environment) as server:
        yield Web(server, store_url)
