"""L6: a root inside another root."""

from keyplan.layout.rules import lint
from tests.layout.rules.builders import layout, table, text

USERS = table("users", text("users/{user:text}"))


def test_roots_beside_each_other_are_right() -> None:
    own = layout(USERS, name="Production", root=text("/site/"))
    assert lint(own, others=[layout(USERS, name="Standard", root=text("/site-test/"))]).of_rule("L6") == ()


def test_a_root_inside_another_is_found_from_both_sides() -> None:
    outer = layout(USERS, name="Production", root=text("/site/"))
    inner = layout(USERS, name="Standard", root=text("/site/test/"))
    for one, other in ((outer, inner), (inner, outer)):
        (finding,) = lint(one, others=[other]).of_rule("L6")
        assert finding.items == ("Production", "Standard")
        assert (finding.witness, finding.second) == (b"/site/test/users/a", b"/site/")


def test_a_root_without_its_last_separator_holds_its_siblings() -> None:
    own = layout(USERS, name="Standard", root=text("/test/Standard"))
    (finding,) = lint(own, others=[layout(USERS, name="Second", root=text("/test/Standard2"))]).of_rule("L6")
    assert finding.witness == b"/test/Standard2users/a"


def test_two_layouts_with_one_root_are_one_finding() -> None:
    own = layout(USERS, name="First", root=text("/"))
    (finding,) = lint(own, others=[layout(USERS, name="Second", root=text("/"))]).of_rule("L6")
    assert finding.items == ("First", "Second")


def test_one_parameter_value_may_put_a_root_inside_another_values() -> None:
    own = layout(USERS, root=text("{prefix:text(exclude='')}data/"), parameters={"prefix": "/"})
    (finding,) = lint(own).of_rule("L6")
    assert finding.items == ("Test",)
    assert (finding.witness, finding.second) == (b"adata/data/users/a", b"adata/")


def test_a_parameter_that_ends_at_a_separator_keeps_roots_apart() -> None:
    assert lint(layout(USERS, root=text("/sites/{site:text}/"))).of_rule("L6") == ()


def test_witnesses_stand_below_the_roots_default_parameters() -> None:
    items = (table("names", text("{name:text}")), table("port", text("port")))
    root = text("/{region:text}/{site:text(bytes_max=1)}/")
    (known,) = lint(layout(*items, root=root, parameters={"region": "eu", "site": "x"})).of_rule("L1")
    assert known.witness == b"/eu/x/port"
    (partly,) = lint(layout(*items, root=root, parameters={"region": "eu", "site": None})).of_rule("L1")
    assert partly.witness == b"/eu/a/port"
