"""The web page: files below `rootFilePath` for everybody, and nothing from outside it."""

import asyncio
import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from keyplan.apps.cloudchamber.web_files import WebFiles
from keyplan.errors import InvalidInputError
from keyplan.server import Access, Role, Token
from tests.apps.cloudchamber.site import Site, site_of
from tests.apps.cloudchamber.web import SETTINGS

PAGE = b"<!doctype html><title>observer</title>"
SCRIPT = b"export const tick = 1\n" * 30_000
WITH_PAGE = f"{SETTINGS}  rootFilePath: page\n"


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    page = tmp_path / "page"
    (page / "static" / "js").mkdir(parents=True)
    (page / "index.html").write_bytes(PAGE)
    (page / "static" / "js" / "main.js").write_bytes(SCRIPT)
    (page / "static" / "Logo.SVG").write_bytes(b"<svg/>")
    (page / "empty").mkdir()
    (page / ".hidden").write_bytes(b"secret")
    (tmp_path / "secret").write_bytes(b"secret")
    (page / "link").symlink_to(tmp_path / "secret")
    (page / "outside").symlink_to(tmp_path)
    os.mkfifo(page / "pipe")
    with site_of("memory:", tmp_path, WITH_PAGE) as built:
        yield built


async def raw(client: httpx.AsyncClient, path: bytes, **asked: Any) -> httpx.Response:
    """Ask for a path as it is, which a client would make clean."""
    return await client.request("GET", httpx.URL(scheme="http", host="127.0.0.1", raw_path=path), **asked)


def test_the_page_is_served_to_who_has_no_session_and_the_api_stays_what_it_is(site: Site) -> None:
    async def act(site: Site) -> None:
        nobody = site.client()
        page = await nobody.get("/")
        assert (page.status_code, page.content) == (200, PAGE)
        headers = page.headers
        assert (headers["content-type"], headers["content-length"]) == ("text/html; charset=utf-8", str(len(PAGE)))
        assert (headers["cache-control"], headers["x-content-type-options"]) == ("no-cache", "nosniff")
        script = await nobody.get("/static/js/main.js")
        assert (script.content, script.headers["content-type"]) == (SCRIPT, "text/javascript; charset=utf-8")
        for path in ("/Static/JS/MAIN.js", "/static/Logo.SVG"):
            assert (await nobody.get(path)).status_code == 200, path
        head = await nobody.head("/static/js/main.js")
        assert (head.content, head.headers["content-length"]) == (b"", str(len(SCRIPT)))
        assert (await nobody.get("/api/racks")).text == "CloudChamber: no session active\n"
        for path in ("/api", "/api/none", "/apis"):
            assert (await nobody.get(path)).status_code == 404
        assert (await nobody.get("/health")).json() == {"status": "ok"}

    site.run(act)


def test_a_file_that_is_known_is_not_sent_again_until_it_changes(site: Site, tmp_path: Path) -> None:
    async def act(site: Site) -> None:
        nobody = site.client()
        first = (await nobody.get("/")).headers
        for known in (
            {"If-None-Match": first["etag"]},
            {"If-None-Match": f'"other", W/{first["etag"]}'},
            {"If-None-Match": "*"},
            {"If-Modified-Since": first["last-modified"]},
        ):
            again = await nobody.get("/", headers=known)
            assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", first["etag"])
        for other in (
            {"If-None-Match": '"other"', "If-Modified-Since": first["last-modified"]},
            {"If-Modified-Since": "never"},
        ):
            assert (await nobody.get("/", headers=other)).status_code == 200
        (tmp_path / "page" / "index.html").write_bytes(PAGE + b"!")
        changed = await nobody.get("/", headers={"If-None-Match": first["etag"]})
        assert (changed.status_code, changed.content) == (200, PAGE + b"!")

    site.run(act)


def test_a_folder_has_one_name_and_does_not_tell_what_is_in_it(site: Site) -> None:
    async def act(site: Site) -> None:
        nobody = site.client()
        for path, place in (("/static", "./static/"), ("/index.html?a=b", "./?a=b"), ("/empty", "./empty/")):
            led = await nobody.get(path)
            assert (led.status_code, led.headers["location"]) == (301, place)
        for path in ("/static/", "/empty/", "/index.html/", "/none", "/" + "n" * 300):
            nowhere = await nobody.get(path)
            assert (nowhere.status_code, nowhere.text) == (404, "404 page not found\n"), path
        for method in ("POST", "PUT", "DELETE", "OPTIONS"):
            assert (await nobody.request(method, "/")).status_code == 404

    site.run(act)


