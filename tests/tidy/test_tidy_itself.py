"""Each check finds what it is for, and leaves alone what looks like it."""

import types
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import pytest

from tests.tidy import calls, documents, imports, leftovers, names, public, sizes
from tests.tidy.sources import Finding, Source


def source(text: str, path: str = "src/keyplan/store/plan.py") -> Source:
    return Source(path, text)


def lines(findings: Iterable[Finding]) -> list[int]:
    return [finding.line for finding in findings]


def test_a_finding_reads_as_a_compiler_s_message() -> None:
    finding = Finding("src/a.py", 7, "print outside the command line", "a value")
    assert str(finding) == "src/a.py:7: error: print outside the command line, use a value"


@pytest.mark.parametrize(
    ("path", "module"),
    [
        ("src/keyplan/codec/text.py", "keyplan.codec.text"),
        ("src/keyplan/codec/__init__.py", "keyplan.codec"),
        ("tests/codec/test_text.py", ""),
    ],
)
def test_a_source_knows_its_module(path: str, module: str) -> None:
    assert Source(path, "").module == module


def function_of(code_lines: int) -> str:
    body = "".join(f"    x{number} = {number}\n" for number in range(code_lines - 1))
    return f'def long() -> None:\n    """Two lines of\n    docstring."""\n    # a comment\n\n{body}'


def test_a_function_of_71_code_lines_is_too_long_and_one_of_70_is_not() -> None:
    assert not list(sizes.long_functions((source(function_of(70)),), {}))
    (finding,) = sizes.long_functions((source(function_of(71)),), {})
    assert finding.problem == "src/keyplan/store/plan.py::long has 71 lines, 70 are allowed"


def test_an_inner_function_is_measured_by_its_dotted_name() -> None:
    inner = source("class A:\n    def b(self) -> None:\n        def c() -> None:\n            pass\n")
    assert [name for name, _ in sizes.functions(inner.tree)] == ["A.b", "A.b.c"]


def test_the_ratchet_allows_what_it_lists_and_only_that() -> None:
    name = "src/keyplan/store/plan.py::long"
    assert not list(sizes.long_functions((source(function_of(80)),), {name: 80}))
    assert len(list(sizes.long_functions((source(function_of(81)),), {name: 80}))) == 1


def test_the_ratchet_must_shrink_with_the_code() -> None:
    name = "src/keyplan/store/plan.py::long"
    (finding,) = sizes.long_functions((source(function_of(75)),), {name: 80})
    assert finding.use == "75, or no entry below 70"
    (gone,) = sizes.long_functions((), {name: 80})
    assert gone.problem == f"the ratchet lists {name}, which is not there"


def test_a_file_of_501_lines_is_too_long_and_one_of_500_is_not() -> None:
    assert not list(sizes.long_files((source("\n" * 500),), {}))
    assert len(list(sizes.long_files((source("\n" * 501),), {}))) == 1


TEXT = Source("src/keyplan/codec/text.py", "")
CODEC = Source("src/keyplan/codec/__init__.py", "")
PLAN = "src/keyplan/store/plan.py"


@pytest.mark.parametrize(
    ("path", "text", "found"),
    [
        (PLAN, "from keyplan.codec.text import Text\n", [1]),
        (PLAN, "from keyplan.codec import text\n", [1]),
        (PLAN, "def f() -> None:\n    import keyplan.codec.text\n", [2]),
        (PLAN, "from keyplan.codec import Text\n", []),
        (PLAN, "from keyplan.errors import NotFoundError\n", []),
        ("src/keyplan/codec/keys.py", "from keyplan.codec.text import Text\n", []),
        ("src/keyplan/apps/runm/layout.py", "from keyplan.codec.text import Text\n", [1]),
    ],
)
def test_an_import_goes_through_the_package(path: str, text: str, found: list[int]) -> None:
    assert (
        lines(imports.reaches_inside((TEXT, CODEC, Source("src/keyplan/errors.py", ""), source(text, path)))) == found
    )


