"""The certificate that the PostgreSQL of every node of a cell shows: read from its files, and again when they are others."""

import ssl
from pathlib import Path
from typing import Final, NamedTuple

from keyplan.apps.patroni.logs import LOGGER
from keyplan.errors import InvalidInputError

__all__ = ["CertificatePair", "ServedCertificate", "TlsFiles", "read_authorities", "read_pair"]

_BYTES_MAX: Final = 262_144
"""Why: a chain of certificates has a few kilobytes, and it is written for every node."""

_Stamp = tuple[tuple[int, int, int], ...]


class TlsFiles(NamedTuple):
    """Where a certificate, with what it is signed by behind it, and its key are."""

    certificate: Path
    key: Path


class CertificatePair(NamedTuple):
    """A certificate and the key that belongs to it, as PEM."""

    certificate: str
    key: str

    def __repr__(self) -> str:
        return "CertificatePair()"


def read_pair(files: TlsFiles) -> CertificatePair:
    """Return what the files hold. Raises InvalidInputError: one cannot be read, or they are not a certificate and its key."""
    pair = CertificatePair(_read(files.certificate), _read(files.key))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        # Why a password: without one a key that is encrypted is asked for at the terminal.
        context.load_cert_chain(files.certificate, files.key, password="")
    except (OSError, ValueError) as error:  # an SSLError is an OSError
        problem = f"is no certificate that belongs to the key {files.key}, which must not be encrypted"
        raise InvalidInputError(source=str(files.certificate), problem=problem) from error
    # Why once more: OpenSSL has read the files itself, and they may have been replaced in between.
    if pair != CertificatePair(_read(files.certificate), _read(files.key)):
        raise InvalidInputError(source=str(files.certificate), problem="is being replaced")
    return pair


def read_authorities(file: Path) -> str:
    """Return the certificates of authorities in a file, as PEM. Raises InvalidInputError, also for a private key."""
    text = _read(file)
    if "PRIVATE KEY" in text:
        # Why: the text is given to everybody who has a binding.
        raise InvalidInputError(
            source=str(file), problem="holds a private key beside certificates; name a file without it"
        )
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=text)
    except (OSError, ValueError) as error:
        raise InvalidInputError(source=str(file), problem="holds no certificates of authorities, as PEM") from error
    return text


def _read(file: Path) -> str:
    try:
        with file.open("rb") as opened:
            content = opened.read(_BYTES_MAX + 1)
        text = content.decode()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInputError(source=str(file), problem="cannot be read") from error
    if len(content) > _BYTES_MAX:
        raise InvalidInputError(source=str(file), problem=f"has more than {_BYTES_MAX} bytes")
    return text


class ServedCertificate:
    """A certificate in use. Other files take its place when both are there and fit; until then it stays in use."""

    def __init__(self, files: TlsFiles) -> None:
        """Raises InvalidInputError for what cannot be used."""
        self._files = files
        self._seen = self._stamp()
        self._problem = ""
        self.pair = read_pair(files)

    def look(self) -> None:
        """Read the files where they have changed. What cannot be used is logged once."""
        stamp = self._stamp()
        if stamp == self._seen and not self._problem:
            return
        try:
            pair = read_pair(self._files)
        except InvalidInputError as error:
            if str(error) != self._problem:
                LOGGER.error("the former certificate stays in use: %s", error)
                self._problem = str(error)
            return
        # Why not before: what was seen is what was read, or is read again.
        self._seen, self._problem = stamp, ""
        if pair != self.pair:
            LOGGER.info("the certificate %s is another one", self._files.certificate)
            self.pair = pair

    def _stamp(self) -> _Stamp:
        stamps = []
        for file in self._files:
            try:
                found = file.stat()
            except OSError:
                stamps.append((0, 0, 0))
            else:
                stamps.append((found.st_mtime_ns, found.st_size, found.st_ino))
        return tuple(stamps)
