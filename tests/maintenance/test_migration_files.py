"""Migration files: what a draft says, how files are read and refused, and which of them are planned as one."""

import json
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest

import keyplan
from keyplan.engine import Commit, Put
from keyplan.errors import InvalidInputError
from keyplan.layout import (
    BoundLayout,
    Layout,
    describe,
    layout_class_of,
    layout_fingerprint,
    layout_of_description,
    lock_text,
)
from keyplan.maintenance import (
    MigrationFolder,
    clean_up_migration,
    draft_migration,
    migrate,
    place_in,
    plan_leg,
    read_migrations,
)
from keyplan.store import Store
from tests.maintenance import filed
from tests.maintenance.evolving import NO_WAIT

MODULE = "tests.maintenance.filed"
CHAIN = (filed.Plain, filed.Moved, filed.Named, filed.Indexed, filed.Noted)


def named(layout: type[Layout]) -> str:
    return f"{MODULE}:{layout.__name__}"


def draft(
    path: Path,
    name: str,
    old: type[Layout],
    new: type[Layout],
    *,
    renames: Mapping[str, str] | None = None,
    drops: tuple[str, ...] = (),
) -> Path:
    ends = ((named(kind), kind.bound()) for kind in (old, new))
    return draft_migration(read_migrations(path), name, *ends, renames=renames, drops=drops)


def chain(path: Path, *layouts: type[Layout]) -> MigrationFolder:
    for old, new in pairwise(layouts):
        drops = ("notes",) if new is filed.Noted else ()
        draft(path, f"to_{new.__name__.lower()}", old, new, drops=drops)
    return read_migrations(path)


def carried_out(store: Store, folder: MigrationFolder) -> list[str]:
    """Carry out everything that is due, and return the names of the plans."""
    legs: list[str] = []
    while (leg := place_in(folder, store.engine, bound).leg) is not None:
        assert len(legs) < 10
        old, new = folder.old_layout(leg.files[0]), folder.new_layout(leg.files[-1])
        plan = plan_leg(store.engine, leg, old=old.bound(), new=new.bound())
        assert plan.obstacles == ()
        assert migrate(store, plan, is_switched=True, backoff=NO_WAIT).is_settled
        clean_up_migration(store, plan, backoff=NO_WAIT)
        legs.append(leg.name)
    return legs


def bound(layout: type[Layout]) -> BoundLayout:
    return layout.bound()


def written(store: Store, count: int = 3) -> None:
    plain = filed.Plain(store)
    for number in range(count):
        plain.entries.insert(str(number), filed.Entry(f"title{number}", "ann"))
    plain.notes.insert("n", "note")


# ---- drafts ---------------------------------------------------------------------------------------------------------------


def test_a_layout_that_was_described_has_the_fingerprint_of_its_class() -> None:
    for kind in (*CHAIN, filed.Retyped, filed.Split):
        described = layout_of_description(json.loads(json.dumps(describe(kind.spec))))
        assert layout_fingerprint(described) == layout_fingerprint(kind.spec) == kind.bound().fingerprint
    assert len({layout_fingerprint(kind.spec) for kind in CHAIN}) == len(CHAIN)


def test_a_draft_says_what_changes_the_steps_and_what_is_to_be_decided(tmp_path: Path) -> None:
    text = draft(tmp_path, "no_notes", filed.Indexed, filed.Noted).read_text()
    assert "  E5 breaking notes: table notes/{note} is gone" in text
    assert '        # "notes",\n' in text
    assert "To decide before it is run:" in text
    consented = draft(tmp_path / "other", "no_notes", filed.Indexed, filed.Noted, drops=("notes",)).read_text()
    assert '        "notes",\n' in consented
    assert "To decide before it is run:" not in consented
    assert "`keyplan migrate finish`, when no program needs the old layout any more:" in consented
    assert "  notes: remove the records at notes/{note}" in consented


def test_a_draft_has_a_function_with_types_where_one_is_needed_and_is_not_run_before_it_is_written(
    tmp_path: Path,
) -> None:
    path = draft(tmp_path, "letters", filed.Noted, filed.Retyped)
    text = path.read_text()
    assert f"def articles(record: {MODULE}.Entry) -> {MODULE}.Typed:\n" in text
    assert 'conversions={\n        "articles": Conversion(articles, "0001_letters:articles"),\n    },' in text
    (file,) = read_migrations(tmp_path).files
    with pytest.raises(InvalidInputError) as refused:
        file.require_written()
    line = next(number for number, one in enumerate(text.splitlines(), 1) if one.startswith("@unwritten"))
    assert refused.value.facts["source"] == f"{path}:{line}"
    assert "the function articles is not written" in str(refused.value.facts["problem"])