def test_a_name_that_a_package_offers_may_be_that_of_a_module() -> None:
    offering = Source("src/keyplan/codec/__init__.py", '__all__ = ["text"]\n')
    inside = Source("src/keyplan/codec/text.py", '__all__ = ["Text"]\n')
    user = source("from keyplan.codec import text\nfrom keyplan.codec.text import Text\n", PLAN)
    assert lines(imports.reaches_inside((offering, inside, user))) == [2]


def test_an_application_may_use_its_own_modules_and_not_another_s() -> None:
    own = Source("src/keyplan/apps/runm/layout.py", "")
    inside = Source("src/keyplan/apps/runm/cli.py", "from keyplan.apps.runm.layout import Runm\n")
    outside = Source("src/keyplan/apps/hepnos/cli.py", "from keyplan.apps.runm.layout import Runm\n")
    assert [finding.path for finding in imports.reaches_inside((own, inside, outside))] == [outside.path]


CIRCLE = (
    Source("src/keyplan/store/plan.py", "from keyplan.store.reads import Reads\n"),
    Source("src/keyplan/store/reads.py", "import os\n\nfrom keyplan.store import session\n"),
    Source("src/keyplan/store/watch.py", "from keyplan.store.plan import Write\n"),
)


@pytest.mark.parametrize(
    "text",
    [
        "from keyplan.store.plan import Write\n",
        "if TYPE_CHECKING:\n    from keyplan.store.plan import Write\n",
        "def late() -> None:\n    import keyplan.store.plan\n",
    ],
)
def test_a_circle_of_imports_is_found_wherever_the_import_stands(text: str) -> None:
    closing = Source("src/keyplan/store/session.py", text)
    (finding,) = imports.circles((*CIRCLE, closing))
    assert finding.path in {"src/keyplan/store/plan.py", "src/keyplan/store/reads.py", closing.path}
    assert all(name in finding.problem for name in ("store.plan", "store.reads", "store.session"))
    assert "store.watch" not in finding.problem


def test_imports_without_a_circle_are_none() -> None:
    assert not list(
        imports.circles((*CIRCLE, Source("src/keyplan/store/session.py", "import keyplan.store.session\n")))
    )


def test_a_module_that_nobody_imports_is_found() -> None:
    user = Source("src/keyplan/codec/__init__.py", "from keyplan.codec.text import Text\n")
    lonely = Source("src/keyplan/codec/lonely.py", "")
    assert [finding.path for finding in imports.orphans((user, TEXT, lonely), set())] == [lonely.path]


def test_a_module_is_not_lonely_when_an_entry_point_or_a_registry_names_it() -> None:
    main = Source("src/keyplan/cli/main.py", "")
    engine = Source("src/keyplan/engine/lmdb.py", "")
    registry = Source("src/keyplan/engine/__init__.py", 'ENGINES = {"lmdb": "keyplan.engine.lmdb:open"}\n')
    assert not list(imports.orphans((main, engine, registry), {"keyplan.cli.main"}))


def test_a_test_is_a_user_of_the_test_kit_only() -> None:
    kit, plan = Source("src/keyplan/testing/faults.py", ""), source("")
    test = Source("tests/a.py", "import keyplan.testing.faults\nimport keyplan.store.plan\n")
    assert [finding.path for finding in imports.orphans((kit, plan), set(), (test,))] == [plan.path]


def test_importing_oneself_does_not_count() -> None:
    vain = Source("src/keyplan/codec/vain.py", "import keyplan.codec.vain\n")
    assert len(list(imports.orphans((vain,), set()))) == 1


@pytest.mark.parametrize(
    "text",
    [
        "import time\ntime.sleep(1)\n",
        "import time as t\nt.monotonic()\n",
        "from time import time as now\nnow()\n",
        "import random\nrandom.Random(1)\n",
        "import time\nclock = time.monotonic_ns\n",
    ],
)
def test_clocks_and_chance_are_found_under_any_name(text: str) -> None:
    assert lines(calls.clocks_and_chance(source(text))) == [2]
    assert not list(calls.clocks_and_chance(source(text, "src/keyplan/engine/clock.py")))
    assert not list(calls.clocks_and_chance(source(text, "src/keyplan/testing/faults.py")))


