"""Labels of principals, and grants on all operations of a name's beginning."""

import pytest

from keyplan.access import EVERYTHING, Label, OnOperation, add_principal, label_of, read_policy, rotate_token
from keyplan.errors import InvalidInputError
from keyplan.operations import Act
from tests.access.test_editing import NEW, NOW, OLD

FILE = """\
[principals.shop]
labels = [
  "user:ann",
  "partition:east1",
  "partition:west1",
  "project:*",
]
read = ["operation:runm.*"]
"""


def test_labels_are_read_by_kind_and_grant_nothing() -> None:
    policy = read_policy(FILE, source="access.toml")
    (shop,) = policy.principals
    assert shop.labels[0] == Label("user", "ann")
    assert shop.labelled("partition") == {"east1", "west1"}
    assert shop.labelled("project") == {"*"}
    assert shop.labelled("role") == frozenset()
    assert [grant.act for grant in policy.grants_of("shop")] == [Act.READ]


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ("porject:shop", "write one of user:NAME, project:NAME, partition:NAME, role:NAME"),
        ("shop", "is no label"),
        ("project:", "is no label"),
        ("project:a\nb", "is no label"),
        ("role:*", "would be every role"),
        ("user:*", "would be every user"),
        ("user:" + "n" * 257, "is no label"),
    ],
)
def test_a_label_of_another_form_is_refused_with_the_remedy(words: str, problem: str) -> None:
    with pytest.raises(InvalidInputError, match="the input is not valid") as caught:
        label_of(words, source="access.toml:2")
    assert caught.value.source == "access.toml:2"
    assert problem in str(caught.value)


def test_a_wrong_label_is_told_with_its_line() -> None:
    with pytest.raises(InvalidInputError, match="'west1' is no label") as caught:
        read_policy(FILE.replace("partition:west1", "west1"), source="access.toml")
    assert caught.value.source == "access.toml:5"


def test_commands_write_labels_and_keep_them() -> None:
    labels = ["project:p", "partition:east1"]
    text = add_principal("", "shop", token=OLD, labels=labels, grants={}, source="access.toml")
    assert 'labels = ["project:p", "partition:east1"]' in text
    text = rotate_token(text, "shop", NEW, now=NOW, source="access.toml")
    (shop,) = read_policy(text, source="access.toml").principals
    assert [str(one) for one in shop.labels] == labels


@pytest.mark.parametrize(
    ("granted", "asked", "is_covered"),
    [
        ("runm.*", "runm.object_find", True),
        ("runm.*", "runm.*", True),
        ("runm.*", "runmer.object_find", False),
        ("runm.*", "runm", False),
        ("runm.*", "getAudit", False),
        ("runm.object_find", "runm.*", False),
        ("runm*", "runm.object_find", False),
    ],
)
def test_a_grant_on_a_beginning_covers_what_begins_so(granted: str, asked: str, *, is_covered: bool) -> None:
    assert OnOperation(granted).covers(OnOperation(asked)) is is_covered
    assert not OnOperation(granted).covers(EVERYTHING)
