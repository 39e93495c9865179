"""What Airflow reads about this package without importing the rest of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from airflow_provider_onelake import __version__


def get_provider_info() -> dict[str, Any]:
    """Return the provider's metadata: its connection types with their forms, and where its parts are.

    :returns: what ``provider.yaml`` says, as Airflow's provider schema asks for it, and the version.
    """
    import yaml

    info: dict[str, Any] = yaml.safe_load(Path(__file__).with_name("provider.yaml").read_text(encoding="utf-8"))
    return {**info, "versions": [__version__]}