def test_a_variable_called_time_is_not_the_clock() -> None:
    assert not list(calls.clocks_and_chance(source("def f(time: object) -> object:\n    return time.sleep\n")))


def test_a_sleep_in_a_test_needs_its_why() -> None:
    assert lines(calls.waits(source("import time\ntime.sleep(1)\n"))) == [2]
    assert not list(
        calls.waits(source("import time\n# Why: the other process has no event to wait for.\ntime.sleep(1)\n"))
    )


def test_print_is_for_the_command_line() -> None:
    assert lines(calls.prints(source("print(1)\n"))) == [1]
    assert not list(calls.prints(source("print(1)\n", "src/keyplan/cli/main.py")))
    assert not list(calls.prints(source("print(1)\n", "src/keyplan/apps/cloudchamber/cli.py")))
    assert not list(calls.prints(source("console.print(1)\n")))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("struct.pack('Q', 1)", [1]),
        ("struct.Struct('=Q')", [1]),
        ("Struct('QQ')", [1]),
        ("struct.pack('>Q', 1)", []),
        ("struct.unpack_from('<I', raw)", []),
        ("struct.pack(layout, 1)", []),
        ("archive.pack('Q')", []),
    ],
)
def test_a_struct_format_states_its_byte_order(text: str, found: list[int]) -> None:
    assert lines(calls.native_byte_order(source(text))) == found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("import datetime\ndatetime.datetime.now()", [2]),
        ("from datetime import datetime\ndatetime.now()", [2]),
        ("from datetime import datetime\ndatetime.utcnow()", [2]),
        ("from datetime import UTC, datetime\ndatetime.now(UTC)", []),
        ("clock.now()", []),
    ],
)
def test_a_time_has_a_zone(text: str, found: list[int]) -> None:
    assert lines(calls.unzoned_times(source(text))) == found


def test_pickle_is_found() -> None:
    assert lines(calls.code_in_data(source("import json, pickle\nfrom marshal import loads\n"))) == [1, 2]


@pytest.mark.parametrize(
    ("call", "is_found"),
    [
        ("Commit(guards, mutations)", True),
        ("Commit((KeyUnchanged(key, 1),), mutations)", True),
        ("Commit((KeyAbsent(key), *guards), mutations)", True),
        ("Commit(guards=guards)", True),
        ("Commit(guards, mutations, snapshot.epoch)", False),
        ("Commit(guards, mutations, epoch=snapshot.epoch)", False),
        ("Commit((), mutations)", False),
        ("Commit(mutations=mutations)", False),
        ("Commit((KeyAbsent(key), RangeEmpty(keys), *map(KeyAbsent, keys)), mutations)", False),
    ],
)
def test_a_commit_with_guards_names_its_epoch(call: str, *, is_found: bool) -> None:
    assert bool(lines(calls.commits_without_epoch(source(call)))) is is_found


@pytest.mark.parametrize(
    ("kinds", "call", "found"),
    [
        ("msgspec.MsgspecError", "msgspec.json.decode(raw)", [3]),
        ("(msgspec.DecodeError, UnicodeDecodeError)", "decode(raw)", [3]),
        ("(OSError, msgspec.MsgspecError, RecursionError)", "form.decode(raw)", [3]),
        ("(msgspec.MsgspecError, ValueError, RecursionError)", "msgspec.json.decode(raw)", []),
        ("msgspec.MsgspecError", "msgspec.json.encode(record)", []),
        ("UnicodeDecodeError", "raw.decode()", []),
    ],
)
def test_what_decodes_catches_all_that_damaged_bytes_raise(kinds: str, call: str, found: list[int]) -> None:
    text = f"try:\n    {call}\nexcept {kinds}:\n    pass\n"
    assert lines(calls.half_caught_decoding(source(text))) == found


def test_mutable_defaults_are_found() -> None:
    assert lines(calls.mutable_defaults(source("def f(a=[], *, b=dict(), c=(), d=None): ...\n"))) == [1, 1]


