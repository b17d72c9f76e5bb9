"""docs/reference/http.md is what the description says."""

from tests.server.http_reference import PAGE, page


def test_the_reference_is_current() -> None:
    assert PAGE.read_text() == page(), "python -m tests.server.http_reference writes it anew"
