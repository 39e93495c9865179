"""Links of a task in the web UI: to the Spark UI, the table, the commit."""