@pytest.mark.parametrize(
    ("kinds", "body", "found"),
    [
        ("", "pass", [3]),
        (" Exception", "pass", [3]),
        (" (ValueError, BaseException)", "return None", [3]),
        (" BaseException", "raise", []),
        (" ValueError", "pass", []),
    ],
)
def test_an_except_names_what_it_catches(kinds: str, body: str, found: list[int]) -> None:
    assert lines(calls.broad_excepts(source(f"try:\n    f()\nexcept{kinds}:\n    {body}\n"))) == found


@pytest.mark.parametrize(
    "text", ["txn = 1", "def f(ks): ...", "class StoreMgr_impl: ...", "with f() as read_txn: ...", "import a as cfg"]
)
def test_abbreviations_are_found(text: str) -> None:
    assert lines(names.abbreviations(source(text))) == [1]


def test_a_driver_s_own_words_are_not_ours() -> None:
    assert not list(
        names.abbreviations(source("with env.begin() as read:\n    read.get(key, txn=read.txn)\nmasks = 1\n"))
    )


def test_modules_have_a_noun() -> None:
    assert len(list(names.nameless_modules(source("", "src/keyplan/codec/utils.py")))) == 1
    assert len(list(names.nameless_modules(source("", "src/keyplan/core/text.py")))) == 1
    assert not list(names.nameless_modules(source("", "src/keyplan/codec/baseline.py")))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("# FIX" + "ME later", [1]),
        ("break" + "point()", [1]),
        ("# TO" + "DO later", [1]),
        ("# TO" + "DO(ada): see issue 12", []),
        ("methodology", []),
    ],
)
def test_notes_to_oneself_are_found(text: str, found: list[int]) -> None:
    assert lines(leftovers.notes(source(text))) == found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("cd /wo" + "rk/main", [1]),
        ("'/ro" + "ot/x'", [1]),
        ("https://py" + "pi.org/simple", [1]),
        ("/service/homework/1", []),
        ("docs/ro" + "ot/a", []),
    ],
)
def test_places_on_one_machine_are_found(text: str, found: list[int]) -> None:
    assert lines(leftovers.machine_places(source(text))) == found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("@pytest.mark.skip\ndef test_a(): ...", [1]),
        ("pytest.skip()", [1]),
        ("@pytest.mark.skipif(True)\ndef test_a(): ...", [1]),
        ("@pytest.mark.skipif(True, reason='no etcd')\ndef test_a(): ...", []),
        ("pytest.skip('no etcd here')", []),
    ],
)
def test_a_skip_says_why(text: str, found: list[int]) -> None:
    assert lines(leftovers.silent_skips(source(text))) == found


def test_a_module_says_what_it_holds() -> None:
    assert lines(public.missing_docstrings(source("x = 1\n"))) == [1]
    assert not list(public.missing_docstrings(source('"""Numbers."""\nx = 1\n')))
    assert not list(public.missing_docstrings(source("")))


OFFER = "from keyplan.codec.text import Text\n"


@pytest.mark.parametrize(
    ("path", "text", "found"),
    [
        (PLAN, "def f(): ...", [1]),
        (PLAN, "__all__ = ['f', 'f']\ndef f(): ...", [1]),
        (PLAN, "__all__ = ['f']\ndef f(): ...\ndef g(): ...", []),
        (PLAN, OFFER + "_x = Text", []),
        ("src/keyplan/codec/__init__.py", OFFER, [1]),
        ("src/keyplan/codec/__init__.py", OFFER + "__all__ = []", [1]),
        ("src/keyplan/codec/__init__.py", OFFER + "__all__ = ['Text']", []),
        ("src/keyplan/codec/__init__.py", OFFER + "__all__ = ['Own']\nclass Own(Text): ...", []),
        ("src/keyplan/codec/__init__.py", '"""Nothing yet."""', []),
    ],
)
def test_what_is_offered_is_listed(path: str, text: str, found: list[int]) -> None:
    assert lines(public.incomplete_lists(source(text, path))) == found