def test_a_key_with_another_field_takes_a_function_of_key_and_record(tmp_path: Path) -> None:
    text = draft(tmp_path, "by_author", filed.Retyped, filed.Split).read_text()
    assert f"def articles(key: str, record: {MODULE}.Typed) -> Keyed:\n" in text
    assert f"key: {MODULE}.Byline of author, number; record: {MODULE}.Typed" in text
    assert 'Transform(articles, "0001_by_author:articles", of=("articles",), into=("articles",))' in text


def test_a_unique_index_on_records_that_violate_it_takes_a_function_that_is_drafted(tmp_path: Path) -> None:
    ends = ((named(kind), kind.bound()) for kind in (filed.Named, filed.Indexed))
    before, after = ends
    comment = draft(tmp_path / "unknown", "indexed", filed.Named, filed.Indexed).read_text()
    assert '    # resolutions={"by_title": Resolution(by_title, "0001_indexed:by_title")},\n' in comment
    with keyplan.open("memory:") as store:
        for number in "123":
            filed.Named(store).articles.insert(number, filed.Entry("t", "a"))
        path = draft_migration(read_migrations(tmp_path), "indexed", before, after, engine=store.engine)
    text = path.read_text()
    assert f"def by_title(key: str, record: {MODULE}.Entry) -> {MODULE}.Entry | None:\n" in text
    assert "/f/articles/1 and /f/articles/2 both claim the entry /f/titles/t of by_title" in text
    (file,) = read_migrations(tmp_path).files
    with pytest.raises(InvalidInputError, match="the function by_title is not written"):
        file.require_written()
    path.write_text(
        text.replace("@unwritten  # take this line away when the function is written\n", "").replace(
            "raise NotImplementedError", f"return {MODULE}.Entry(record.title + key, record.author)"
        )
    )
    (file,) = read_migrations(tmp_path).files
    file.require_written()
    assert file.migration.resolutions["by_title"].name == "0001_indexed:by_title"


def test_a_draft_is_python_whatever_the_layout_is_called(tmp_path: Path) -> None:
    described = describe(filed.Plain.spec)
    described["layout"] = 'X""" import os #\n'
    described["items"][1]["name"] = 'no"tes'
    spec = layout_of_description(described)
    kind = layout_class_of(spec)
    path = draft_migration(
        read_migrations(tmp_path), "odd", ('"""\n\\', kind.bound()), (named(filed.Moved), filed.Moved.bound())
    )
    compile(path.read_text(), str(path), "exec")
    (file,) = read_migrations(tmp_path).files
    assert file.migration.old.name == '"""\n\\'


def test_a_draft_of_nothing_and_one_beside_the_chain_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="nothing to migrate"):
        draft(tmp_path, "same", filed.Plain, filed.Plain)
    draft(tmp_path, "moved", filed.Plain, filed.Moved)
    with pytest.raises(InvalidInputError, match="0001_moved ends at"):
        draft(tmp_path, "again", filed.Plain, filed.Named)
    with pytest.raises(InvalidInputError, match="is no name of a migration"):
        draft(tmp_path, "Split Orders", filed.Moved, filed.Named)
    assert [path.name for path in tmp_path.glob("*.py")] == ["0001_moved.py"]


# ---- files that are refused ------------------------------------------------------------------------------------------------


def test_an_error_of_a_file_names_the_file_and_its_line(tmp_path: Path) -> None:
    path = draft(tmp_path, "moved", filed.Plain, filed.Moved)
    good = path.read_text()

    def refused(text: str) -> tuple[str, str]:
        path.write_text(text)
        with pytest.raises(InvalidInputError) as error:
            read_migrations(tmp_path)
        return str(error.value.facts["source"]), str(error.value.facts["problem"])

    lines = good.count("\n")
    assert refused(good + "def (:\n")[0] == f"{path}:{lines + 1}"
    assert refused(good + "\n1 / 0\n") == (f"{path}:{lines + 2}", "it raised ZeroDivisionError: division by zero")
    assert refused("x = 1\n") == (f"{path}:1", "it declares no `migration = Migration(...)`")
    source, problem = refused(good.replace(")\n", '    drops="notes",\n)\n'))
    assert problem == "drops is not a tuple of names"
    assert source.startswith(f"{path}:")
    assert "migration = Migration(" in path.read_text().splitlines()[int(source.rpartition(":")[2]) - 1]


def test_files_that_do_not_follow_one_another_are_refused_by_name(tmp_path: Path) -> None:
    chain(tmp_path, *CHAIN[:3])
    second = tmp_path / "0002_to_named.py"
    (tmp_path / "0002_other.py").write_text(second.read_text())
    with pytest.raises(InvalidInputError, match="it has the number of 0002_other"):
        read_migrations(tmp_path)
    (tmp_path / "0002_other.py").rename(tmp_path / "0003_other.py")
    with pytest.raises(InvalidInputError, match="0002_to_named ends at"):
        read_migrations(tmp_path)
    (tmp_path / "0003_other.py").rename(tmp_path / "3-other.py")
    with pytest.raises(InvalidInputError, match="four digits and its name"):
        read_migrations(tmp_path)


