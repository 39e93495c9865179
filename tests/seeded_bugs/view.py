"""Bugs of the Lakehouse view and of messages: filters, bounds, who may see what."""

from __future__ import annotations

from tests.seeded_bugs.bug import Bug

_COMMITS = "pages/test_commits.py"
_ROUTES = "plugins/test_routes.py"

BUGS = [
    Bug(
        "a filter for conflicts takes every version",
        "pages.commits",
        "if self.settled and not Settlement.of(commit):",
        "if self.settled and not commit.actions:",
        (f"{_COMMITS}::test_a_filter_takes_what_meets_all_of_its_conditions",),
    ),
    Bug(
        "a filter is content with the DAG or with the writer",
        "pages.commits",
        "if not _has(self.dag, [dag]) or not _has(self.writer, writers)",
        "if not (_has(self.dag, [dag]) or _has(self.writer, writers))",
        (f"{_COMMITS}::test_a_filter_takes_what_meets_all_of_its_conditions",),
    ),
    Bug(
        "a range of times leaves out its last version",
        "pages.commits",
        "(last is not None and last > self.until)",
        "(last is not None and last >= self.until)",
        (f"{_COMMITS}::test_a_range_is_of_versions_or_of_times",),
    ),
    Bug(
        "a day that is the end of a range ends where it begins",
        "pages.commits",
        "time += meant - timedelta(microseconds=1) if meant else timedelta()",
        "time += timedelta()",
        (f"{_COMMITS}::test_a_range_is_of_versions_or_of_times",),
    ),
    Bug(
        "the pages of a range go on behind its first version",
        "pages.commits",
        "lowest if found and lowest > floor and not lacks else None",
        "lowest if found and lowest > 0 and not lacks else None",
        (f"{_COMMITS}::test_pages_of_a_filter_lead_on_behind_what_was_looked_at_and_end_with_the_range",),
    ),
    Bug(
        "a range of times is looked for from version to version",
        "pages.commits",
        "return search(versions, end, key=time)",
        "return search([time(version) for version in versions], end)",
        (f"{_COMMITS}::test_a_filter_that_finds_nothing_costs_no_more_than_a_page",),
    ),
    Bug(
        "a buffer that the end of a listing cuts is shown as far as it was seen",
        "pages.staged",
        "if attempt_directory(info.path) != cut]",
        "if cut]",
        ("pages/test_staged.py::test_a_page_looks_at_so_many_objects_and_shows_no_half_buffer",),
    ),
    Bug(
        "the page of what is staged lists the whole directory",
        "pages.staged",
        "list(islice(log.store.list(STAGED_DIRECTORY), most_objects + 1))",
        "list(log.store.list(STAGED_DIRECTORY))[: most_objects + 1]",
        ("pages/test_staged.py::test_a_page_looks_at_so_many_objects_and_shows_no_half_buffer",),
    ),
    Bug(
        "the page's own script is open to whoever is signed out",
        "plugins.routes",
        "dependencies=[Depends(get_user)], docs_url",
        "docs_url",
        (f"{_ROUTES}::test_nobody_who_is_signed_out_sees_anything",),
    ),
    Bug(
        "the partitions need no permission",
        "plugins.routes",
        '@app.get("/lakehouses/{connection}/partitions", dependencies=_MAY_SEE_TABLES)',
        '@app.get("/lakehouses/{connection}/partitions")',
        (f"{_ROUTES}::test_every_route_but_the_pages_own_files_asks_for_the_permission_to_see_assets",),
    ),
    Bug(
        "a table of a DAG that is not theirs is shown to whoever knows its name",
        "plugins.routes",
        "if not reads_every_dag(user) and not may_see(user, table, hook.namespace):",
        "if reads_every_dag(user) and not may_see(user, table, hook.namespace):",
        (f"{_ROUTES}::test_a_table_of_a_dag_that_is_not_theirs_is_refused",),
    ),
    Bug(
        "a table is refused to readers of one of its DAGs",
        "plugins.permissions",
        "return not dags or any(_reads(user, dag) for dag in dags)",
        "return all(_reads(user, dag) for dag in dags)",
        (f"{_ROUTES}::test_tables_of_dags_that_are_not_theirs_are_not_named",),
    ),
    Bug(
        "equal DAGs of another deployment hide a table",
        "plugins.permissions",
        "if load.namespace == namespace}",
        "if namespace}",
        (f"{_ROUTES}::test_tables_of_dags_that_are_not_theirs_are_not_named",),
    ),
    Bug(
        "a table whose log is damaged is everybody's",
        "plugins.permissions",
        "    except TerminalError:\n        return False\n",
        "    except TerminalError:\n        return True\n",
        (f"{_ROUTES}::test_tables_of_dags_that_are_not_theirs_are_not_named",),
    ),
    Bug(
        "a message gives a table the name of one whose name begins so",
        "exceptions",
        "(?![\\w-])",
        "",
        ("test_exceptions.py::test_a_table_has_its_short_name_and_its_address_once",),
    ),
    Bug(
        "a message says an address as often as the table has spellings",
        "exceptions",
        "if shorter != said and (name, address) not in found:",
        "if shorter != said:",
        ("test_exceptions.py::test_a_table_has_its_short_name_and_its_address_once",),
    ),
    Bug(
        "lines of a task's log call its table by its address",
        "hooks.onelake",
        "            self._in_short(named),\n",
        "",
        ("operators/test_reruns.py::test_the_log_of_a_task_says_once_where_its_table_is",),
    ),
    Bug(
        "no line of a task's log says where its table is",
        "operators._spark_task",
        '        logger.info("%s is %s", table.name, table)\n',
        "",
        ("operators/test_reruns.py::test_the_log_of_a_task_says_once_where_its_table_is",),
    ),
    Bug(
        "azure's packages tell of every request in each log",
        "storage.azure",
        "    _quieten()\n",
        "",
        ("storage/test_sign_in.py::test_a_tasks_log_has_azures_requests_only_at_debug[INFO]",),
    ),
    Bug(
        "azure's packages say warnings alone also where somebody looks for faults",
        "storage.azure",
        "chatty.level == logging.NOTSET and chatty.getEffectiveLevel() > logging.DEBUG",
        "chatty.level == logging.NOTSET",
        ("storage/test_sign_in.py::test_a_tasks_log_has_azures_requests_only_at_debug[DEBUG]",),
    ),
    Bug(
        "a level that somebody chose for azure's packages does not count",
        "storage.azure",
        "chatty.level == logging.NOTSET and chatty.getEffectiveLevel() > logging.DEBUG",
        "chatty.getEffectiveLevel() > logging.DEBUG",
        ("storage/test_sign_in.py::test_a_level_that_somebody_chose_for_azures_packages_stays",),
    ),
]
