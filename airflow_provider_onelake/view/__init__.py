"""What the web UI of Airflow shows beside its own pages."""
