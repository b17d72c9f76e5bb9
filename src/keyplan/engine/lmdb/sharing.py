"""One LMDB environment a process and path, as LMDB demands: counted, shared by engines, let go in a forked child."""

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Lock
from typing import Final

from keyplan.engine.lmdb.environment import Environment
from keyplan.engine.lmdb.files import refusal
from keyplan.engine.lmdb.options import LmdbOptions

__all__ = ["acquire", "held_here", "release"]


class _OpenEnvironments:
    """What this process has open, by real path."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._by_path: dict[str, Environment] = {}

    def acquire(self, path: Path, options: LmdbOptions) -> Environment:
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
                environment = self._by_path[real_path] = Environment(path, options)
            elif replace(environment.options, create=options.create) != options:
                raise refusal(path, "it is open in this process already, with other options")
            environment.users += 1
            return environment

    def release(self, environment: Environment) -> None:
        with self._lock:
            environment.users -= 1
            # Why asked for here: one that was replaced, or whose process was forked, was closed and let go of before.
            if environment.users == 0 and environment in self._by_path.values():
                self._by_path = {path: other for path, other in self._by_path.items() if other is not environment}
                environment.close(environment.problem or "the engine was closed")

    @contextmanager
    def held(self, path: Path) -> Iterator[Environment | None]:
        """Give what is open at a path, which is neither opened nor closed while the block runs."""
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


def acquire(path: Path, options: LmdbOptions) -> Environment:
    """Return the environment of a path, opening it when no engine of this process has. Pair with `release`.

    Raises EngineOpenError when it cannot be opened, or is open here with other options.
    """
    return _environments.acquire(path, options)


def held_here(path: Path) -> AbstractContextManager[Environment | None]:
    """Give the environment that this process has open at a path, or None; for a block, in which that stays as it is."""
    return _environments.held(path)


def release(environment: Environment) -> None:
    """Give back an environment; the last one to do so closes the files."""
    _environments.release(environment)
