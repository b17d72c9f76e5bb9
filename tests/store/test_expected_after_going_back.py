"""A bare revision from before a store went back, on engines that count revisions themselves: it comes again nowhere.

So a number that was kept as text, in an ETag or in another database, is as good as the record that was read.
"""

import shutil
from pathlib import Path

import pytest

import keyplan
from keyplan.engine import LEAP
from keyplan.errors import StaleRecordError
from tests.store.layouts import Rack, Site


@pytest.mark.parametrize("form", ["as it was read", "its revision"])
def test_a_folder_that_was_put_back_gives_no_revision_out_twice(tmp_path: Path, form: str) -> None:
    folder, copy = tmp_path / "store", tmp_path / "copy"
    with keyplan.open(f"lmdb:{folder}") as store:
        Site(store).racks.insert("r1", Rack("hall"))
    shutil.copytree(folder, copy)
    with keyplan.open(f"lmdb:{folder}") as store:
        Site(store).racks.put("r1", Rack("seen"))
        seen = Site(store).racks.versioned("r1")
        assert seen is not None
    shutil.rmtree(folder)
    shutil.copytree(copy, folder)
    with keyplan.open(f"lmdb:{folder}") as store:
        site = Site(store)
        assert site.racks.put("r1", Rack("another's")) >= seen.revision + LEAP
        with pytest.raises(StaleRecordError):
            site.racks.put(
                "r1", Rack("lost update"), expected_revision=seen if form == "as it was read" else seen.revision
            )
        assert site.racks.require("r1").room == "another's"