def test_a_description_that_is_changed_or_gone_is_told(tmp_path: Path) -> None:
    folder = chain(tmp_path, *CHAIN[:2])
    kept = folder.layouts[0]
    path = tmp_path / "layouts" / f"{kept.fingerprint}.json"
    text = path.read_text()
    for changed in (text.replace("entries/{number", "elsewhere/{number"), text.replace('"version": 1', '"version": 2')):
        assert changed != text
        path.write_text(changed)
        with pytest.raises(InvalidInputError, match="the lock was changed by hand"):
            folder.description(kept)
    path.write_text(lock_text(filed.Retyped.spec))
    with pytest.raises(InvalidInputError, match="the description was changed"):
        folder.description(kept)
    for bad in ("[]", "{", '{"format": "x"}'):
        path.write_text(bad)
        with pytest.raises(InvalidInputError, match="no description of a layout"):
            folder.description(kept)
    path.unlink()
    with pytest.raises(InvalidInputError, match="cannot be read"):
        folder.description(kept)


def test_a_layout_that_has_changed_since_is_refused_unless_a_later_file_goes_on_from_it(tmp_path: Path) -> None:
    folder = chain(tmp_path, *CHAIN[:3])
    for file in folder.files:
        text = file.path.read_text()
        file.path.write_text(
            text.replace(f"{MODULE}:Moved", f"{MODULE}:Split").replace(f"{MODULE}:Named", f"{MODULE}:Gone")
        )
    folder = read_migrations(tmp_path)
    first, last = folder.files
    assert folder.new_layout(first).spec.item("entries").template.plain == "articles/{number}"
    with pytest.raises(InvalidInputError, match="Gone is not there any more"):
        folder.new_layout(last)
    last.path.write_text(last.path.read_text().replace(f"{MODULE}:Gone", f"{MODULE}:Split"))
    folder = read_migrations(tmp_path)
    with pytest.raises(InvalidInputError, match="Split has changed since: its fingerprint is"):
        folder.new_layout(folder.files[-1])


# ---- which files are due ----------------------------------------------------------------------------------------------------


def test_files_between_which_nothing_comes_are_planned_as_one_and_no_value_is_lost(tmp_path: Path) -> None:
    folder = chain(tmp_path, *CHAIN)
    with keyplan.open("memory:") as store:
        written(store)
        assert carried_out(store, folder) == ["0001_to_moved to 0004_to_noted"]
        noted = filed.Noted(store)
        assert [key for key, _ in noted.articles.list()] == ["0", "1", "2"]
        assert noted.by_title.key_of("title1") == "1"
        assert filed.Plain(store).notes.count() == 0
        place = place_in(folder, store.engine, bound)
        assert (place.done, place.leg) == (4, None)


def test_one_after_the_other_ends_where_all_at_once_does(tmp_path: Path) -> None:
    folder = chain(tmp_path, *CHAIN)
    with keyplan.open("memory:") as store:
        written(store)
        for number in range(1, 5):
            part = MigrationFolder(folder.path, folder.files[:number])
            carried_out(store, part)
            assert place_in(folder, store.engine, bound).done >= number
        assert filed.Noted(store).by_author.count("ann") == 3


def test_what_is_due_ends_at_the_file_that_is_named(tmp_path: Path) -> None:
    folder = chain(tmp_path, *CHAIN)
    with keyplan.open("memory:") as store:
        for until in ("0003_to_indexed", "0003_to_indexed.py", "3"):
            place = place_in(folder, store.engine, bound, until=until)
            assert place.leg is not None
            assert place.leg.name == "0001_to_moved to 0003_to_indexed"
        with pytest.raises(InvalidInputError, match="there is no migration '9'"):
            place_in(folder, store.engine, bound, until="9")


def test_functions_and_drops_keep_files_apart_and_the_reason_is_told(tmp_path: Path) -> None:
    folder = chain(tmp_path, *CHAIN, filed.Retyped)
    with keyplan.open("memory:") as store:
        place = place_in(folder, store.engine, bound)
        assert place.leg is not None
        assert place.leg.name == "0001_to_moved to 0004_to_noted"
        assert place.why == "0005_to_retyped has functions, which take records of its own layouts"
        written(store)
        last = folder.files[-1]
        text = last.path.read_text().replace("@unwritten", "#")
        last.path.write_text(
            text.replace("raise NotImplementedError", f"return {MODULE}.Typed(record.title, record.author, 5)")
        )
        assert carried_out(store, read_migrations(tmp_path)) == ["0001_to_moved to 0004_to_noted", "0005_to_retyped"]
        assert filed.Retyped(store).articles.require("1") == filed.Typed("title1", "ann", 5)


