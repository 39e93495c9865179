"""Bugs of the room local_onelake."""

from __future__ import annotations

from tests.seeded_bugs.bug import Bug

_WORKSPACES = "local_onelake/fabric/test_workspaces.py"

BUGS = [
    Bug(
        "a rename does not ask its condition",
        "local_onelake.tree",
        "            there = self.stat(target)\n            condition.check(there)\n",
        "            there = self.stat(target)\n",
        (
            "local_onelake/test_clients.py::test_of_many_who_make_a_version_exactly_one_does",
            "local_onelake/test_dfs.py::test_of_renames_to_one_path_exactly_one_wins",
            "local_onelake/test_dfs.py::test_a_rename_onto_what_is_there_is_refused_where_it_must_not_be",
        ),
    ),
    Bug(
        "a create-only put overwrites",
        "local_onelake.tree",
        'if self.none_match == "*" and entry is not None:',
        'if self.none_match == "*" and entry is not None and entry.is_directory:',
        (
            "local_onelake/test_clients.py::test_of_many_who_make_a_version_exactly_one_does",
            "local_onelake/test_tree.py::test_of_many_create_only_puts_at_one_path_one_wins",
            "local_onelake/test_blob.py::test_of_create_only_puts_exactly_one_wins",
        ),
    ),
    Bug(
        "an ETag is given twice after the clock was set back",
        "local_onelake.clock",
        "max(time.time_ns() // _TICK, self._last + 1)",
        "time.time_ns() // _TICK",
        ("local_onelake/test_tree.py::test_an_etag_is_given_once_also_if_the_clock_is_set_back",),
    ),
    Bug(
        "a flush shows more than was asked for",
        "local_onelake.parts",
        "        if committed != position:\n",
        "        if committed < position:\n",
        ("local_onelake/test_dfs.py::test_a_flush_that_is_not_the_end_of_what_was_appended_is_refused",),
    ),
    Bug(
        "a flush does not ask its condition",
        "local_onelake.tree",
        "            there = self._file(path)\n            condition.check(there)\n",
        "            there = self._file(path)\n",
        ("local_onelake/test_dfs.py::test_create_only_and_overwrite_on_an_etag",),
    ),
    Bug(
        "what was appended to a file becomes part of the next one",
        "local_onelake.lake",
        "            self.parts.discard([part.file])\n        self.parts.forget(path)\n",
        "            self.parts.discard([part.file])\n",
        ("local_onelake/test_dfs.py::test_a_new_file_at_a_path_has_nothing_of_what_was_appended_to_the_old_one",),
    ),
    Bug(
        "a put that is refused drops what another has appended",
        "local_onelake.lake",
        "            self.parts.discard([part.file])\n        self.parts.forget(path)\n",
        "            self.parts.discard([part.file])\n            self.parts.forget(path)\n",
        ("local_onelake/test_dfs.py::test_a_create_that_is_refused_leaves_another_writers_appends",),
    ),
    Bug(
        "anybody may ask",
        "local_onelake.identities",
        "        if found is None:\n            raise",
        '        if found == "":\n            raise',
        ("local_onelake/test_rules.py::test_who_is_not_known_is_refused",),
    ),
    Bug(
        "what lies beside Tables and Files is made by anybody",
        "local_onelake.rules",
        "if not slash or folder not in FOLDERS:",
        "if not slash:",
        ("local_onelake/test_rules.py::test_items_and_their_first_level_are_neither_made_nor_deleted_nor_renamed",),
    ),
    Bug(
        "a tunnel leads to any host",
        "local_onelake.front",
        "        ours = head.startswith(_CONNECT) and self._is_ours(host)\n",
        "        ours = head.startswith(_CONNECT)\n",
        ("local_onelake/test_front.py::test_it_is_the_proxy_of_no_other_host",),
        "ConnectError",
    ),
    Bug(
        "a certificate that ends soon is kept",
        "local_onelake.certificates",
        "    return tuple(named.get_values_for_type(x509.DNSName)) == NAMES and ends > datetime.now(UTC) + _RENEWED\n",
        "    return tuple(named.get_values_for_type(x509.DNSName)) == NAMES and ends > datetime.now(UTC)\n",
        ("local_onelake/test_front.py::test_certificates_are_kept_and_made_anew_before_they_end",),
    ),
    Bug(
        "a list of what is not kept shows what is there",
        "local_onelake.blob",
        "    if unserved:\n",
        "    if unserved and False:\n",
        (
            "local_onelake/clients/test_azure_sdks.py::test_lists_of_what_is_not_kept_are_refused_and_of_metadata_are_not",
        ),
    ),
    Bug(
        "the page after the first has another size",
        "local_onelake.blob",
        '"" if asked is None else f"<MaxResults>{asked}</MaxResults>"',
        '""',
        ("local_onelake/clients/test_azure_sdks.py::test_blobs_are_listed_walked_and_paged",),
    ),
    Bug(
        "a data access role is replaced by one that was to be new",
        "local_onelake.fabric.data_access",
        'if place is not None and policy == "Abort":',
        'if place is not None and policy == "Refuse":',
        (f"{_WORKSPACES}::test_one_data_access_role_is_made_replaced_and_deleted_without_the_others",),
    ),
    Bug(
        "the server listens on every address, asked for or not",
        "local_onelake.serve",
        "        made.bind((host, port))\n",
        '        made.bind(("0.0.0.0", port))\n',
        ("cli/test_serve.py::test_it_listens_on_this_machine_only_unless_it_is_asked_for_more_and_then_says_so",),
    ),
    Bug(
        "two maintenances of a lakehouse work at once",
        "local_onelake.fabric.jobs",
        "        if any(_is_at_work(call, each) for each in known):\n",
        "        if not known and any(_is_at_work(call, each) for each in known):\n",
        ("operators/test_table_maintenance.py::test_beside_another_maintenance_it_is_skipped_and_says_so",),
    ),
]
