"""The settings in `cloudchamber.yaml`, with the names, types and bounds of the original, and overrides from the environment.

Keys stand in any case, an unknown one is an error, and truths may be 0 and 1, as the original reads them. Where its defaults do
not pass its own checks, or name a place of Windows, ours do. Sections of daemons that keyplan has no part of are read and
checked, so that one file serves both.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from keyplan.apps.cloudchamber.yaml_block import Block, FileReader
from keyplan.apps.cloudchamber.yaml_file import load_yaml_file
from keyplan.errors import InvalidInputError

__all__ = [
    "CONFIGURATION_FILE",
    "Configuration",
    "StoreSettings",
    "SupportSettings",
    "WebServerSettings",
    "read_configuration",
]

CONFIGURATION_FILE: Final = "cloudchamber.yaml"

Value = str | int | bool
_WHOLE_MAX: Final = 2**31 - 1
_PORT_MAX: Final = 65_535
_TRUTHS: Final = {
    "true": True,
    "1": True,
    "yes": True,
    "on": True,
    "false": False,
    "0": False,
    "no": False,
    "off": False,
}
_REDACTED: Final = "********"


class _Setting(NamedTuple):
    """One key: its dotted name as the original spells it, its default, and what it may be."""

    name: str
    default: Value
    least: int = 0
    most: int = _WHOLE_MAX
    words: tuple[str, ...] = ()
    is_secret: bool = False

    @property
    def variable(self) -> str:
        """The environment variable that overrides it: store.Test.PreCleanStore is KEYPLAN_STORE_PRE_CLEAN_STORE."""
        parts = [part for part in self.name.split(".") if part != "Test"]
        return "_".join(["KEYPLAN", *map(_in_capitals, parts)])


def _in_capitals(name: str) -> str:
    spaced = "".join(
        f"_{letter}" if letter.isupper() and i and not name[i - 1].isupper() else letter
        for i, letter in enumerate(name)
    )
    return spaced.upper()


def _endpoint(section: str, port: int) -> list[_Setting]:
    return [_Setting(f"{section}.hostname", "localhost"), _Setting(f"{section}.port", port, most=_PORT_MAX)]


def _delay(name: str, ticks_low: int, ticks_high: int) -> list[_Setting]:
    section = f"delays.inventory.{name}"
    return [_Setting(f"{section}.low", ticks_low), _Setting(f"{section}.high", ticks_high)]


_SETTINGS: Final = (
    _Setting("store.connectTimeout", 5, least=1),
    _Setting("store.requestTimeout", 5, least=1),
    _Setting("store.traceLevel", 1),
    *_endpoint("store.etcdService", 2379),
    _Setting("store.Test.UseTestNamespace", default=False),
    _Setting("store.Test.UseUniqueInstance", default=False),
    _Setting("store.Test.PreCleanStore", default=False),
    _Setting("webServer.systemAccount", "Admin"),
    _Setting("webServer.systemAccountPassword", "SystemPassword", is_secret=True),
    _Setting("webServer.sessionInactivity", 3600, least=1),
    _Setting("webServer.activeSessionLimit", 100, least=1),
    _Setting("webServer.rootFilePath", "."),
    *_endpoint("webServer.fe", 8080),
    *_endpoint("webServer.be", 8084),
    _Setting("webServer.TraceFile", "stdout"),
    *_endpoint("controller.EP", 8081),
    _Setting("controller.TraceFile", "stdout"),
    *_endpoint("inventory.EP", 8082),
    _Setting("inventory.InventoryDefinition", "."),
    _Setting("inventory.TraceFile", "stdout"),
    *_endpoint("simSupport.EP", 8083),
    _Setting("simSupport.StepperPolicy", "manual", words=("manual", "automatic")),
    _Setting("simSupport.TraceRetentionLimit", 100, least=100),
    _Setting("simSupport.TraceFile", "stdout"),
    *_delay("setPower", 1, 1),
    *_delay("setConnection", 1, 1),
    *_delay("booting", 5, 8),
)
_TEST_INSTANCE_VARIABLE: Final = "KEYPLAN_STORE_TEST_INSTANCE"
_ENDPOINTS_VARIABLE: Final = "KEYPLAN_STORE_ENDPOINTS"


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """Where the store is and which name space is used. `test_instance` "" means: as the document chooses it."""

    endpoints: str
    connect_timeout_seconds: int
    request_timeout_seconds: int
    use_test_namespace: bool
    use_unique_instance: bool
    pre_clean_store: bool
    test_instance: str = ""

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


@dataclass(frozen=True, slots=True)
class WebServerSettings:
    """The account that exists from the start, and the bounds of sessions."""

    system_account: str
    system_account_password: str
    session_inactivity_seconds: int
    active_sessions_max: int

    def __repr__(self) -> str:
        return f"WebServerSettings(system_account={self.system_account!r}, ...)"


@dataclass(frozen=True, slots=True)
class SupportSettings:
    """How simulated time passes at the start, and how many traces are kept."""

    is_stepped_automatically: bool
    traces_kept_max: int


@dataclass(frozen=True, slots=True)
class Configuration:
    """Everything in the file, by section; `values` has each key by its dotted name."""

    source: str
    store: StoreSettings
    web_server: WebServerSettings
    support: SupportSettings
    inventory_definition: Path
    values: Mapping[str, Value]

    def shown(self) -> dict[str, Value]:
        """Return every setting by its dotted name, for people: secrets are not shown."""
        secrets = {setting.name for setting in _SETTINGS if setting.is_secret}
        return {name: _REDACTED if name in secrets else value for name, value in self.values.items()}


def read_configuration(place: Path, environment: Mapping[str, str]) -> Configuration:
    """Read `cloudchamber.yaml` in the folder `place` (or that file), then what `environment` overrides.

    Without a file the defaults stand, as long as `place` is a folder. Each key has a variable: `store.Test.PreCleanStore` is
    KEYPLAN_STORE_PRE_CLEAN_STORE; KEYPLAN_STORE_ENDPOINTS takes "host:port,host:port", KEYPLAN_STORE_TEST_INSTANCE a name.

    Raises InvalidInputError with file and line, or the variable: an unknown key, a value of the wrong kind or out of bounds,
    and PreCleanStore together with UseUniqueInstance, which the document forbids.
    """
    file = place / CONFIGURATION_FILE if place.is_dir() else place
    if file.exists() or not place.is_dir():
        values = _values_of_file(file)
    else:
        values = {setting.name: setting.default for setting in _SETTINGS}
    for setting in _SETTINGS:
        text = environment.get(setting.variable)
        if text is not None:
            values[setting.name] = _value_of_text(setting, text)
    return _configuration(str(file), values, environment)


def _configuration(source: str, values: Mapping[str, Value], environment: Mapping[str, str]) -> Configuration:
    for low in (name for name in values if name.endswith(".low")):
        high = f"{low.removesuffix('low')}high"
        if _whole(values, high) < _whole(values, low):
            raise InvalidInputError(source=source, problem=f"{high} is {values[high]}, less than {low}, {values[low]}")
    service = f"{values['store.etcdService.hostname']}:{values['store.etcdService.port']}"
    store = StoreSettings(
        endpoints=environment.get(_ENDPOINTS_VARIABLE) or service,
        connect_timeout_seconds=_whole(values, "store.connectTimeout"),
        request_timeout_seconds=_whole(values, "store.requestTimeout"),
        use_test_namespace=bool(values["store.Test.UseTestNamespace"]),
        use_unique_instance=bool(values["store.Test.UseUniqueInstance"]),
        pre_clean_store=bool(values["store.Test.PreCleanStore"]),
        test_instance=environment.get(_TEST_INSTANCE_VARIABLE, ""),
    )
    if store.use_test_namespace and store.use_unique_instance and store.pre_clean_store:
        # The original's words; it ends its process with them.
        problem = "invalid store configuration - both UseUniqueInstance and PreCleanStore are enabled"
        raise InvalidInputError(source=source, problem=problem)
    web_server = WebServerSettings(
        system_account=str(values["webServer.systemAccount"]),
        system_account_password=str(values["webServer.systemAccountPassword"]),
        session_inactivity_seconds=_whole(values, "webServer.sessionInactivity"),
        active_sessions_max=_whole(values, "webServer.activeSessionLimit"),
    )
    support = SupportSettings(
        is_stepped_automatically=values["simSupport.StepperPolicy"] == "automatic",
        traces_kept_max=_whole(values, "simSupport.TraceRetentionLimit"),
    )
    definition = Path(source).parent / str(values["inventory.InventoryDefinition"])
    return Configuration(source, store, web_server, support, definition, values)


def _values_of_file(file: Path) -> dict[str, Value]:
    node = load_yaml_file(file, "settings")
    values: dict[str, Value] = {setting.name: setting.default for setting in _SETTINGS}
    if node is None:
        return values
    reader = FileReader(str(file))
    blocks: dict[str, Block | None] = {"": reader.block(node, "", "the file")}
    known = _keys_by_section()
    for section, keys in known.items():
        if section:
            outer, _, name = section.rpartition(".")
            parent = blocks[outer]
            blocks[section] = None if parent is None else parent.part(name, tuple(keys))
        elif (top := blocks[""]) is not None:
            top.check_known(*keys)
    for setting in _SETTINGS:
        section, _, name = setting.name.rpartition(".")
        block = blocks[section]
        if block is not None and block.has(name):
            values[setting.name] = _value_of_block(setting, block, name)
    return values


def _keys_by_section() -> dict[str, dict[str, None]]:
    """The keys of each section in the order of the table, sections before those inside them."""
    known: dict[str, dict[str, None]] = {"": {}}
    for setting in _SETTINGS:
        parts = setting.name.split(".")
        for depth, part in enumerate(parts):
            known.setdefault(".".join(parts[:depth]), {})[part] = None
    return known


def _value_of_block(setting: _Setting, block: Block, name: str) -> Value:
    if isinstance(setting.default, bool):
        return block.truth(name)
    if isinstance(setting.default, int):
        number = block.number(name)
        if not setting.least <= number <= setting.most:
            block.refuse(f"{name} is {number}; it must be from {setting.least} to {setting.most}")
        return number
    text = block.text(name)
    problem = _problem_of_text(setting, text)
    if problem:
        block.refuse(f"{name} {problem}")
    return text.lower() if setting.words else text


def _value_of_text(setting: _Setting, text: str) -> Value:
    if isinstance(setting.default, bool):
        truth = _TRUTHS.get(text.strip().lower())
        if truth is None:
            raise InvalidInputError(source=setting.variable, problem="true or false is needed")
        return truth
    if isinstance(setting.default, int):
        if not (text.isdecimal() and len(text) <= 10 and setting.least <= int(text) <= setting.most):
            problem = f"a whole number from {setting.least} to {setting.most} is needed"
            raise InvalidInputError(source=setting.variable, problem=problem)
        return int(text)
    problem = _problem_of_text(setting, text)
    if problem:
        raise InvalidInputError(source=setting.variable, problem=f"it {problem}")
    return text.lower() if setting.words else text


def _problem_of_text(setting: _Setting, text: str) -> str:
    if not text:
        return "must contain at least 1 character"
    if setting.words and text.lower() not in setting.words:
        return f"must be one of {', '.join(setting.words)}"
    return ""


def _whole(values: Mapping[str, Value], name: str) -> int:
    return int(values[name])
