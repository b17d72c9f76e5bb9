"""The command line. Applications' commands share its options and its ways of printing, which stand here.

A name's module is imported when the name is first used: `keyplan --help` comes through this package too.
"""

from typing import TYPE_CHECKING, Final

from keyplan.lazy_names import lazy_names

if TYPE_CHECKING:
    from keyplan.cli.audit_log import AuditOptions
    from keyplan.cli.failures import Faults, agreed, print_hint
    from keyplan.cli.jobs import stopped_by_signals, words_of
    from keyplan.cli.options import (
        ConfigOption,
        JsonOption,
        LayoutOption,
        ParameterOption,
        StoreOption,
        Unfinished,
        absolute_url,
        layout_of_option,
        root_parameters,
        spread,
        store_of_option,
        store_url_of_option,
    )
    from keyplan.cli.output import (
        ends_with_reader,
        print_grid,
        print_json,
        print_record,
        print_text,
        printable,
        progress_bar,
        with_progress,
    )
    from keyplan.cli.transfer import brought_into

__all__ = [
    "AuditOptions",
    "ConfigOption",
    "Faults",
    "JsonOption",
    "LayoutOption",
    "ParameterOption",
    "StoreOption",
    "Unfinished",
    "absolute_url",
    "agreed",
    "brought_into",
    "ends_with_reader",
    "layout_of_option",
    "print_grid",
    "print_hint",
    "print_json",
    "print_record",
    "print_text",
    "printable",
    "progress_bar",
    "root_parameters",
    "spread",
    "stopped_by_signals",
    "store_of_option",
    "store_url_of_option",
    "with_progress",
    "words_of",
]

_MODULES: Final = {
    "failures": ("Faults", "agreed", "print_hint"),
    "jobs": ("stopped_by_signals", "words_of"),
    "audit_log": ("AuditOptions",),
    "options": (
        *("ConfigOption", "JsonOption", "LayoutOption", "ParameterOption", "StoreOption", "Unfinished"),
        *("absolute_url", "layout_of_option", "root_parameters", "spread", "store_of_option", "store_url_of_option"),
    ),
    "output": (
        *("ends_with_reader", "print_grid", "print_json", "print_record", "print_text", "printable"),
        *("progress_bar", "with_progress"),
    ),
    "transfer": ("brought_into",),
}

if not TYPE_CHECKING:  # Why: type checkers would take every misspelt name for one that this function knows.
    __getattr__ = lazy_names(__name__, _MODULES)
