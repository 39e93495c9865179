"""The command ``onelake``, as ``python -m airflow_provider_onelake.cli``."""

from airflow_provider_onelake.cli.main import app

if __name__ == "__main__":
    app()
