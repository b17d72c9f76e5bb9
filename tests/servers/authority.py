"""A small certificate authority for tests: one CA, certificates for a server on this machine and for a client, by openssl."""

import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

__all__ = ["Authority"]

_DAYS: Final = "30"


@dataclass(frozen=True, slots=True)
class Authority:
    """The files of one authority in `folder`; `Authority.create` makes them."""

    folder: Path

    @classmethod
    def create(cls, folder: Path) -> "Authority":
        """Make the CA, and certificates `server` (for 127.0.0.1, ::1 and localhost) and `client`."""
        folder.mkdir(parents=True, exist_ok=True)
        made = cls(folder)
        _openssl(
            *("req", "-x509", "-nodes", "-days", _DAYS, "-subj", "/CN=keyplan test authority"),
            *("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"),
            *("-keyout", str(folder / "ca.key"), "-out", str(made.ca)),
        )
        names = "subjectAltName=IP:127.0.0.1,IP:::1,DNS:localhost"
        # Why: etcd's own gateway dials the server with the server's certificate, as a client.
        made.issue("server", f"{names}\nextendedKeyUsage=serverAuth,clientAuth\n")
        made.issue("client", "extendedKeyUsage=clientAuth\n")
        return made

    @property
    def ca(self) -> Path:
        """The certificate to trust."""
        return self.folder / "ca.crt"

    def certificate(self, name: str) -> Path:
        """The certificate of `server` or `client`."""
        return self.folder / f"{name}.crt"

    def key(self, name: str) -> Path:
        """The private key of `server` or `client`."""
        return self.folder / f"{name}.key"

    def issue(self, name: str, extensions: str, *, subject: str = "") -> None:
        """Make a certificate and its key; `subject` is as openssl takes it, by default a common name."""
        request, extension_file = self.folder / f"{name}.csr", self.folder / f"{name}.ext"
        extension_file.write_text(extensions)
        _openssl(
            *(
                "req",
                "-nodes",
                "-utf8",
                "-subj",
                subject or f"/CN={name}",
                "-newkey",
                "ec",
                "-pkeyopt",
                "ec_paramgen_curve:P-256",
            ),
            *("-keyout", str(self.key(name)), "-out", str(request)),
        )
        _openssl(
            *("x509", "-req", "-days", _DAYS, "-in", str(request), "-extfile", str(extension_file)),
            *("-CA", str(self.ca), "-CAkey", str(self.folder / "ca.key"), "-CAcreateserial"),
            *("-out", str(self.certificate(name))),
        )


def _openssl(*arguments: str) -> None:
    done = subprocess.run(["openssl", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
