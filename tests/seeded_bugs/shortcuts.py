"""Bugs of shortcuts: of the operators that list and check them, and of tables that are named through them."""

from __future__ import annotations

from tests.seeded_bugs.bug import Bug

_NOWHERE = "operators/test_shortcuts.py::test_a_shortcut_that_leads_nowhere_fails_the_task_for_good"
_FORBIDDEN = "operators/test_shortcuts.py::test_a_shortcut_that_may_not_be_read_says_what_to_ask_for_and_writes_nothing"
_TOLD = "operators/test_outlets.py::test_assets_that_name_a_shortcuts_target_are_told_once_each_by_an_alias"
_COSTS = (
    "hooks/test_shortcuts.py"
    "::test_a_table_that_is_no_shortcut_costs_a_small_request_for_each_folder_and_asks_fabric_nothing"
)

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
    Bug(
        "a load through a shortcut does not tell who names its target",
        "operators._outlets",
        "    for uri in dict.fromkeys(uris):\n",
        "    for uri in ():\n",
        (_TOLD,),
    ),
    Bug(
        "a load that has a shortcut's target among its outlets tells it twice",
        "operators._outlets",
        "        if uri in told:\n",
        "        if uri in ():\n",
        (_TOLD,),
    ),
    Bug(
        "a shortcut that OneLake marks is not followed by itself",
        "hooks.onelake",
        "        if asks and is_marked(",
        "        if False and is_marked(",
        ("hooks/test_shortcuts.py::test_what_onelake_marks_as_a_shortcut_is_followed",),
    ),
    Bug(
        "Fabric's REST is asked of each table whether it is a shortcut",
        "hooks.onelake",
        "        if asks and is_marked(named, credentials, min(self.patience, _SHORT_PATIENCE)):\n",
        "        if asks:\n",
        (f"{_COSTS}[Tables/own-1]",),
    ),
    Bug(
        "a target that may be out of reach is followed unasked",
        "hooks.onelake",
        "        asks = named.host is None and ",
        "        asks = ",
        ("hooks/test_shortcuts.py::test_nobody_is_asked_where_fabric_or_the_target_may_be_out_of_reach",),
    ),
]
