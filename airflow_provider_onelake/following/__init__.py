"""Following a table's log; knows nothing of Airflow."""
