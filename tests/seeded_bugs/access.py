"""Bugs of who may do what: the local OneLake's enforcement, and the check that says which step decided."""

from __future__ import annotations

from tests.seeded_bugs.bug import Bug

_TABLE = "local_onelake/test_access.py::test_every_line_of_the_table_of_roles"
_SIDES = "local_onelake/test_access.py::test_both_sides_of_a_shortcut_decide"
_FOLDER = "local_onelake/test_access.py::test_a_role_on_a_folder_hides_those_beside_it_and_lets_its_parents_be_passed"
_CALLER = "storage/test_access.py::test_who_signs_in_is_told_by_the_store_and_by_what_fabric_shows"
_CALLER_ALONE = "storage/test_access.py::test_without_fabric_the_store_alone_says_it_and_a_note_says_why"
_BY_READING = "storage/test_access_by_reading.py"
_LISTED = (
    "local_onelake/fabric/test_through.py::test_a_viewer_reads_what_a_role_grants_and_both_sides_of_a_shortcut_decide"
)
_NOT_SHOWN = (
    "storage/test_access.py::test_where_permissions_of_the_item_are_not_shown_a_yes_is_sure_and_a_no_is_unknown"
)
_PRINCIPAL = "storage/test_access.py::test_of_another_principal_the_role_that_decided_is_named"
_BEFORE = "storage/test_access_before_a_load.py"
_OUTSIDE = f"{_BEFORE}::test_of_a_store_behind_a_shortcut_only_what_onelake_itself_forbids_is_refused"
_LOAD = "operators/test_access.py::test_a_load_that_may_not_be_fails_before_spark_and_says_which_step_decided"

