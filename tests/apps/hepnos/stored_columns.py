"""What a data set has of a file, by the paths that the file has it under."""

from typing import Any

import awkward as ak

from keyplan.apps import hepnos


def stored_columns(dataset: hepnos.DataSet, label: str) -> dict[str, Any]:
    """Return each column that was loaded by the path that a file may have it under, an entry for each event."""
    found: dict[str, Any] = {}
    whole = hepnos.to_awkward(dataset)
    for key in dataset.tables:
        lists = whole[key]
        names = ak.fields(lists)
        if not names:
            found[key] = lists
            continue
        for name in names:
            column = lists[name]
            if key == label:
                found[name] = column[:, 0]
            else:
                last = key.rpartition("/")[2].removesuffix(".")
                found |= dict.fromkeys((f"{key}_{name}", f"{key}/{last}.{name}", f"{key}.{name}"), column)
        found.setdefault(key, lists)
    return found