def test_a_package_offers_only_what_its_modules_list() -> None:
    face = Source("src/keyplan/codec/__init__.py", OFFER + "__all__ = ['Text']")
    listing = Source("src/keyplan/codec/text.py", "__all__ = ['Text']\nclass Text: ...\n")
    silent = Source("src/keyplan/codec/text.py", "__all__ = []\nclass Text: ...\n")
    assert not list(public.unlisted_offers((face, listing)))
    assert lines(public.unlisted_offers((face, silent))) == [1]


LAZY = "from keyplan.lazy_names import lazy_names\nif TYPE_CHECKING:\n    from keyplan.store.plan import {seen}\n"


@pytest.mark.parametrize(
    ("seen", "imported", "count"),
    [
        ("Plan", '"plan": ("Plan",)', 0),
        ("Plan, Write", '"plan": ("Plan", *("Write",))', 0),
        ("Plan, Write", '"plan": ("Plan",)', 1),
        ("Plan", '"plan": ("Plan", "Write")', 1),
        ("Plan", '"store": ("Plan",)', 2),
        ("plan", '"plan": ("plan",)', 1),
    ],
)
def test_lazy_names_are_those_that_checkers_see_and_no_modules(seen: str, imported: str, count: int) -> None:
    face = Source("src/keyplan/store/__init__.py", LAZY.format(seen=seen) + f"_MODULES: Final = {{{imported}}}\n")
    module = Source("src/keyplan/store/plan.py", "")
    assert len(list(public.misplaced_lazy_names((face, module)))) == count


class Promising:
    """Keeps its word."""


class Silent(Promising):
    pass


class Pair(NamedTuple):
    left: int


@dataclass
class Point:
    x: int


def test_docstrings_that_python_writes_do_not_count() -> None:
    package = types.ModuleType("keyplan.example")
    vars(package).update(Promising=Promising, Silent=Silent, Pair=Pair, Point=Point, LIMIT=3)
    vars(package)["__all__"] = ["LIMIT", "Pair", "Point", "Promising", "Silent"]
    problems = [finding.problem for finding in public.undocumented_names(package, "x")]
    assert problems == ["Pair has no docstring", "Point has no docstring", "Silent has no docstring"]


def test_the_map_and_the_packages_agree() -> None:
    drawn = Source("ARCHITECTURE.md", "`keyplan.codec` here\n`keyplan.gone` there, `keyplan.store.plan` too\n")
    found = documents.map_gaps(drawn, {"keyplan.codec", "keyplan.layout"}, {"keyplan.store.plan"})
    assert [finding.problem for finding in found] == [
        "keyplan.layout is not on the map",
        "keyplan.gone is on the map but not in src",
    ]


def test_errors_and_their_paragraphs_agree() -> None:
    whole = "**Meaning.** a\n**Usual cause.** b\n**What to do.** c\n"
    reference = Source("errors.md", f"# Errors\n## `conflict`\n{whole}## `gone`\n{whole}## `lint`\n**Meaning.** a\n")
    problems = [finding.problem for finding in documents.error_gaps(reference, {"conflict", "lint", "record"})]
    assert problems == [
        "the error record has no paragraph",
        "there is no error gone",
        "the paragraph of lint lacks **Usual cause.**",
        "the paragraph of lint lacks **What to do.**",
    ]


GLOSSARY = Source(
    "g.md",
    "| bucket | x | y |\n## Words we do not use\n| not | say | because |\n|---|---|---|\n| schema | layout | one |\n",
)


def test_the_glossary_s_table_is_read() -> None:
    assert documents.banned_words(GLOSSARY) == {"schema": "layout"}


def test_second_words_are_found_in_prose_and_not_in_code_or_quotations() -> None:
    text = 'A Schema.\n`schema`\n"the schema" they say\n```\nschema\n```\ntwo schemas\n[x](schema.md)\n'
    assert lines(documents.banned_synonyms(Source("a.md", text), documents.banned_words(GLOSSARY))) == [1, 7]