BUGS = [
    Bug(
        "a rule on rows or columns of a table hides nothing",
        "local_onelake.access",
        "        if any(hidden.covers(inside) for rule in rules for hidden, _, _ in hidden_by(rule)):\n",
        "        if not rules:\n",
        (f"{_TABLE}[Viewer from whom rows are hidden]",),
    ),
    Bug(
        "who may read may write",
        "local_onelake.access",
        '(not write or "ReadWrite" in grant.actions)',
        "True",
        (f"{_TABLE}[Viewer whom a role lets read]",),
    ),
    Bug(
        "a data access role alone lets its members in",
        "local_onelake.access",
        '        if "Read" not in held:\n            return\n',
        "",
        (f"{_TABLE}[nothing but a data access role]",),
    ),
    Bug(
        "every role is everybody's",
        "local_onelake.access",
        "            if _is_member(role.get(",
        "            if True or _is_member(role.get(",
        (f"{_TABLE}[Viewer beside a role of others]",),
    ),
    Bug(
        "a member by a permission needs any permission",
        "local_onelake.access",
        'and set(member["itemAccess"]) <= held',
        "and held",
        (f"{_TABLE}[item Read]", f"{_TABLE}[SQL ReadData]"),
    ),
    Bug(
        "a role on a folder grants what begins with its name",
        "local_onelake.access",
        'inside == self.path or inside.startswith(f"{self.path}/")',
        "inside.startswith(self.path)",
        (_FOLDER,),
    ),
    Bug(
        "the parents of what a role grants cannot be passed",
        "local_onelake.access",
        "        return any(grant.leads_from(inside) for rule in rules for grant in granted_by(rule))\n",
        "        return False\n",
        (_FOLDER,),
    ),
    Bug(
        "a list shows what may not be read",
        "local_onelake.rules",
        "        return [row for row in rows if shown(row[1])]\n",
        "        return rows\n",
        (_FOLDER,),
    ),
    Bug(
        "of a shortcut, only the target decides who writes",
        "local_onelake.rules",
        "    _check_may(lake, place.way, identity, write=True)\n    return place.key\n",
        "    _check_may(lake, place.way[-1:], identity, write=True)\n    return place.key\n",
        (f"{_SIDES}[the side of the shortcut forbids writing]",),
    ),
    Bug(
        "of a shortcut, only its own side decides who writes",
        "local_onelake.rules",
        "    _check_may(lake, place.way, identity, write=True)\n    return place.key\n",
        "    _check_may(lake, place.way[:1], identity, write=True)\n    return place.key\n",
        (f"{_SIDES}[the target forbids writing]",),
    ),
    Bug(
        "a list hides a link whose target may not be opened",
        "local_onelake.rules",
        "        if lake.shortcuts.at(spots[-1].item, spots[-1].inside) is not None:\n",
        "        if False:\n",
        (_LISTED,),
    ),
    Bug(
        "anybody may ask what a principal reads",
        "local_onelake.principal_access",
        'item_of(call, workspace_guid, item_guid, "Member")',
        "item_of(call, workspace_guid, item_guid)",
        ("local_onelake/test_access.py::test_principal_access_says_what_roles_let_a_principal_read",),
    ),
    Bug(
        "a silent store counts as one that refuses",
        "storage.access",
        "        return cls(None if isinstance(error, TransientError) else False, str(problem))\n",
        "        return cls(False, str(problem))\n",
        ("storage/test_access.py::test_of_any_other_store_the_probe_alone_says_it[no answer to a put]",),
    ),
    Bug(
        "a delete of nothing counts as a right to delete",
        "storage.access",
        "    if deleting.allowed:\n        deleting = ",
        "    if False:\n        deleting = ",
        ("storage/test_access.py::test_of_any_other_store_the_probe_alone_says_it[no right to write]",),
    ),
    Bug(
        "a table that cannot be listed can be read",
        "storage.access",
        'if reading.allowed and ("read" in first or "list" in first):',
        "if False:",
        ("storage/test_access.py::test_of_any_other_store_the_probe_alone_says_it[no right to list]",),
    ),
    Bug(
        "a Fabric that takes no requests counts as one that shows nothing",
        "storage.access",
        """return _Seen.UNKNOWN, f"Fabric's REST takes no requests""",
        """return _Seen.NOTHING, f"Fabric's REST takes no requests""",
        (f"{_CALLER_ALONE}[fabric refuses the sign-in]",),
    ),
    Bug(
        "who sees the workspace is taken for a Viewer, also if the store let it write",
        "storage.access",
        "        if right is Right.READ and may_only_read:\n",
        "        if right is Right.READ:\n",
        (f"{_CALLER}[Contributor]",),
    ),
    Bug(
        "the item's own side is named for what the target of a shortcut refuses",
        "storage.access",
        "        elif behind and outcome.allowed is False and behind[right].allowed is False:\n",
        "        elif False:\n",
        ("storage/test_access.py::test_it_says_which_side_of_a_shortcut_decides[the target forbids writing]",),
    ),
    Bug(
        "a shortcut's target is named for what its own side refuses",
        "storage.access",
        "        elif behind and outcome.allowed is False and behind[right].allowed is False:\n",
        "        elif behind and outcome.allowed is False:\n",
        ("storage/test_access.py::test_it_says_which_side_of_a_shortcut_decides[the own side forbids writing]",),
    ),
    Bug(
        "a rule on rows is overlooked where another role grants the table",
        "storage.granted",
        "        if hiding is not None:\n            return self._hidden(hiding)\n",
        "",
        (f"{_PRINCIPAL}[rows are hidden]",),
    ),
    Bug(
        "a role that reads is taken for one that writes",
        "storage.granted",
        '"ReadWrite" in actions or (not write and "Read" in actions)',
        '"ReadWrite" in actions or "Read" in actions',
        (f"{_PRINCIPAL}[a role reads]",),
    ),
    Bug(
        "permissions that are not shown count as none",
        "storage.granted",
        "        if answer.status_code != _OK:\n            return None\n",
        "        if answer.status_code != _OK:\n            return set()\n",
        ("storage/test_access.py::test_where_permissions_of_the_item_are_not_shown_a_yes_is_sure_and_a_no_is_unknown",),
    ),
    Bug(
        "a role is taken to grant something to who may not see the item",
        "storage.granted",
        "            return found if self._sees or ",
        "            return found if True or ",
        (_NOT_SHOWN,),
    ),
    Bug(
        "groups count as nobody",
        "storage.granted",
        'if found.allowed is False and any(each["role"] in WRITING_ROLES for each in self._groups):',
        "if False:",
        ("storage/test_access.py::test_where_a_group_may_write_a_no_is_unknown",),
    ),
    Bug(
        "a load that is refused does not say which step decided",
        "operators._terms",
        "            error = self.explained(error)\n",
        "            self.explained(error)\n",
        (f"{_LOAD}[Viewer-False]",),
    ),
    Bug(
        "a right that is missing and not needed makes the task red",
        "operators.access",
        " if each.right in self.need]",
        "]",
        ("operators/test_access.py::test_the_operator_is_red_where_a_right_is_missing_that_is_needed",),
        "AirflowFailException",
    ),
    Bug(
        "by reading alone, a Member whom the store refuses is said to be allowed to write",
        "storage.access",
        "    if seen is _Seen.ROLES and reading.allowed:\n",
        "    if seen is _Seen.ROLES:\n",
        (f"{_BY_READING}::test_a_store_that_refuses_a_member_leaves_writing_unknown",),
    ),
    Bug(
        "by reading alone, who reads is said to be allowed to write",
        "storage.access",
        "    return _only_a_probe(right, step, why)\n",
        "    return _explained(right, reading, seen, address)\n",
        (f"{_BY_READING}::test_reading_alone_says_what_it_can_and_never_what_a_probe_denies[Viewer who reads]",),
    ),
    Bug(
        "by reading alone, a shortcut's target does not count",
        "storage.access",
        "    if found.allowed is False or followed.address == address:\n",
        "    if found.allowed is False or followed.links:\n",
        (f"{_BY_READING}::test_through_a_shortcut_both_sides_count[both allow it]",),
    ),
    Bug(
        "the page makes a probe",
        "hooks.onelake",
        "        return look_up_access(self._asked(table))\n",
        "        return self.check_access(table)\n",
        ("plugins/test_access.py::test_a_viewer_sees_what_is_known_and_which_command_tells_the_rest",),
    ),
    Bug(
        "the page follows a path through any number of folders",
        "plugins.routes",
        '.path.count("/") > _DEEPEST:',
        '.path.count("/") < 0:',
        ("plugins/test_access.py::test_a_path_of_many_folders_is_not_followed",),
    ),
    Bug(
        "before a load, what OneLake does not tell of a right refuses it",
        "storage.access",
        "    if all(each.allowed is not False for each in tried.values()):\n        return None\n    report, followed",
        "    report, followed",
        (f"{_BEFORE}::test_a_right_that_onelake_does_not_tell_of_is_found_by_trying",),
        "IndexError",
    ),
    Bug(
        "before a load, it is refused though nobody knows which step decided",
        "storage.access",
        "    if outside or report.refused[0].step is Step.PROBE:\n",
        "    if outside:\n",
        (f"{_BEFORE}::test_where_fabric_does_not_say_which_step_decided_nothing_is_refused[401]",),
    ),
    Bug(
        "before a load, a right to delete that is missing in another store refuses it",
        "storage.access",
        "    if outside or report.refused[0].step is Step.PROBE:\n",
        "    if report.refused[0].step is Step.PROBE:\n",
        (f"{_OUTSIDE}[with rights of its own]",),
    ),
    Bug(
        "before a load, a store that does not answer counts as one that refuses",
        "storage.access",
        "_Outcome(False if isinstance(error, AccessDeniedError) else None, ",
        "_Outcome(False if error is not None else None, ",
        (f"{_BEFORE}::test_a_store_that_fails_otherwise_refuses_nothing[503]",),
    ),
    Bug(
        "before a load, a table that is not there yet is not asked about",
        "storage.access",
        "    for path in (address.path, top):\n",
        "    for path in (address.path,):\n",
        (f"{_BEFORE}::test_a_table_that_is_not_there_yet_costs_two[Tables/dbo/new-2]",),
    ),
    Bug(
        "before a load, more is asked though OneLake says that it may write",
        "storage.access",
        "_rights(asked.security, asked.address) is not False:\n",
        "_rights(asked.security, asked.address) is None:\n",
        (
            f"{_BEFORE}::test_who_may_not_load_is_told_which_step_decided_and_who_may_costs_one_request[Contributor]",
            "operators/test_access.py::test_a_load_that_may_be_asks_fabric_nothing",
        ),
    ),
    Bug(
        "a table that is not in OneLake is asked about before a load",
        "hooks.onelake",
        "        if not self.address(table).kind.in_fabric:\n            return\n",
        "",
        ("operators/test_access.py::test_a_table_elsewhere_is_not_asked_about",),
    ),
    Bug(
        "the preflight of a writer does not ask whether it may write",
        "operators.write",
        "            if terms.preflight:\n                self.hook.check_may_load(self.table)\n",
        "",
        (f"{_LOAD}[Viewer-True]",),
    ),
    Bug(
        "a scan asks Spark before it is known whether it may write",
        "operators.scan",
        "            self.hook.check_may_load(self.table)\n",
        "            pass\n",
        ("operators/test_access.py::test_a_scan_of_a_table_that_is_not_there_asks_spark_only_if_it_may_write[Viewer]",),
    ),
]
