"""The files of the web page, below `webServer.rootFilePath`: at every path that nothing else of the server has.

Files are for everybody, as the page has the log-in. Nothing outside the folder is reached: a path is followed name by name from
the open folder, no link is followed, and names that begin with a dot are not there. Of a folder its index.html is shown, and
never what is in it. A name is looked for as it was written, then in lower case, which is how the original looks.
"""

import os
import stat
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from email.utils import formatdate, parsedate_to_datetime
from pathlib import Path
from threading import Lock
from typing import Any, Final
from urllib.parse import quote

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from keyplan.apps.cloudchamber.configuration import Configuration
from keyplan.apps.cloudchamber.refusals import no_such_page
from keyplan.errors import InvalidInputError
from keyplan.server import LOGGER

__all__ = ["WebFiles", "folder_of_web_files"]

_INDEX: Final = "index.html"
_CHUNK_BYTES: Final = 256 * 1024
_OTHER: Final = "application/octet-stream"
_TYPES: Final = {
    "css": "text/css; charset=utf-8",
    "csv": "text/csv; charset=utf-8",
    "gif": "image/gif",
    "htm": "text/html; charset=utf-8",
    "html": "text/html; charset=utf-8",
    "ico": "image/x-icon",
    "jpeg": "image/jpeg",
    "jpg": "image/jpeg",
    "js": "text/javascript; charset=utf-8",
    "json": "application/json",
    "map": "application/json",
    "md": "text/plain; charset=utf-8",
    "mjs": "text/javascript; charset=utf-8",
    "pdf": "application/pdf",
    "png": "image/png",
    "svg": "image/svg+xml",
    "ttf": "font/ttf",
    "txt": "text/plain; charset=utf-8",
    "wasm": "application/wasm",
    "webmanifest": "application/manifest+json",
    "webp": "image/webp",
    "woff": "font/woff",
    "woff2": "font/woff2",
    "xml": "text/xml; charset=utf-8",
}
"""By the end of a name. Why here: the tables of machines differ, and a browser runs no script of another type."""


def folder_of_web_files(configuration: Configuration) -> Path | None:
    """Return the folder whose files are served; None where there is none to serve.

    None, too, for the folder of the settings, which is the default, and for one that it is in: it has the system account's
    password in it. Raises InvalidInputError for another one that is not there.
    """
    settings = Path(configuration.source).resolve()
    folder = configuration.root_folder.resolve()
    if settings.is_relative_to(folder):
        if (folder / _INDEX).is_file():
            facts = {"setting": "webServer.rootFilePath", "configuration": configuration.source}
            LOGGER.warning(
                "no web page is served: its folder is that of the settings, give it its own", extra={"facts": facts}
            )
        return None
    if not folder.is_dir():
        problem = f"webServer.rootFilePath is {configuration.web_server.root_file_path!r}, and there is no such folder"
        raise InvalidInputError(source=configuration.source, problem=problem)
    return folder


