"""The files of TLS, checked before gRPC has them: of those that it cannot use it only says that the port cannot be bound."""

import ssl
from pathlib import Path
from typing import NamedTuple

from keyplan.errors import InvalidInputError

__all__ = ["RpcTls", "rpc_tls"]


class RpcTls(NamedTuple):
    """What gRPC is given for TLS, in PEM: a key, the chain of its certificate, and who signs the certificates of clients.

    With an authority every client has to show a certificate: gRPC for Python cannot only ask for one.
    """

    key: bytes
    chain: bytes
    authority: bytes | None = None


def rpc_tls(certificate: Path, key: Path, authority: Path | None, *, source: str) -> RpcTls:
    """Read them. Raises InvalidInputError, of the option `source` or of `--tls-client-ca`, for what cannot be used."""
    chain_pem, key_pem = (_read(path, source) for path in (certificate, key))
    try:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.set_ciphers("ALL:@SECLEVEL=0")  # Why: how strong a key must be, gRPC decides.
        context.load_cert_chain(certificate, key, password=_no_password)
    except (ssl.SSLError, ValueError) as error:
        problem = f"{certificate} and {key} are no certificate with its key, in PEM and without a password"
        raise InvalidInputError(source=source, problem=problem) from error
    if authority is None:
        return RpcTls(key_pem, chain_pem)
    authority_pem = _read(authority, "--tls-client-ca")
    try:
        ssl.create_default_context(cadata=authority_pem.decode("ascii", "replace"))
    except (ssl.SSLError, ValueError) as error:
        problem = f"{authority} has no certificates in PEM: give the authorities of clients"
        raise InvalidInputError(source="--tls-client-ca", problem=problem) from error
    return RpcTls(key_pem, chain_pem, authority_pem)


def _no_password() -> str:
    """Why: without one, a key that has a password asks for it on the terminal."""
    return ""


def _read(path: Path, source: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InvalidInputError(source=source, problem=f"{error.filename}: {error.strerror}") from error
