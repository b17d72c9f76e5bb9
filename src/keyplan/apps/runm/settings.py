"""The service's settings: the original's environment variables, and flags of the same names, which go first.

Pure: the environment is given. As in the original, a whole number that is none falls back to its default, and a truth that is
none is false.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Final
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from keyplan.apps.runm.layout import DEFAULT_REGISTRY_PREFIX, root_of
from keyplan.errors import InvalidInputError
from keyplan.settings import Setting, Source, TextForm, of_environment, of_options, read_settings

__all__ = ["ROOT_CONSTANT", "RegistrySettings", "RootSettings", "ServeSettings"]

ROOT_CONSTANT: Final = "runm/metadata/"

_ENDPOINTS_DEFAULT: Final = "http://127.0.0.1:2379"
_LEASE_SECONDS_MIN: Final = 5
_TIMEOUT_SECONDS_DEFAULT: Final = 1
_TRUE: Final = frozenset({"1", "t", "true", "yes", "on"})
_TRUTH: Final = TextForm(lambda text: text.strip().lower() in _TRUE, "`true` or `false`")

_STORAGE: Final = "RUNM_METADATA_STORAGE_ETCD"
_STORAGE_FLAG: Final = "--storage-etcd"


def _lease_seconds(text: str) -> int:
    return max(_LEASE_SECONDS_MIN, int(text))


@dataclass(frozen=True, slots=True, kw_only=True)
class RootSettings:
    """Where in a store the metadata is."""

    key_prefix: Annotated[
        str,
        Setting(
            "the key prefix; / is the root runm/metadata/",
            variable=f"{_STORAGE}_KEY_PREFIX",
            option=f"{_STORAGE_FLAG}-key-prefix",
        ),
    ] = "/"
    root: Annotated[
        str | None,
        Setting("the whole root, as in /runm/metadata/, taken as it is", option="--root", default="as the prefix says"),
    ] = None

    @classmethod
    def of_flags(cls, flags: Source, environment: Mapping[str, str]) -> "RootSettings":
        """Read flags, then variables."""
        return read_settings(cls, flags, of_environment(environment), is_lenient=True)

    @property
    def prefix(self) -> str:
        """The layout's parameter. Raises InvalidInputError for a root that cannot be."""
        if self.root is None:
            return root_of(self.key_prefix)
        if not self.root.endswith(ROOT_CONSTANT):
            raise InvalidInputError(source="--root", problem=f"a root ends in {ROOT_CONSTANT}")
        return self.root.removesuffix(ROOT_CONSTANT)


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistrySettings:
    """How the service registers itself, as the original's registry library reads it from the environment."""

    prefix: Annotated[str, Setting("what its keys begin with", variable="GSR_KEY_PREFIX")] = DEFAULT_REGISTRY_PREFIX
    lease_seconds: Annotated[
        int,
        Setting(
            "how long an entry outlives its service",
            variable="GSR_LEASE_SECONDS",
            form=TextForm(_lease_seconds, f"at least {_LEASE_SECONDS_MIN}"),
        ),
    ] = 60
    endpoints: Annotated[
        str, Setting("its own etcd", variable="GSR_ETCD_ENDPOINTS", default="the store that is served")
    ] = ""
    connect_timeout_seconds: Annotated[
        int,
        Setting(
            "how long it is tried for at the start while it cannot be reached; calls are answered meanwhile",
            variable="GSR_ETCD_CONNECT_TIMEOUT_SECONDS",
        ),
    ] = 300
    request_timeout_seconds: Annotated[
        int, Setting("how long a request may take", variable="GSR_ETCD_REQUEST_TIMEOUT_SECONDS")
    ] = 1
    dial_timeout_seconds: Annotated[
        str, Setting("taken, and a part of the request's time", variable="GSR_ETCD_DIAL_TIMEOUT_SECONDS")
    ] = ""
    use_tls: Annotated[bool, Setting("its own etcd is spoken to by TLS", variable="GSR_USE_TLS", form=_TRUTH)] = False
    cert_path: Annotated[
        str,
        Setting(
            "the certificate that its own etcd is shown; empty: none. `KEYPLAN_ETCD_CA` is the authority that is trusted",
            variable="GSR_TLS_CERT_PATH",
        ),
    ] = "/etc/gsr/server.pem"
    key_path: Annotated[str, Setting("the certificate's key", variable="GSR_TLS_KEY_PATH")] = "/etc/gsr/server.key"
    log_level: Annotated[
        int, Setting("0 what goes wrong, 1 when the service comes and goes, 3 everything", variable="GSR_LOG_LEVEL")
    ] = 0
    has_microseconds: Annotated[
        bool, Setting("times in the log are to the microsecond", variable="GSR_LOG_MICROSECONDS", form=_TRUTH)
    ] = False
    has_file_trace: Annotated[
        bool, Setting("messages name their file and line", variable="GSR_LOG_FILE_TRACE", form=_TRUTH)
    ] = False

    @property
    def store(self) -> str | None:
        """The URL of the registry's own store; None: it is the one that holds the metadata.

        With TLS the original always shows a certificate; here an empty path says that there is none.
        """
        if not self.endpoints:
            return None
        files = {"cert": self.cert_path, "key": self.key_path}
        return _etcd_url(
            self.endpoints,
            self.request_timeout_seconds,
            use_tls=self.use_tls,
            files=files if all(files.values()) else {},
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeSettings(RootSettings):
    """What flags and environment say together."""

    listen: Annotated[
        str | None,
        Setting(
            "where to listen, HOST:PORT, with both services", option="--listen", default="the host and port that follow"
        ),
    ] = None
    api_listen: Annotated[
        str | None,
        Setting(
            "a second address, as the original's runm-api has", option="--api-listen", default="as its variables say"
        ),
    ] = None
    bind_address: Annotated[
        str,
        Setting("the host to listen on", variable="RUNM_METADATA_BIND_HOST", option="--bind-address", least=1),
    ] = "127.0.0.1"
    bind_port: Annotated[
        int, Setting("the port to listen on", variable="RUNM_METADATA_BIND_PORT", option="--bind-port")
    ] = 10002
    api_bind_address: Annotated[
        str, Setting("the second address's host", variable="RUNM_API_BIND_HOST", default="the first one's")
    ] = ""
    api_bind_port: Annotated[int, Setting("the second address's port", variable="RUNM_API_BIND_PORT")] = 10000
    endpoints: Annotated[
        str,
        Setting(
            "the addresses of etcd, without --store",
            variable=f"{_STORAGE}_ENDPOINTS",
            option=f"{_STORAGE_FLAG}-endpoints",
            least=1,
        ),
    ] = _ENDPOINTS_DEFAULT
    connect_timeout_seconds: Annotated[
        int,
        Setting(
            "how long to wait for the store at the start",
            variable=f"{_STORAGE}_CONNECT_TIMEOUT_SECONDS",
            option=f"{_STORAGE_FLAG}-connect-timeout-seconds",
        ),
    ] = 300
    request_timeout_seconds: Annotated[
        int | None,
        Setting(
            "how long a request to etcd may take, also to that of --store",
            variable=f"{_STORAGE}_REQUEST_TIMEOUT_SECONDS",
            option=f"{_STORAGE_FLAG}-request-timeout-seconds",
            default="1; with --store as its URL says",
        ),
    ] = None
    dial_timeout_seconds: Annotated[
        str,
        Setting(
            "taken, and a part of the request's time",
            variable=f"{_STORAGE}_DIAL_TIMEOUT_SECONDS",
            option=f"{_STORAGE_FLAG}-dial-timeout-seconds",
        ),
    ] = ""
    service_name: Annotated[
        str,
        Setting("the name in the registry", variable="RUNM_METADATA_SERVICE_NAME", option="--service-name", least=1),
    ] = "runmachine-metadata"
    use_tls: Annotated[
        bool,
        Setting(
            "serve, and speak to etcd, by TLS",
            variable="RUNM_METADATA_USE_TLS",
            option="--use-tls/--no-use-tls",
            form=_TRUTH,
        ),
    ] = False
    cert_path: Annotated[
        str,
        Setting("the server's certificate, PEM", variable="RUNM_METADATA_CERT_PATH", option="--cert-path", least=1),
    ] = "/etc/runmachine/metadata/server.pem"
    key_path: Annotated[
        str, Setting("the server's key, PEM", variable="RUNM_METADATA_KEY_PATH", option="--key-path", least=1)
    ] = "/etc/runmachine/metadata/server.key"
    bootstrap_token: Annotated[
        str,
        Setting(
            "makes the first partition, once", variable="RUNM_METADATA_BOOTSTRAP_TOKEN", option="--bootstrap-token"
        ),
    ] = field(default="", repr=False)
    log_level: Annotated[
        int,
        Setting("0 warnings, 1 starts and stops, 3 everything", variable="RUNM_LOG_LEVEL", option="--log-level"),
    ] = 0
    store_url: str | None = None
    registry: RegistrySettings = field(default_factory=RegistrySettings)

    @classmethod
    def of(
        cls, flags: Source | Mapping[str, str | None], environment: Mapping[str, str], *, store: str | None = None
    ) -> "ServeSettings":
        """Put together the settings, `store` as `--store` names it.

        `flags` are those that are given, a source or texts by the fields' names. Raises InvalidInputError.
        """
        variables = of_environment(environment)
        given = of_options(flags) if isinstance(flags, Mapping) else flags
        registry = read_settings(RegistrySettings, variables, is_lenient=True)
        settings = read_settings(cls, given, variables, is_lenient=True, store_url=store, registry=registry)
        settings.prefix  # noqa: B018  # Why: a root that cannot be is refused here.
        return settings

    @property
    def store(self) -> str:
        """The URL of the store, which without `--store` is the original's etcd."""
        seconds = self.request_timeout_seconds
        if self.store_url is None:
            return _etcd_url(
                self.endpoints, _TIMEOUT_SECONDS_DEFAULT if seconds is None else seconds, use_tls=self.use_tls
            )
        return self.store_url if seconds is None else _with_timeout(self.store_url, seconds)

    @property
    def certificate(self) -> tuple[Path, Path] | None:
        """The files of the server's certificate and key, or None in clear."""
        return (Path(self.cert_path), Path(self.key_path)) if self.use_tls else None

    @property
    def addresses(self) -> tuple[str, ...]:
        """Where to listen, HOST:PORT: what the flags name, else the metadata service's address and the front end's."""
        if self.listen is not None:
            return (self.listen,) if self.api_listen is None else (self.listen, self.api_listen)
        api_host = self.api_bind_address or self.bind_address
        return (
            _address(self.bind_address, self.bind_port),
            self.api_listen or _address(api_host, self.api_bind_port),
        )


def _etcd_url(endpoints: str, seconds: int, *, use_tls: bool, files: Mapping[str, str] = MappingProxyType({})) -> str:
    """The original's list of endpoints as a store's URL: schemes are dropped, ports added by the engine."""
    hosts = [re.sub(r"^https?://", "", host.strip()).rstrip("/") for host in endpoints.split(",") if host.strip()]
    options = {"timeout": str(max(1, seconds))} | ({"tls": "true", **files} if use_tls else {})
    return f"etcd://{','.join(hosts)}?{urlencode(options, safe='/')}"


def _with_timeout(url: str, seconds: int) -> str:
    """The URL of a store with another time-out for each request; as it is where the engine asks nobody."""
    parts = urlsplit(url)
    if parts.scheme != "etcd":
        return url
    options = dict(parse_qsl(parts.query, keep_blank_values=True)) | {"timeout": str(max(1, seconds))}
    return urlunsplit(parts._replace(query=urlencode(options, safe="/")))


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host and not host.startswith("[") else f"{host}:{port}"
