"""Tables as Airflow's assets: their addresses, what happened to them, and what loads and watchers say of it."""
