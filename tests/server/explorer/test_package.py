"""What the pages need is in the package, in what is built of it, and described."""

from importlib.resources import files
from pathlib import Path

import jsonschema
import pytest

from keyplan.server.explorer.operations import DESCRIPTION
from tests.server.explorer.conftest import Explorer

REPOSITORY = Path(__file__).parents[3]
FILES = {
    "templates/area.html",
    "templates/base.html",
    "templates/failure.html",
    "templates/key.html",
    "templates/list.html",
    "templates/live.html",
    "templates/overview.html",
    "templates/parts.html",
    "templates/raw.html",
    "templates/report.html",
    "templates/revealed.html",
    "templates/tree.html",
    "static/explorer.css",
    "static/explorer.js",
    "static/icon.svg",
}


def test_templates_and_static_files_are_package_data() -> None:
    package = files("keyplan.server.explorer")
    found = {f"{folder}/{file.name}" for folder in ("templates", "static") for file in (package / folder).iterdir()}
    assert found == FILES


def test_a_wheel_contains_them() -> None:
    wheel = pytest.importorskip("hatchling.builders.wheel", reason="the build backend is not installed")
    builder = wheel.WheelBuilder(str(REPOSITORY))
    packed = {file.distribution_path for file in builder.recurse_included_files()}
    assert {f"keyplan/server/explorer/{name}" for name in FILES} <= packed


def test_static_files_may_be_kept_and_links_to_them_change_with_them(explorer: Explorer) -> None:
    page = explorer.page("/explore/")
    for name, media_type in (
        ("explorer.css", "text/css"),
        ("explorer.js", "text/javascript"),
        ("icon.svg", "image/svg+xml"),
    ):
        answer = explorer.get(f"/explore/static/{name}")
        assert answer.headers["content-type"].startswith(media_type)
        assert "immutable" in answer.headers["cache-control"]
        assert f"/explore/static/{name}?v=" in page


@pytest.mark.parametrize(
    ("path", "operation"),
    [
        ("/explore/", "/explore/"),
        ("/explore/in/-/", "/explore/in/{area}/"),
        ("/explore/in/-/tree/Shop/items", "/explore/in/{area}/tree/{layout}/{item}"),
        ("/explore/in/-/list/Shop/by_colour", "/explore/in/{area}/list/{layout}/{item}"),
        (f"/explore/in/-/key?hex={b'shop/items/a/1'.hex()}", "/explore/in/{area}/key"),
        ("/explore/in/-/raw", "/explore/in/{area}/raw"),
        ("/explore/in/-/live/Shop/items", "/explore/in/{area}/live/{layout}/{item}"),
    ],
)
def test_the_json_of_a_page_is_what_the_description_says(explorer: Explorer, path: str, operation: str) -> None:
    found = DESCRIPTION["paths"][operation]["get"]["responses"]["200"]["content"]["application/json"]["schema"]
    schema = {**found, "components": DESCRIPTION["components"]}
    jsonschema.validate(explorer.data(path), schema)
    name = found["$ref"].rpartition("/")[2]
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({}, {"$ref": f"#/components/schemas/{name}", "components": DESCRIPTION["components"]})
