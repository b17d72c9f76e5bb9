"""The house style, checked on every file of the repository."""

import ast
import importlib
import os
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterable, Iterator
from typing import Final

import pytest

from keyplan import errors
from tests.tidy import calls, documents, imports, leftovers, names, public, sizes
from tests.tidy.sources import ROOT, Finding, Source, python_files, text_files, trees_kept

Check = Callable[[Source], Iterator[Finding]]

PRODUCT: Final = ("src",)
OURS: Final = ("src", "scripts", "examples")
EVERYTHING: Final = ("src", "scripts", "examples", "tests")

CHECKS: Final[dict[Check, tuple[str, ...]]] = {
    calls.clocks_and_chance: PRODUCT,
    calls.code_in_data: OURS,
    calls.commits_without_epoch: PRODUCT,
    calls.broad_excepts: EVERYTHING,
    calls.half_caught_decoding: PRODUCT,
    calls.mutable_defaults: EVERYTHING,
    calls.native_byte_order: EVERYTHING,
    calls.prints: OURS,
    calls.unzoned_times: EVERYTHING,
    calls.waits: ("tests",),
    leftovers.silent_skips: ("src", "tests"),
    names.abbreviations: EVERYTHING,
    names.nameless_modules: EVERYTHING,
    public.incomplete_lists: PRODUCT,
    public.missing_docstrings: EVERYTHING,
}
TEXT_CHECKS: Final[tuple[Check, ...]] = (leftovers.notes, leftovers.machine_places)
RATCHET: Final = tomllib.loads((ROOT / "tests/tidy/ratchet.toml").read_text())


def nothing(findings: Iterable[Finding]) -> None:
    """Fail with one line for each finding; an import of five names reaches inside once."""
    found = list(dict.fromkeys(str(finding) for finding in findings))
    if found:
        pytest.fail("\n".join(found), pytrace=False)


def text(path: str) -> Source:
    return Source(path, (ROOT / path).read_text())


@pytest.fixture(scope="module", autouse=True)
def _trees() -> Iterator[None]:
    with trees_kept():
        yield


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_no_python_file_breaks(check: Check) -> None:
    nothing(finding for source in python_files(*CHECKS[check]) for finding in check(source))


@pytest.mark.parametrize("check", TEXT_CHECKS, ids=lambda check: check.__name__)
def test_no_text_file_holds(check: Check) -> None:
    nothing(finding for source in text_files() for finding in check(source))


def test_no_function_is_too_long() -> None:
    nothing(sizes.long_functions(python_files(*EVERYTHING), RATCHET["function_lines"]))


def test_no_file_is_too_long() -> None:
    nothing(sizes.long_files(python_files(*EVERYTHING), RATCHET["file_lines"]))


def test_no_import_reaches_into_another_package() -> None:
    nothing(imports.reaches_inside(python_files("src")))


def test_no_modules_import_one_another_in_a_circle() -> None:
    nothing(imports.circles(python_files("src")))


def declared_entry_points() -> list[str]:
    """The `module:name` of each command and plug-in that an installation registers."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    groups = [project["scripts"], *project.get("entry-points", {}).values()]
    return [target for group in groups for target in group.values()]


@pytest.mark.parametrize("target", declared_entry_points())
def test_every_entry_point_can_be_loaded(target: str) -> None:
    module, _, name = target.partition(":")
    assert hasattr(importlib.import_module(module), name)


def test_every_module_is_imported_by_somebody() -> None:
    entry_points = {target.partition(":")[0] for target in declared_entry_points()}
    nothing(imports.orphans(python_files("src"), entry_points, python_files("tests")))


def test_packages_offer_only_what_their_modules_list() -> None:
    nothing(public.unlisted_offers(python_files("src")))


def test_what_is_imported_when_it_is_first_used_is_what_checkers_see() -> None:
    nothing(public.misplaced_lazy_names(python_files("src")))


def packages() -> list[Source]:
    return [source for source in python_files("src") if source.path.endswith("/__init__.py")]


@pytest.mark.parametrize("package", packages(), ids=lambda package: package.module)
def test_every_public_name_says_what_it_promises(package: Source) -> None:
    nothing(public.undocumented_names(importlib.import_module(package.module), package.path))


def test_the_map_mentions_every_package_and_nothing_else() -> None:
    modules = {source.module for source in python_files("src")}
    faces = {imports.package_of(source.module) for source in packages()} - {"keyplan"}
    nothing(documents.map_gaps(text("ARCHITECTURE.md"), faces, modules))


def test_every_error_code_has_a_paragraph() -> None:
    codes = {getattr(errors, name).code for name in errors.__all__}
    nothing(documents.error_gaps(text("docs/reference/errors.md"), codes))


def test_every_error_class_has_a_code_of_its_own() -> None:
    codes = [getattr(errors, name).code for name in errors.__all__]
    assert sorted(codes) == sorted(set(codes))


def test_documents_use_the_words_of_the_glossary() -> None:
    banned = documents.banned_words(text("docs/glossary.md"))
    assert "bucket" in banned  # the table is found and read
    # Why: the generated pages of layouts speak the words of the systems that they are about.
    prose = [
        source
        for source in text_files()
        if source.path.endswith(".md")
        and source.path != "docs/glossary.md"
        and not source.path.startswith("docs/reference/layouts/")
    ]
    nothing(finding for source in prose for finding in documents.banned_synonyms(source, banned))


def test_the_library_needs_msgspec_alone() -> None:
    program = """
import sys
for name in ("lmdb", "typer", "click", "rich", "yaml", "google", "grpc", "hypothesis", "pytest", "fdb"):
    sys.modules[name] = None  # an import of it fails
import keyplan, keyplan.codec, keyplan.layout, keyplan.engine, keyplan.store
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, cwd=ROOT)
    assert ran.returncode == 0, ran.stderr


def test_scripts_can_be_run_and_are_well_formed() -> None:
    for name in ("scripts/demo", "scripts/test", ".ci/run"):
        assert os.access(ROOT / name, os.X_OK), f"{name} is not executable"
        subprocess.run(["bash", "-n", ROOT / name], check=True)


def test_every_python_file_parses() -> None:
    for source in python_files(*EVERYTHING):
        assert isinstance(source.tree, ast.Module)
