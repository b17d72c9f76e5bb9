"""One LMDB environment a process and path, as LMDB demands: counted, shared by engines, let go in a forked child."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Lock
from typing import Final

from keyplan.engine.lmdb.environment import Environment
from keyplan.engine.lmdb.files import map_bytes_beside, refusal
from keyplan.engine.lmdb.options import LmdbOptions

__all__ = ["acquire", "held_here", "release"]


class _OpenEnvironments:
    """What this process has open, by real path."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._by_path: dict[str, Environment] = {}

    def acquire(self, path: Path, options: LmdbOptions) -> Environment:
        """Return the environment of a path, opening it when no engine of this process has. Pair with `release`.

        Raises EngineOpenError when it cannot be opened, or is open here with other options.
        """
        real_path = os.path.realpath(path)
        with self._lock:
            environment = self._by_path.get(real_path)
            if environment is not None:
                environment.check_in_place()
                if environment.problem is not None:
                    # Why: who holds an engine on the file that was there before learns it; who opens gets what is there now.
                    environment.close(environment.problem)
                    environment = None
            if environment is None:
                map_bytes = map_bytes_beside(len(self._by_path), options)
                environment = self._by_path[real_path] = Environment(path, options, map_bytes=map_bytes)
            elif replace(environment.options, create=options.create) != options:
                raise refusal(path, "it is open in this process already, with other options")
            environment.users += 1
            return environment

    def release(self, environment: Environment) -> None:
        """Give back an environment; the last one to do so closes the files."""
        with self._lock:
            environment.users -= 1
            if environment.users:
                return
            for path, other in self._by_path.items():
                # Why looked for: one that was replaced, or whose process was forked, was closed and let go of before.
                if other is environment:
                    del self._by_path[path]
                    environment.close(environment.problem or "the engine was closed")
                    return

    @contextmanager
    def held(self, path: Path) -> Iterator[Environment | None]:
        """Yield the environment that this process has open at a path, or None; it stays so while the block runs."""
        with self._lock:
            yield self._by_path.get(os.path.realpath(path))

    def abandon(self) -> None:
        """Let go of everything in a forked child: LMDB forbids the use of an environment across a fork."""
        self._lock = Lock()  # Trap: the parent's may be held by a thread that does not exist here
        for environment in self._by_path.values():
            environment.abandon()
        self._by_path.clear()


_environments: Final = _OpenEnvironments()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_environments.abandon)


acquire: Final = _environments.acquire
release: Final = _environments.release
held_here: Final = _environments.held
