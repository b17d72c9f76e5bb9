"""The service's settings: the original's environment variables, and flags of the same names, which go first.

Pure: the environment is given. As in the original, a whole number that is none falls back to its default.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final
from urllib.parse import urlencode

from keyplan.apps.runm.layout import DEFAULT_REGISTRY_PREFIX, root_of
from keyplan.errors import InvalidInputError

__all__ = [
    "CERTIFICATE_DEFAULT",
    "KEY_DEFAULT",
    "REGISTRY_CERTIFICATE_DEFAULT",
    "REGISTRY_KEY_DEFAULT",
    "ROOT_CONSTANT",
    "VARIABLES",
    "RegistrySettings",
    "ServeSettings",
    "prefix_of_root",
]

ROOT_CONSTANT: Final = "runm/metadata/"

CERTIFICATE_DEFAULT: Final = "/etc/runmachine/metadata/server.pem"
KEY_DEFAULT: Final = "/etc/runmachine/metadata/server.key"
REGISTRY_CERTIFICATE_DEFAULT: Final = "/etc/gsr/server.pem"
REGISTRY_KEY_DEFAULT: Final = "/etc/gsr/server.key"

_PORT_DEFAULT: Final = 10002
_API_PORT_DEFAULT: Final = 10000
_ENDPOINTS_DEFAULT: Final = "http://127.0.0.1:2379"
_LEASE_SECONDS_DEFAULT: Final = 60
_CONNECT_SECONDS_DEFAULT: Final = 300

VARIABLES: Final[Mapping[str, str]] = {
    "endpoints": "RUNM_METADATA_STORAGE_ETCD_ENDPOINTS",
    "key_prefix": "RUNM_METADATA_STORAGE_ETCD_KEY_PREFIX",
    "connect_timeout_seconds": "RUNM_METADATA_STORAGE_ETCD_CONNECT_TIMEOUT_SECONDS",
    "request_timeout_seconds": "RUNM_METADATA_STORAGE_ETCD_REQUEST_TIMEOUT_SECONDS",
    "dial_timeout_seconds": "RUNM_METADATA_STORAGE_ETCD_DIAL_TIMEOUT_SECONDS",
    "bind_address": "RUNM_METADATA_BIND_HOST",
    "bind_port": "RUNM_METADATA_BIND_PORT",
    "service_name": "RUNM_METADATA_SERVICE_NAME",
    "use_tls": "RUNM_METADATA_USE_TLS",
    "cert_path": "RUNM_METADATA_CERT_PATH",
    "key_path": "RUNM_METADATA_KEY_PATH",
    "bootstrap_token": "RUNM_METADATA_BOOTSTRAP_TOKEN",
    "log_level": "RUNM_LOG_LEVEL",
    "api_bind_address": "RUNM_API_BIND_HOST",
    "api_bind_port": "RUNM_API_BIND_PORT",
    "registry_prefix": "GSR_KEY_PREFIX",
    "registry_lease_seconds": "GSR_LEASE_SECONDS",
    "registry_endpoints": "GSR_ETCD_ENDPOINTS",
    "registry_connect_timeout_seconds": "GSR_ETCD_CONNECT_TIMEOUT_SECONDS",
    "registry_request_timeout_seconds": "GSR_ETCD_REQUEST_TIMEOUT_SECONDS",
    "registry_dial_timeout_seconds": "GSR_ETCD_DIAL_TIMEOUT_SECONDS",
    "registry_use_tls": "GSR_USE_TLS",
    "registry_cert_path": "GSR_TLS_CERT_PATH",
    "registry_key_path": "GSR_TLS_KEY_PATH",
    "registry_log_level": "GSR_LOG_LEVEL",
    "registry_log_microseconds": "GSR_LOG_MICROSECONDS",
    "registry_log_file_trace": "GSR_LOG_FILE_TRACE",
}
"""The variable of each setting. A flag of the setting's name, where there is one, comes before it."""

_TRUE: Final = frozenset({"1", "t", "true", "yes", "on"})


@dataclass(frozen=True, slots=True)
class RegistrySettings:
    """How the service registers itself, as the original's registry library reads it from the environment.

    `store` is the URL of the registry's own store; None: it is the one that holds the metadata. The registry's part of the log
    has a level of its own, times with or without microseconds, and names of files and lines or none.
    """

    prefix: str
    lease_seconds: int
    connect_timeout_seconds: int
    store: str | None
    log_level: int
    has_microseconds: bool
    has_file_trace: bool

    @classmethod
    def of(cls, given: Mapping[str, str]) -> "RegistrySettings":
        """Put together the settings from texts by the names of VARIABLES."""
        return cls(
            prefix=given.get("registry_prefix", DEFAULT_REGISTRY_PREFIX),
            lease_seconds=max(5, _whole(given, "registry_lease_seconds", _LEASE_SECONDS_DEFAULT)),
            connect_timeout_seconds=_whole(given, "registry_connect_timeout_seconds", _CONNECT_SECONDS_DEFAULT),
            store=_registry_url(given),
            log_level=_whole(given, "registry_log_level", 0),
            has_microseconds=_is_true(given, "registry_log_microseconds"),
            has_file_trace=_is_true(given, "registry_log_file_trace"),
        )


