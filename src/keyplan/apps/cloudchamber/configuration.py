"""The settings in `cloudchamber.yaml`, with the names, types and bounds of the original, and overrides from the environment.

Keys stand in any case, an unknown one is an error, and truths may be 0 and 1, as the original reads them. Where its defaults do
not pass its own checks, or name a place of Windows, ours do. Sections of daemons that keyplan has no part of are read and
checked, so that one file serves both.
"""

from collections.abc import Mapping
from dataclasses import dataclass, make_dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from keyplan.apps.cloudchamber.yaml_block import Block, FileReader
from keyplan.apps.cloudchamber.yaml_file import load_yaml_file
from keyplan.errors import InvalidInputError
from keyplan.settings import (
    DeclaredSetting,
    FoundText,
    Setting,
    Source,
    declared_settings,
    of_environment,
    read_settings,
)

__all__ = [
    "CONFIGURATION_FILE",
    "DOCUMENTED_PASSWORD",
    "Configuration",
    "OtherSettings",
    "StoreSettings",
    "SupportSettings",
    "WebServerSettings",
    "read_configuration",
]

CONFIGURATION_FILE: Final = "cloudchamber.yaml"

Value = str | int | bool
_PORT_MAX: Final = 65_535
_REDACTED: Final = "********"

DOCUMENTED_PASSWORD: Final = "SystemPassword"  # noqa: S105  # Why: the original's.
"""The system account's password where none is configured: everybody can read it."""


def _key(name: str, sentence: str = "", **more: Any) -> Setting:
    """A key by its dotted name, as the original spells it. store.Test.PreCleanStore is KEYPLAN_STORE_PRE_CLEAN_STORE."""
    parts = [part for part in name.split(".") if part != "Test"]
    variable = "_".join(["KEYPLAN", *map(_in_capitals, parts)])
    return Setting(sentence, name=name, variable=variable, **more)


def _in_capitals(name: str) -> str:
    spaced = "".join(
        f"_{letter}" if letter.isupper() and i and not name[i - 1].isupper() else letter
        for i, letter in enumerate(name)
    )
    return spaced.upper()


# ---- the keys ----------------------------------------------------------------------------------------------------------

_TEST_INSTANCE_VARIABLE: Final = "KEYPLAN_STORE_TEST_INSTANCE"
_ENDPOINTS_VARIABLE: Final = "KEYPLAN_STORE_ENDPOINTS"


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """Where the store is and which name space is used. `test_instance` "" means: as the document chooses it."""

    endpoints: str = ""
    connect_timeout_seconds: Annotated[
        int, _key("store.connectTimeout", "seconds in which a connection is made", least=1)
    ] = 5
    request_timeout_seconds: Annotated[int, _key("store.requestTimeout", "seconds that a call may take", least=1)] = 5
    use_test_namespace: Annotated[
        bool, _key("store.Test.UseTestNamespace", "a test name space is served in place of production's")
    ] = False
    use_unique_instance: Annotated[bool, _key("store.Test.UseUniqueInstance", "that name space is one of its own")] = (
        False
    )
    pre_clean_store: Annotated[bool, _key("store.Test.PreCleanStore", "that name space is emptied at the start")] = (
        False
    )
    test_instance: Annotated[
        str,
        Setting("the name of that name space", variable=_TEST_INSTANCE_VARIABLE, default="as the document chooses it"),
    ] = ""

    @property
    def url(self) -> str:
        """The store's URL: the original knows etcd alone. `requestTimeout` bounds every call, transactions too (3.5, 2)."""
        return f"etcd://{self.endpoints}?timeout={self.request_timeout_seconds}"

    @property
    def ignored_options(self) -> tuple[str, ...]:
        """The options that are set and mean nothing, as long as UseTestNamespace is not (D15)."""
        if self.use_test_namespace:
            return ()
        options = {
            "UseUniqueInstance": self.use_unique_instance,
            "PreCleanStore": self.pre_clean_store,
            _TEST_INSTANCE_VARIABLE: self.test_instance != "",
        }
        return tuple(name for name, is_set in options.items() if is_set)


