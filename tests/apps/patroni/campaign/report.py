"""The report of a campaign, as markdown, from what it told. Nothing here runs anything but programs that say their version."""

import importlib.metadata
import os
import platform
import re
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from statistics import median
from typing import Any, Final

from tests.apps.patroni.campaign.site import LAG_BYTES_MAX, TTL_SECONDS
from tests.apps.patroni.campaign.wall_clock import why_no_clock

__all__ = ["report_of", "versions"]

Record = Mapping[str, Any]

_STORES: Final = {
    "embedded-v2": "LMDB, v2 gateway",
    "embedded-v3": "LMDB, v3 gateway",
    "etcd": "etcd itself",
}
_PROGRAMS: Final = {
    "PostgreSQL": ("psql", "--version"),
    "HAProxy": ("haproxy", "-v"),
    "etcd": ("etcd", "--version"),
}
_PATH: Final = re.compile(r"(?<![\w./])(?:/[\w.@+~-]+){2,}")
"""A path of a machine: of more than one name, and no part of a URL behind its host."""
_HEAD: Final = """\
# Patroni clusters under faults

<!-- Written by scripts/patroni-campaign: changes are overwritten. -->

`scripts/patroni-campaign HOURS` runs clusters of three nodes, each on a machine of its own, made by `unshare`, with a
network and a disk in memory. In the centre are the store, the broker, the router and four clients. They write rows through the
router without a pause; half of them connect anew again and again. A fault is done to the cluster and healed. When one node
leads and all others stream from it again, nobody writes, and all rows that were acknowledged are looked for, on the leader
and on each replica.

Patroni's `ttl` is {ttl}, `loop_wait` 2, `retry_timeout` 5, `maximum_lag_on_failover` {lag}, and `failsafe_mode` is on, as in
all new clusters. `fsync` is off: no fault here takes a kernel away. PostgreSQL talks TLS. `sync` is `synchronous_mode`: with it
no acknowledged row may be lost. Without, a failover may lose as much log as a replica may lack. That is
`maximum_lag_on_failover` and what was written in the last TTL, because a replica is compared with what the leader last wrote
into the store.
"""
_MEANING: Final = """\
- *outage*: the longest time in which no client was told that a row is committed, from the fault to the whole cluster.
- *whole*: from the end of the fault until one node leads, all others stream from it, and one is synchronous in that mode.
- *stale*: rows that an earlier leader acknowledged, and that were asked for when a later one had acknowledged already.
- A row whose answer did not come is unknown, and not counted. Nor is one that PostgreSQL acknowledged with the warning that
  it might not have been replicated.
"""


def versions() -> dict[str, str]:
    """The machine, and what runs on it."""
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    system = os.uname()
    found = {
        "begun": datetime.now(UTC).strftime("%Y-%m-%d"),
        "machine": f"{os.cpu_count()} processors, {round(pages / 2**30)} GiB of memory, {system.sysname} {system.release}",
        "Python": platform.python_version(),
        "keyplan": importlib.metadata.version("keyplan"),
        "Patroni": importlib.metadata.version("patroni"),
    }
    for name, words in _PROGRAMS.items():
        said = subprocess.run(words, capture_output=True, text=True, check=False).stdout.splitlines()
        numbers = [word for word in (said[0] if said else "").split() if word[0].isdigit()]
        found[name] = numbers[0] if numbers else "of unknown version"
    found["clock"] = why_no_clock() or "a library that is preloaded for Patroni and PostgreSQL of the first machine"
    return found


def report_of(records: Sequence[Record], note: str = "") -> str:
    """Return the report, with what somebody has to say of the run."""
    faults = [record for record in records if record["kind"] == "fault"]
    parts = [
        _HEAD.format(ttl=TTL_SECONDS, lag=LAG_BYTES_MAX),
        "## What was run\n",
        _ran(records, faults, note),
        "## What was lost\n",
        _by_combination(records, faults),
        "## By fault\n",
        _MEANING,
        _by_fault(faults),
        "## What was found\n",
        _findings(records, faults),
    ]
    return "\n".join(parts)


def _table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join("| " + " | ".join(str(cell) for cell in line) + " |\n" for line in lines)


def _ran(records: Sequence[Record], faults: Sequence[Record], note: str) -> str:
    told = [record for record in records if record["kind"] == "versions"]
    seeds = sorted({record["seed"] for record in faults})
    acknowledged = sum(record["acknowledged"] for record in faults)
    lines = [f"- {name}: {value}" for name, value in (told[-1] if told else {}).items() if name != "kind"]
    lines.append(f"- seeds: {', '.join(map(str, seeds))}")
    lines.append(f"- {len(faults)} faults, {acknowledged:,} rows acknowledged")
    lines += [f"- {note}"] if note else []
    return "\n".join(lines) + "\n"


def _seconds(found: Sequence[float]) -> str:
    return f"{median(found):.0f}, {max(found):.0f}" if found else "-"


