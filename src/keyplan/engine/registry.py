"""From a URL to an open engine, or to who has its store open.

An engine's module, and its driver, are imported when its scheme is first opened.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any, Final

from keyplan.engine.interface import Engine
from keyplan.engine.profile import Profile
from keyplan.engine.url import EngineUrl
from keyplan.engine.usage import ExposedFile, StoreUser
from keyplan.errors import EngineOpenError

__all__ = [
    "ENTRY_POINT_GROUP",
    "default_profile",
    "exposed_files",
    "known_schemes",
    "open_awaiting_engine",
    "open_engine",
    "store_users",
]

ENTRY_POINT_GROUP: Final = "keyplan.engines"
"""Third-party engines: an entry point in this group is named for its scheme and is called with an EngineUrl."""


@dataclass(frozen=True, slots=True)
class _Builtin:
    module: str
    function: str
    profile: str
    packages: Mapping[str, str]  # what its module imports, and how it is called where packages are installed from
    options: frozenset[str] = frozenset()  # those of `create` and `readonly` that it has
    extra: str = ""  # what brings the driver, where it is not called like the scheme
    awaiting: str = ""  # the module of its asynchronous form, where `open_awaiting` is


# Why: dotted names rather than imports, so that `import keyplan` loads no driver.
_BUILTIN: Final = {
    "memory": _Builtin("keyplan.engine.memory", "open_memory", "MEMORY_PROFILE", {}),
    "etcd": _Builtin(
        "keyplan.engine.etcd",
        "open_etcd",
        "ETCD_PROFILE",
        {"grpc": "grpcio", "google": "protobuf"},
        awaiting="keyplan.engine.etcd.aio_transport",
    ),
    "lmdb": _Builtin(
        "keyplan.engine.lmdb", "open_lmdb", "LMDB_PROFILE", {"lmdb": "lmdb"}, frozenset({"create", "readonly"})
    ),
    **dict.fromkeys(
        ("postgres", "postgresql"),
        _Builtin(
            "keyplan.engine.postgres",
            "open_postgres",
            "POSTGRES_PROFILE",
            {"psycopg": "psycopg"},
            frozenset({"create", "readonly"}),
            extra="postgres",
        ),
    ),
}


def entry_points(**chosen: str) -> Iterable[Any]:
    """The entry points of installed packages, as importlib.metadata gives them."""
    # Why: that module is a tenth of what opening a built-in engine imports, and only other engines need it.
    points: Iterable[Any] = import_module("importlib.metadata").entry_points(**chosen)
    return points


def open_engine(url: str, *, create: bool = True, readonly: bool = False) -> Engine:
    """Open the engine that `url` names.

    `memory:` is a new, empty engine; `memory:NAME` is shared in this process while one of its engines is open.
    `lmdb:PATH` is a folder and `postgres://...` a schema in a database, made when missing, unless `create` is False; `readonly`
    asks for reading only. Both have an effect on engines that have such an option, and give way to what the URL says.

    Raises EngineOpenError with what is wrong: an unknown scheme or option, a driver that is not installed, a place that cannot
    be opened.
    """
    parsed = EngineUrl.parse(url)
    builtin = _BUILTIN.get(parsed.scheme)
    if builtin is None:
        return _plugin(parsed)(parsed)
    asked = {} if create or "create" not in builtin.options else {"create": "false"}
    if readonly and "readonly" in builtin.options:
        asked["readonly"] = "true"
    if asked:
        parsed = replace(parsed, options={**asked, **parsed.options})
    opener: Callable[[EngineUrl], Engine] = getattr(_module(parsed, builtin), builtin.function)
    return opener(parsed)


def open_awaiting_engine(url: str, wait: Callable[[Awaitable[Any]], Any]) -> Engine | None:
    """Open the engine that `url` names in the form whose calls await; None when it has none, and is to be used in threads.

    For an event loop that drives plain code: `wait` waits there for something awaitable. Raises EngineOpenError.
    """
    try:
        parsed = EngineUrl.parse(url)
    except EngineOpenError:
        return None  # Why: several URLs, for one; whoever opens it then says what is wrong.
    builtin = _BUILTIN.get(parsed.scheme)
    if builtin is None or not builtin.awaiting:
        return None
    _module(parsed, builtin)  # Why: it says which package is missing.
    engine: Engine = import_module(builtin.awaiting).open_awaiting(parsed, wait)
    return engine


def known_schemes() -> list[str]:
    """Return the schemes that can be opened here: the built-in ones and those of installed packages, sorted."""
    return sorted({*_BUILTIN, *(point.name for point in entry_points(group=ENTRY_POINT_GROUP))})


def default_profile(scheme: str) -> Profile:
    """Return the profile that a built-in engine has without options, without opening one.

    Raises EngineOpenError for a scheme that is not built in, or whose driver is not installed.
    """
    url = EngineUrl.parse(f"{scheme}:")
    builtin = _BUILTIN.get(scheme)
    if builtin is None:
        raise url.refuse(f"there is no built-in engine {scheme!r}; they are {', '.join(sorted(_BUILTIN))}")
    profile: Profile = getattr(_module(url, builtin), builtin.profile)
    return profile


def _plugin(url: EngineUrl) -> Callable[[EngineUrl], Engine]:
    for point in entry_points(group=ENTRY_POINT_GROUP, name=url.scheme):
        try:
            plugin: Callable[[EngineUrl], Engine] = point.load()
        except (ImportError, AttributeError) as error:
            raise url.refuse(f"the engine {point.value} of an installed package cannot be loaded: {error}") from error
        return plugin
    raise url.refuse(f"there is no engine {url.scheme!r}; the engines are {', '.join(known_schemes())}")


def _module(url: EngineUrl, builtin: _Builtin) -> object:
    try:
        return import_module(builtin.module)
    except ModuleNotFoundError as error:
        package = builtin.packages.get((error.name or "").partition(".")[0])
        if package is None:
            raise
        advice = f"the package {package!r} is not installed: pip install 'keyplan[{builtin.extra or url.scheme}]'"
        raise url.refuse(advice) from error


def store_users(url: str) -> list[StoreUser]:
    """Return which other processes have a store open: who writes, who waits for it in order, who could, and who reads.

    Raises EngineOpenError, also for an engine that keeps no such list.
    """
    parsed = _lmdb_url(url)
    if parsed is None:
        raise EngineOpenError(url=EngineUrl.parse(url).text, problem="only lmdb:PATH tells who has it open")
    # Why here: the driver is imported by those who use it.
    from keyplan.engine.lmdb.usage import users_of  # noqa: PLC0415

    return users_of(parsed)


def exposed_files(url: str) -> list[ExposedFile]:
    """Return the files of a store that are open to others than its URL says. Empty for engines that have no files here."""
    parsed = _lmdb_url(url)
    if parsed is None:
        return []
    from keyplan.engine.lmdb.usage import exposed_files_of  # noqa: PLC0415

    return exposed_files_of(parsed)


def _lmdb_url(url: str) -> EngineUrl | None:
    parsed = EngineUrl.parse(url)
    return parsed if parsed.scheme == "lmdb" and "database" not in parsed.options else None