@dataclass(frozen=True, slots=True)
class ServeSettings:
    """What flags and environment say together. `prefix` is the root's parameter, `addresses` are HOST:PORT."""

    store: str
    prefix: str
    connect_timeout_seconds: int
    addresses: tuple[str, ...]
    certificate: tuple[Path, Path] | None
    service_name: str
    bootstrap_token: str
    log_level: int
    registry: RegistrySettings

    @classmethod
    def of(
        cls, flags: Mapping[str, str | None], environment: Mapping[str, str], *, store: str | None = None
    ) -> "ServeSettings":
        """Put together the settings.

        `flags` are texts by name, None or absent where not given; a variable counts even if empty. Besides those of VARIABLES:
        `listen` and `api_listen`, whole addresses; `root`, the whole root. Raises InvalidInputError.
        """
        given = {name: environment[variable] for name, variable in VARIABLES.items() if variable in environment}
        given.update((name, text) for name, text in flags.items() if text is not None)
        root = given.get("root")
        use_tls = _is_true(given, "use_tls")
        paths = Path(given.get("cert_path") or CERTIFICATE_DEFAULT), Path(given.get("key_path") or KEY_DEFAULT)
        return cls(
            store=store
            or _etcd_url(given.get("endpoints"), _whole(given, "request_timeout_seconds", 1), use_tls=use_tls),
            prefix=root_of(given.get("key_prefix", "/")) if root is None else prefix_of_root(root),
            connect_timeout_seconds=_whole(given, "connect_timeout_seconds", _CONNECT_SECONDS_DEFAULT),
            addresses=_addresses(given),
            certificate=paths if use_tls else None,
            service_name=given.get("service_name") or "runmachine-metadata",
            bootstrap_token=given.get("bootstrap_token", ""),
            log_level=_whole(given, "log_level", 0),
            registry=RegistrySettings.of(given),
        )


def prefix_of_root(root: str) -> str:
    """Return the layout's parameter for a root that is given whole. Raises InvalidInputError."""
    if not root.endswith(ROOT_CONSTANT):
        raise InvalidInputError(source="--root", problem=f"a root ends in {ROOT_CONSTANT}")
    return root.removesuffix(ROOT_CONSTANT)


def _etcd_url(
    endpoints: str | None, seconds: int, *, use_tls: bool, files: Mapping[str, str] = MappingProxyType({})
) -> str:
    """The original's list of endpoints as a store's URL: schemes are dropped, ports added by the engine."""
    named = (endpoints or _ENDPOINTS_DEFAULT).split(",")
    hosts = [re.sub(r"^https?://", "", host.strip()).rstrip("/") for host in named if host.strip()]
    options = {"timeout": str(max(1, seconds))} | ({"tls": "true", **files} if use_tls else {})
    return f"etcd://{','.join(hosts)}?{urlencode(options, safe='/')}"


def _registry_url(given: Mapping[str, str]) -> str | None:
    """With TLS the original always shows a certificate; here an empty path says that there is none."""
    endpoints = given.get("registry_endpoints")
    if not endpoints:
        return None
    files = {
        "cert": given.get("registry_cert_path", REGISTRY_CERTIFICATE_DEFAULT),
        "key": given.get("registry_key_path", REGISTRY_KEY_DEFAULT),
    }
    return _etcd_url(
        endpoints,
        _whole(given, "registry_request_timeout_seconds", 1),
        use_tls=_is_true(given, "registry_use_tls"),
        files=files if all(files.values()) else {},
    )


def _addresses(given: Mapping[str, str]) -> tuple[str, ...]:
    """Where to listen: what the flags name, else the metadata service's address and the front end's."""
    listen = given.get("listen")
    api = given.get("api_listen")
    if listen is not None:
        return (listen,) if api is None else (listen, api)
    host = given.get("bind_address") or "127.0.0.1"
    first = _address(host, _whole(given, "bind_port", _PORT_DEFAULT))
    api_host = given.get("api_bind_address") or host
    return first, api or _address(api_host, _whole(given, "api_bind_port", _API_PORT_DEFAULT))


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host and not host.startswith("[") else f"{host}:{port}"


def _whole(given: Mapping[str, str], name: str, default: int) -> int:
    text = given.get(name, "").strip()
    return int(text) if text.isascii() and text.isdigit() else default


def _is_true(given: Mapping[str, str], name: str) -> bool:
    return given.get(name, "").strip().lower() in _TRUE
