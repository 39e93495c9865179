"""What people are shown of a table, as plain values: the command line prints them, the page in Airflow draws them."""
