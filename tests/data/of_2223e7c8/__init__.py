"""Tables as the code of commit 2223e7c8 left them, and the DAGs and runs that they came from.

| table | what it has |
|---|---|
| appends | appends by each ``on_rerun``, cleared ones (a note that a generation was skipped, rows taken back); with checks, refused ones too; with ``reads``; of a function; a buffer that a corrected retry set aside, beside a complete one |
| overwrites | a rival for each policy, settled: commits that say ``before``, ``replaces``, settlements of each kind but ``spared``, set-aside and superseded writes; a refused buffer and an open one; a cleared overwrite |
| whole | ``overwrite`` and ``replace_where``, cleared |
| months | runs of cron partitions: two of one partition; a key that names the run, one that two ticks have, one that is no name |
| statements | DELETE of files and of rows (deletion vectors), UPDATE, MERGE, ALTER, OPTIMIZE, a version that is kept; starts that had nothing to do: ``onelake-task`` of a DELETE, ``onelake-ended`` of a MERGE |
| emptied | TRUNCATE and RESTORE, again and again; a start that died before a later one had nothing to do |
| rounds | UPDATE, DELETE and MERGE whose tasks died when Spark had done its part |
| running | writers that are published, complete, opened, claimed, and not begun, by append and by overwrite |
| together | loads that share a scan, checked and published together: whole, cleared in part (``colleagues``), checked only, begun only |
| keys | unique keys: published, and compared with an older version |
| divided, divided_quarantine | rows in quarantine: published, and left before the commit |
| new_files | a plan's ledger: one run loaded its files, another one has only planned |

No file says where it was made, and none is too old: the tables keep deleted files, and their log, for 273 years.
"""