def _lost_bytes(faults: Sequence[Record], mode: str) -> str:
    """The loss that is furthest beyond what is allowed, or else nearest to it."""
    losses = [loss for record in faults for loss in record["lost"]]
    if not losses:
        return "0"
    worst = max(
        losses, key=lambda loss: (not loss["is_within_bound"], loss["log_bytes"] / max(1, loss["log_bytes_max"]))
    )
    allowed = max(0, worst["log_bytes_max"]) if mode == "async" else 0
    return f"{worst['log_bytes']:,} of {allowed:,}" if worst["log_bytes_max"] >= 0 else "of unknown length"


def _told(text: str) -> str:
    """The first line of what somebody said, without the folders of the machine that it was said on."""
    first = (text.splitlines() or [""])[0]
    return _PATH.sub(lambda found: found[0].rpartition("/")[2], first)


def _by_combination(records: Sequence[Record], faults: Sequence[Record]) -> str:
    head = [
        "store",
        "mode",
        "faults",
        "acknowledged",
        "lost rows",
        "lost log, of allowed, bytes",
        "stale",
        "not whole again",
    ]
    head += ["replicas that differ", "secrets found"]

    def row(store: str, mode: str) -> list[object]:
        own = [record for record in faults if (record["store"], record["mode"]) == (store, mode)]
        told = [record for record in records if record["kind"] == "secrets"]
        leaks = [record for record in told if (record["store"], record["mode"]) == (store, mode)]
        return [
            *(_STORES[store], mode, len(own), f"{sum(record['acknowledged'] for record in own):,}"),
            *(_sum(own, "lost_rows"), _lost_bytes(own, mode), _sum(own, "stale")),
            *(
                sum(not record["is_whole"] for record in own),
                sum(record["is_whole"] and bool(record["differing"]) for record in own),
            ),
            sum(len(record["found"]) for record in leaks) if leaks else "not searched",
        ]

    run = {(record["store"], record["mode"]) for record in records if "store" in record}
    return _table(head, [row(store, mode) for store in _STORES for mode in ("sync", "async") if (store, mode) in run])


def _sum(faults: Iterable[Record], name: str) -> int:
    return sum(record[name] for record in faults)


def _by_fault(faults: Sequence[Record]) -> str:
    head = ["fault", "times", "lost rows, sync", "lost rows, async", "stale", "outage, s: median, worst"]
    head += [f"outage, {name}" for name in _STORES.values()]
    head += ["whole, s: median, worst"]

    def row(name: str) -> list[object]:
        own = [record for record in faults if record["fault"] == name]

        def outages(*stores: str) -> str:
            return _seconds([record["outage_seconds"] for record in own if record["store"] in stores])

        return [
            *(name, len(own)),
            *(_sum((record for record in own if record["mode"] == mode), "lost_rows") for mode in ("sync", "async")),
            *(_sum(own, "stale"), outages(*_STORES)),
            *(outages(store) for store in _STORES),
            _seconds([record["whole_seconds"] for record in own if record["is_whole"]]),
        ]

    return _table(head, [row(name) for name in sorted({record["fault"] for record in faults})])


def _where(record: Record) -> str:
    return f"{_STORES[record['store']]}, {record['mode']}"


def _findings(records: Sequence[Record], faults: Sequence[Record]) -> str:
    lines = []
    for record in faults:
        where = f"{_where(record)}, seed {record['seed']}, fault {record['number']}: {record['fault']}"
        for loss in record["lost"]:
            is_kept = loss["is_within_bound"] and record["mode"] == "async"
            word = "within the bound" if is_kept else "**beyond what is allowed**"
            size = f"{loss['log_bytes']:,} bytes of log" if loss["log_bytes_max"] >= 0 else "which no leader left"
            lines.append(
                f"- {where}: {loss['rows']} acknowledged rows of timeline {loss['timeline']} lost, {size}, {word}."
            )
        if record["stale"]:
            lines.append(
                f"- {where}: a former leader acknowledged {record['stale']} rows until {record['stale_seconds']} s"
                f" after the next one's first; {record['stale_and_lost']} of them are lost."
            )
        if record["two_leaders"]:
            lines.append(f"- {where}: **two leaders of one timeline**: {record['two_leaders']}.")
        if record["is_whole"]:  # else that one does not follow is what is told
            lines += [f"- {where}: **a replica differs**: {_told(each)}" for each in record["differing"]]
        lines += [f"- {where}: {_told(note)}" for note in record["notes"]]
        if not record["is_whole"]:
            helped = ", before Patroni is ended on each node and started again" if record.get("is_helped") else ""
            lines.append(f"- {where}: **the cluster is not whole again**{helped}: {record['state']}.")
    for record in records:
        if record["kind"] == "secrets":
            what = _where(record)
            lines += [f"- {what}: **a secret is found**: {each}." for each in record["found"]]
            lines += [f"- {what}: open to others: {each}." for each in record["open_to_others"]]
        if record["kind"] in {"stuck", "ended"}:
            told = _told(str(record.get("problem", f"code {record.get('code')}")))
            what = f"{_where(record)}, seed {record['seed']}"
            lines.append(f"- {what}: **given up**: {record.get('fault', 'the run')}: {told}.")
    searched: list[str] = next((record["searched"] for record in records if record["kind"] == "secrets"), [])
    if searched:
        lines.append(
            f"- Searched for in all logs, command lines, environments, and files that others may read: {', '.join(searched)}."
        )
    return "\n".join(lines or ["- Nothing."]) + "\n"