class _OpenFile:
    """The file of one answer, which threads open and read: closed once, whoever still waits for them.

    Why a lock: who asked may leave while a thread opens or reads. What is opened after that is closed at once, and nothing is
    read by a number that another file has by then.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._descriptor = -1
        self._is_closed = False

    def take(self, descriptor: int) -> None:
        """Have a file that was opened."""
        with self._lock:
            if self._is_closed:
                os.close(descriptor)
            else:
                self._descriptor = descriptor

    def read(self, size: int) -> bytes:
        """Return the next bytes, none behind the end and once it is closed."""
        with self._lock:
            return b"" if self._is_closed else os.read(self._descriptor, size)

    def close(self) -> None:
        """Close what was opened, now or as soon as it is."""
        with self._lock:
            self._is_closed = True
            if self._descriptor >= 0:
                os.close(self._descriptor)
                self._descriptor = -1


class WebFiles:
    """An ASGI application for the files below a folder. `run` makes a call in a thread."""

    def __init__(self, folder: Path, run: Callable[..., Awaitable[Any]]) -> None:
        self._folder = folder
        self._run = run

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        opened = _OpenFile()
        try:
            answer = await self._answer(scope, opened)
            await answer(scope, receive, send)
        finally:
            opened.close()

    async def _answer(self, scope: Scope, opened: _OpenFile) -> Response:
        path: str = scope["path"]
        if scope["method"] not in {"GET", "HEAD"} or not path.startswith("/"):
            return _nowhere()
        for spelled in dict.fromkeys((path, path.lower())):
            names = spelled[1:].split("/")
            found = await self._run(_find, self._folder, [*names[:-1], names[-1] or _INDEX], opened)
            if found is None:
                continue
            is_folder = stat.S_ISDIR(found.st_mode)
            if not is_folder and names[-1] != _INDEX:
                return self._file(found, opened, names[-1] or _INDEX, Headers(scope=scope))
            if not is_folder:
                return _led_to("./", scope)
            if names[-1]:
                # Why behind a dot: a name with a colon would be taken for a scheme.
                return _led_to(f"./{quote(names[-1], safe='')}/", scope)
        return _nowhere()

    def _file(self, found: os.stat_result, opened: _OpenFile, name: str, asked: Headers) -> Response:
        modified = int(found.st_mtime)
        headers = {
            "Content-Type": _TYPES.get(name.rpartition(".")[2].lower(), _OTHER),
            "Content-Length": str(found.st_size),
            "ETag": f'"{found.st_mtime_ns:x}-{found.st_size:x}"',
            # Why asked again each time: the next version of a page has the same names.
            "Cache-Control": "no-cache",
            "X-Content-Type-Options": "nosniff",
        }
        with suppress(ValueError, OverflowError, OSError):  # Why: a file may have a time that no date can say.
            headers["Last-Modified"] = formatdate(modified, usegmt=True)
        if _is_known(asked, headers["ETag"], modified):
            del headers["Content-Length"], headers["Content-Type"]
            return Response(status_code=304, headers=headers)
        return _FileAnswer(opened, found.st_size, headers, self._run)


class _FileAnswer(Response):
    """The bytes of an open file, as many as it had when it was opened. Who asked for it closes the file."""

    def __init__(
        self, opened: _OpenFile, size: int, headers: Mapping[str, str], run: Callable[..., Awaitable[Any]]
    ) -> None:
        super().__init__(headers=dict(headers))
        self._opened = opened
        self._left = size
        self._run = run

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        is_sent = scope["method"] == "HEAD" or not self._left
        while not is_sent:
            chunk = await self._run(self._opened.read, min(_CHUNK_BYTES, self._left))
            if not chunk:
                # Why cut rather than ended: the file was made shorter, and nobody must take this for all of it.
                raise OSError("the file is shorter than it was")
            self._left -= len(chunk)
            is_sent = not self._left
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


def _find(folder: Path, names: Sequence[str], opened: _OpenFile) -> os.stat_result | None:
    """Open the file that names lead to from a folder, or look at the folder; None where there is neither.

    Why name by name: whoever makes a link between a look and the opening would have it followed.
    """
    if any(not name or name.startswith(".") for name in names):
        return None
    descriptor = -1
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        for position, name in enumerate(names):
            kind = os.O_NONBLOCK if position == len(names) - 1 else os.O_DIRECTORY
            # Why without waiting: a pipe of that name would let the thread wait for who writes to it.
            inner = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | kind, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = inner
        found = os.fstat(descriptor)
    except (OSError, ValueError):
        # Why also ValueError: a name may have a zero in it, or be none that the system can have.
        found = None
    if found is not None and stat.S_ISREG(found.st_mode):
        opened.take(descriptor)
        return found
    if descriptor >= 0:
        os.close(descriptor)
    return found if found is not None and stat.S_ISDIR(found.st_mode) else None


def _is_known(asked: Headers, etag: str, modified: int) -> bool:
    """Tell whether who asks has the file as it is."""
    if (tags := asked.get("if-none-match")) is not None:
        return any(tag.strip().removeprefix("W/") in {etag, "*"} for tag in tags.split(","))
    with suppress(ValueError, TypeError, OverflowError):
        return modified <= parsedate_to_datetime(asked.get("if-modified-since", "")).timestamp()
    return False


def _led_to(place: str, scope: Scope) -> Response:
    """Return the way to the one name of a folder or its index, as the original's file server shows it."""
    query = scope["query_string"].decode("latin-1")
    return Response(status_code=301, headers={"Location": f"{place}?{query}" if query else place})


def _nowhere() -> Response:
    refusal = no_such_page()
    headers = {"X-Content-Type-Options": "nosniff"}
    return Response(f"{refusal.text}\n", refusal.status, media_type="text/plain", headers=headers)