@dataclass(frozen=True, slots=True, kw_only=True)
class WebServerSettings:
    """The account that exists from the start, the bounds of sessions, and where the web page is."""

    system_account: Annotated[
        str, _key("webServer.systemAccount", "the account that exists from the start", least=1)
    ] = "Admin"
    system_account_password: Annotated[
        str, _key("webServer.systemAccountPassword", "its password", least=1, is_secret=True)
    ] = DOCUMENTED_PASSWORD
    session_inactivity_seconds: Annotated[
        int, _key("webServer.sessionInactivity", "seconds after which an idle session ends", least=1)
    ] = 3600
    active_sessions_max: Annotated[
        int, _key("webServer.activeSessionLimit", "how many sessions there are at once", least=1)
    ] = 100

    root_file_path: Annotated[
        str, _key("webServer.rootFilePath", "the folder of the web page, from that of the settings", least=1)
    ] = "."

    def __repr__(self) -> str:
        return f"WebServerSettings(system_account={self.system_account!r}, ...)"


@dataclass(frozen=True, slots=True, kw_only=True)
class SupportSettings:
    """How simulated time passes at the start, and how many traces are kept."""

    stepper_policy: Annotated[
        Literal["manual", "automatic"], _key("simSupport.StepperPolicy", "how simulated time passes at the start")
    ] = "manual"
    traces_kept_max: Annotated[int, _key("simSupport.TraceRetentionLimit", "how many traces are kept", least=100)] = 100

    @property
    def is_stepped_automatically(self) -> bool:
        """True where time passes by itself."""
        return self.stepper_policy == "automatic"


def _other(name: str, default: str | int, **more: Any) -> tuple[str, Any, Any]:
    """A key as a field of OtherSettings, which is called as its variable is."""
    setting = _key(name, least=1 if isinstance(default, str) else None, **more)
    return setting.variable.removeprefix("KEYPLAN_").lower(), Annotated[type(default), setting], default


def _endpoint(section: str, port: int) -> list[tuple[str, Any, Any]]:
    return [_other(f"{section}.hostname", "localhost"), _other(f"{section}.port", port, most=_PORT_MAX)]


def _delay(name: str, ticks_low: int, ticks_high: int) -> list[tuple[str, Any, Any]]:
    section = f"delays.inventory.{name}"
    return [_other(f"{section}.low", ticks_low), _other(f"{section}.high", ticks_high)]


OtherSettings: Any = make_dataclass(
    "OtherSettings",
    [
        _other("store.traceLevel", 1),
        *_endpoint("store.etcdService", 2379),
        *_endpoint("webServer.fe", 8080),
        *_endpoint("webServer.be", 8084),
        _other("webServer.TraceFile", "stdout"),
        *_endpoint("controller.EP", 8081),
        _other("controller.TraceFile", "stdout"),
        *_endpoint("inventory.EP", 8082),
        _other("inventory.InventoryDefinition", "."),
        _other("inventory.TraceFile", "stdout"),
        *_endpoint("simSupport.EP", 8083),
        _other("simSupport.TraceFile", "stdout"),
        *_delay("setPower", 1, 1),
        *_delay("setConnection", 1, 1),
        *_delay("booting", 5, 8),
    ],
    frozen=True,
)
"""The keys that are read and checked so that one file serves both programs; a few are put together to what ours needs."""

_SECTIONS: Final = (StoreSettings, WebServerSettings, SupportSettings, OtherSettings)
_KEYS: Final = [declared for kind in _SECTIONS for declared in declared_settings(kind) if "." in declared.name]


# ---- reading -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Configuration:
    """Everything in the file, by section; `values` has each key by its dotted name."""

    source: str
    store: StoreSettings
    web_server: WebServerSettings
    support: SupportSettings
    inventory_definition: Path
    root_folder: Path
    values: Mapping[str, Value]

    def shown(self) -> dict[str, Value]:
        """Return every setting by its dotted name, for people: secrets are not shown."""
        secrets = {declared.name for declared in _KEYS if declared.setting.is_secret}
        return {name: _REDACTED if name in secrets else value for name, value in self.values.items()}


