"""Bugs of shortcuts: of the operators that list and check them, and of tables that are named through them."""

from __future__ import annotations

from tests.seeded_bugs.bug import Bug

_NOWHERE = "operators/test_shortcuts.py::test_a_shortcut_that_leads_nowhere_fails_the_task_for_good"
_FORBIDDEN = "operators/test_shortcuts.py::test_a_shortcut_that_may_not_be_read_says_what_to_ask_for_and_writes_nothing"

BUGS = [
    Bug(
        "a check of a shortcut does not read what is behind it",
        "storage.shortcuts",
        "    check_target(store, address, found)\n    return found\n",
        "    return found\n",
        (f"{_NOWHERE}[the folder is gone]",),
    ),
    Bug(
        "a check does not compare where a shortcut leads",
        "operators.shortcuts",
        "        if self.hook.fabric().folder(self._address(wanted)) in folders:\n",
        "        if folders:\n",
        ("operators/test_shortcuts.py::test_a_table_in_a_schema_and_one_behind_several_shortcuts_are_followed",),
    ),
    Bug(
        "a check of a shortcut that is refused makes a probe, which writes",
        "operators.shortcuts",
        "        return self.hook.explained_by_reading(self.shortcut, error)\n",
        "        return self.hook.explained(self.shortcut, error)\n",
        (f"{_FORBIDDEN}[the shortcut's own side forbids it]",),
    ),
    Bug(
        "a check for writing passes a store that OneLake only reads",
        "operators.shortcuts",
        "            if self.writable and found.read_only is not None:\n",
        "            if False:\n",
        ("operators/test_shortcuts.py::test_a_store_that_onelake_only_reads_is_red_where_it_is_to_be_written",),
    ),
    Bug(
        "a list of shortcuts has addresses in place of paths",
        "operators.shortcuts",
        '                "path": each.at.path,\n',
        '                "path": str(each.at),\n',
        ("operators/test_shortcuts.py::test_shortcuts_are_listed_below_a_folder_and_in_all_of_the_lakehouse",),
    ),
    Bug(
        "a table's events call it by the shortcut",
        "table",
        "        return DeltaLog(given, str(self), name=self.name)\n",
        "        return DeltaLog(given, str(self.shortcut or self), name=self.name)\n",
        ("hooks/test_shortcuts.py::test_events_by_both_addresses_tell_of_one_commit",),
    ),
]