class Renamed(Layout, root="/f/"):
    """The notes are called remarks, and other notes came."""

    entries = keyplan.Table("entries/{number}", key=str, value=filed.Entry)
    remarks = keyplan.Table("remarks/{note}", key=str, value=str)


class Renewed(Layout, root="/f/"):
    entries = keyplan.Table("entries/{number}", key=str, value=filed.Entry)
    remarks = keyplan.Table("remarks/{note}", key=str, value=str)
    notes = keyplan.Table("new-notes/{note}", key=str, value=str)


def test_a_name_that_goes_to_something_else_is_not_taken_for_the_old_one(tmp_path: Path) -> None:
    ends = [(f"{__name__}:{kind.__name__}", kind.bound()) for kind in (Renamed, Renewed)]
    plain = (named(filed.Plain), filed.Plain.bound())
    draft_migration(read_migrations(tmp_path), "remarks", plain, ends[0], renames={"notes": "remarks"})
    draft_migration(read_migrations(tmp_path), "notes", ends[0], ends[1])
    with keyplan.open("memory:") as store:
        written(store)
        assert carried_out(store, read_migrations(tmp_path)) == ["0001_remarks to 0002_notes"]
        renewed = Renewed(store)
        assert (renewed.remarks.require("n"), renewed.notes.count()) == ("note", 0)


class Without(Layout, root="/f/"):
    entries = keyplan.Table("entries/{number}", key=str, value=filed.Entry)


class Again(Layout, root="/f/"):
    entries = keyplan.Table("entries/{number}", key=str, value=filed.Entry)
    notes = keyplan.Table("notes/{note}", key=str, value=str)
    more = keyplan.Table("more/{note}", key=str, value=str)


def test_what_was_dropped_does_not_come_back_with_a_later_file(tmp_path: Path) -> None:
    names = [(f"{__name__}:{kind.__name__}", kind.bound()) for kind in (Without, Again)]
    plain = (named(filed.Plain), filed.Plain.bound())
    draft_migration(read_migrations(tmp_path), "without", plain, names[0], drops=["notes"])
    draft_migration(read_migrations(tmp_path), "again", *names)
    with keyplan.open("memory:", layout_check="off") as store:
        written(store)
        folder = read_migrations(tmp_path)
        place = place_in(folder, store.engine, bound)
        assert place.why == "0001_without drops what it names"
        carried_out(store, folder)
        assert Again(store).notes.count() == 0
        # The second file has no steps: nothing is to be written for a table that is new.
        assert place_in(folder, store.engine, bound).done == 2


class Dated(msgspec.Struct, frozen=True):
    title: str
    author: str = "unknown"


class Redated(msgspec.Struct, frozen=True):
    title: str
    author: str = "nobody"


class First(Layout, root="/f/"):
    entries = keyplan.Table("entries/{number}", key=str, value=Dated)


class Second(Layout, root="/f/"):
    entries = keyplan.Table("moved/{number}", key=str, value=Redated)


class Third(Layout, root="/f/"):
    entries = keyplan.Table("elsewhere/{number}", key=str, value=Redated)


class Packed(Layout, root="/f/"):
    entries = keyplan.Table("elsewhere/{number}", key=str, value=Redated, form="msgpack")


@pytest.mark.parametrize(
    ("layouts", "legs"),
    [
        ((First, Second, Third), ["0001_to_second to 0002_to_third"]),
        ((First, Second, Packed), ["0001_to_second", "0002_to_packed"]),
    ],
)
def test_another_default_keeps_files_apart_only_where_records_are_written_anew(
    tmp_path: Path, layouts: tuple[type[Layout], ...], legs: list[str]
) -> None:
    for old, new in pairwise(layouts):
        ends = ((f"{__name__}:{kind.__name__}", kind.bound()) for kind in (old, new))
        draft_migration(read_migrations(tmp_path), f"to_{new.__name__.lower()}", *ends)
    folder = read_migrations(tmp_path)
    with keyplan.open("memory:") as store:
        raw_key = First.bound().tables["entries"].keys.encode("a")
        store.engine.commit(Commit((), (Put(raw_key, b'{"title":"t"}'),)))  # as of a time before there were authors
        why = place_in(folder, store.engine, bound).why
        assert ("changes the default of" in why) == (len(legs) > 1)
        assert carried_out(store, folder) == legs
        assert layouts[-1](store).entries.require("a") == Redated("t")  # type: ignore[attr-defined]
