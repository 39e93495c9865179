"""The work of a running task, on values: operators check what a DAG author asked, and call it."""