@pytest.mark.parametrize(
    "path",
    [
        b"/../secret",
        b"/%2e%2e/secret",
        b"/..%2fsecret",
        b"/static/../../secret",
        b"/static/..%2f..%2fsecret",
        b"//etc/passwd",
        b"/link",
        b"/outside/secret",
        b"/.hidden",
        b"/pipe",
        b"/index.html%00.js",
        b"/%ff",
        b"/static//js/main.js",
    ],
)
def test_nothing_is_served_from_outside_nor_what_is_no_file(site: Site, path: bytes) -> None:
    async def act(site: Site) -> None:
        answer = await raw(site.client(), path)
        assert (answer.status_code, answer.text) == (404, "404 page not found\n")

    site.run(act)


def test_a_folder_that_holds_the_settings_is_not_served(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The default, and what the original's own file says: the account's password stands there."""
    (tmp_path / "index.html").write_bytes(PAGE)

    async def act(site: Site) -> None:
        for path in ("/", "/cloudchamber.yaml"):
            assert (await site.client().get(path)).status_code == 404

    for settings in (SETTINGS, f"{SETTINGS}  rootFilePath: .\n", f"{SETTINGS}  rootFilePath: {tmp_path.parent}\n"):
        with site_of("memory:", tmp_path, settings) as site:
            site.run(act)
    assert [one.getMessage()[:22] for one in caplog.records if "settings" in one.getMessage()] == [
        "no web page is served:"
    ] * 2
    with (
        pytest.raises(InvalidInputError, match="rootFilePath is 'none', and there is no such folder"),
        site_of("memory:", tmp_path, f"{SETTINGS}  rootFilePath: none\n"),
    ):
        pass


def test_the_page_is_for_everybody_and_other_services_are_not(tmp_path: Path) -> None:
    """With tokens, what no route is for is open where the page is served, and closed where it is not."""
    (tmp_path / "page").mkdir()
    (tmp_path / "page" / "index.html").write_bytes(PAGE)
    access = Access([Token.of_text(Role.ADMIN, "ada", "t" * 40)], local_role=None)
    found: dict[str, list[int]] = {}

    async def act(site: Site) -> None:
        nobody = site.client()
        paths = ("/", "/none", "/openapi.json", "/metrics")
        found[settings] = [(await nobody.get(path)).status_code for path in paths]

    for settings in (SETTINGS.replace("adminPassword", "other"), WITH_PAGE.replace("adminPassword", "other")):
        with site_of("memory:", tmp_path, settings, access=access) as site:
            site.run(act)
    assert list(found.values()) == [[401, 401, 401, 401], [200, 404, 401, 401]]


@pytest.mark.parametrize("is_opened_later", [False, True])
def test_who_leaves_while_a_file_is_opened_leaves_nothing_open(tmp_path: Path, *, is_opened_later: bool) -> None:
    (tmp_path / "one.txt").write_bytes(b"one")
    later: list[Callable[[], object]] = []

    async def left(call: Callable[..., object], *arguments: object) -> None:
        if is_opened_later:
            later.append(partial(call, *arguments))
        else:
            call(*arguments)
        raise asyncio.CancelledError

    async def nothing(*_: object) -> Any:
        raise AssertionError

    scope = {"type": "http", "method": "GET", "path": "/one.txt", "headers": [], "query_string": b""}
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(WebFiles(tmp_path, left)(scope, nothing, nothing))
    for call in later:
        call()
    opened = [Path(f"/proc/self/fd/{one}") for one in os.listdir("/proc/self/fd")]
    assert not [one for one in opened if one.exists() and one.resolve() == (tmp_path / "one.txt").resolve()]


def test_a_file_of_a_time_that_no_date_says_is_served(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    real, beyond = os.fstat, 300_000_000_000

    def of_the_year_11476(descriptor: int) -> Any:
        # Why here: few file systems keep such a time.
        found = real(descriptor)
        facts = {"st_mode": found.st_mode, "st_size": found.st_size}
        return SimpleNamespace(**facts, st_mtime=float(beyond), st_mtime_ns=beyond * 10**9)

    async def act(site: Site) -> None:
        monkeypatch.setattr(os, "fstat", of_the_year_11476)
        page = await site.client().get("/")
        assert (page.status_code, page.content) == (200, PAGE)
        assert "last-modified" not in page.headers

    site.run(act)
