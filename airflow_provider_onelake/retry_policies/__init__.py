"""Retry policies: which failures Airflow should retry, and when."""
