"""Where nodes go: the vectors of the specification, and the rules beside them."""

from keyplan.apps.patroni.scheduling import CellLoad, available_cells, cells_in_order, version_of_new

FOUR = [CellLoad("n1", "z1", 3), CellLoad("n2", "z1", 1), CellLoad("n3", "z2", 2), CellLoad("n4", "z2", 0)]
NINE = [CellLoad(f"c{number}", f"z{(number + 2) // 3}") for number in range(1, 10)]


def test_the_first_node_goes_to_the_least_loaded_cell() -> None:
    assert cells_in_order(FOUR) == ["n4", "n2", "n3", "n1"]


def test_the_next_node_goes_to_another_zone() -> None:
    assert cells_in_order(FOUR, ["n1"]) == ["n4", "n3", "n2", "n1"]


def test_zones_come_by_the_nodes_that_they_hold_and_used_cells_last() -> None:
    assert cells_in_order(NINE, ["c1", "c2", "c7"]) == ["c4", "c5", "c6", "c8", "c9", "c3", "c1", "c2", "c7"]


def test_equal_cells_go_by_name() -> None:
    assert cells_in_order([CellLoad("b", "z1"), CellLoad("a", "z1")]) == ["a", "b"]


def test_full_and_draining_cells_get_nothing_new() -> None:
    cells = [CellLoad("full", "z1", 2, 2), CellLoad("room", "z1", 1, 2), CellLoad("draining", "z1", is_draining=True)]
    assert [cell.guid for cell in available_cells(cells)] == ["room"]
    assert [cell.guid for cell in available_cells(cells, used=["full", "draining"])] == ["full", "room"]


def test_cells_are_restricted_by_name_and_unknown_names_are_passed_over() -> None:
    assert [cell.guid for cell in available_cells(FOUR, allowed=["n3", "nobody"])] == ["n3"]


def test_a_new_cluster_is_of_the_version_that_most_cells_begin_with_and_what_is_no_version_counts_for_nothing() -> None:
    def cells(*firsts: str) -> list[CellLoad]:
        return [CellLoad(f"c{number}", "z1", versions=(first, "9.6")) for number, first in enumerate(firsts)]

    assert version_of_new(cells("15", "17", "17")) == "17"
    assert version_of_new(cells("9.6", "15")) == "15"
    # Cells write their records themselves, and one of them must not keep every cluster from being made.
    assert version_of_new(cells("x", "x", "15")) == "15"
    assert version_of_new(cells("x", "nan", "-1")) == ""