def read_configuration(place: Path, environment: Mapping[str, str]) -> Configuration:
    """Read `cloudchamber.yaml` in the folder `place` (or that file), then what `environment` overrides.

    Without a file the defaults stand, as long as `place` is a folder. Each key has a variable: `store.Test.PreCleanStore` is
    KEYPLAN_STORE_PRE_CLEAN_STORE; KEYPLAN_STORE_ENDPOINTS takes "host:port,host:port", KEYPLAN_STORE_TEST_INSTANCE a name.

    Raises InvalidInputError with file and line, or the variable: an unknown key, a value of the wrong kind or out of bounds,
    and PreCleanStore together with UseUniqueInstance, which the document forbids.
    """
    file = place / CONFIGURATION_FILE if place.is_dir() else place
    source = str(file)
    in_file = _of_file(file) if file.exists() or not place.is_dir() else lambda _: None
    variables = of_environment(environment)
    for kind in _SECTIONS:
        # Why: what is wrong in the file is told, also where a variable overrides it.
        read_settings(kind, in_file)
    other = read_settings(OtherSettings, variables, in_file)
    service = f"{other.store_etcd_service_hostname}:{other.store_etcd_service_port}"
    endpoints = environment.get(_ENDPOINTS_VARIABLE) or service
    store = read_settings(StoreSettings, variables, in_file, endpoints=endpoints)
    web_server = read_settings(WebServerSettings, variables, in_file)
    support = read_settings(SupportSettings, variables, in_file)
    sections = (store, web_server, support, other)
    values = {
        declared.name: getattr(section, declared.field)
        for section in sections
        for declared in declared_settings(type(section))
        if "." in declared.name
    }
    _check_together(source, store, values)
    folder = Path(source).parent
    definition, root = folder / other.inventory_inventory_definition, folder / web_server.root_file_path
    return Configuration(source, store, web_server, support, definition, root, values)


def _check_together(source: str, store: StoreSettings, values: Mapping[str, Any]) -> None:
    for low in (name for name in values if name.endswith(".low")):
        high = f"{low.removesuffix('low')}high"
        if values[high] < values[low]:
            raise InvalidInputError(source=source, problem=f"{high} is {values[high]}, less than {low}, {values[low]}")
    if store.use_test_namespace and store.use_unique_instance and store.pre_clean_store:
        # The original's words; it ends its process with them.
        problem = "invalid store configuration - both UseUniqueInstance and PreCleanStore are enabled"
        raise InvalidInputError(source=source, problem=problem)


def _of_file(file: Path) -> Source:
    """Return the source of a file's keys. Raises InvalidInputError for one that is not known."""
    blocks = _blocks_of(file)

    def find(declared: DeclaredSetting) -> FoundText | None:
        section, _, name = declared.name.rpartition(".")
        block = blocks.get(section)
        if block is None or not block.has(name):
            return None
        return FoundText(_text_of(block, declared, name), lambda problem: block.refuse(f"{name} {problem}"))

    return find


def _text_of(block: Block, declared: DeclaredSetting, name: str) -> str:
    """Why by the type: what YAML takes for a number or a truth is narrower than what a variable may hold."""
    if declared.type is bool:
        return str(block.truth(name))
    return str(block.number(name)) if declared.type is int else block.text(name)


def _blocks_of(file: Path) -> dict[str, Block | None]:
    node = load_yaml_file(file, "settings")
    if node is None:
        return {}
    blocks: dict[str, Block | None] = {"": FileReader(str(file)).block(node, "", "the file")}
    for section, keys in _keys_by_section().items():
        if section:
            outer, _, name = section.rpartition(".")
            parent = blocks[outer]
            blocks[section] = None if parent is None else parent.part(name, tuple(keys))
        elif (top := blocks[""]) is not None:
            top.check_known(*keys)
    return blocks


def _keys_by_section() -> dict[str, dict[str, None]]:
    """The keys of each section in the order of the table, sections before those inside them."""
    known: dict[str, dict[str, None]] = {"": {}}
    for declared in _KEYS:
        parts = declared.name.split(".")
        for depth, part in enumerate(parts):
            known.setdefault(".".join(parts[:depth]), {})[part] = None
    return known
