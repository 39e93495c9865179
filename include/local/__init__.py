"""What runs on this machine only: Spark, Airflow and the lakehouse that `make` starts, stops and shows."""
