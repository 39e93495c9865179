"""Links of a task in the web UI: to the Spark UI, the table's version in the Lakehouse view, the table's page."""
