"""What Airflow reads about this package without importing the rest of it."""

from __future__ import annotations

from typing import Any

from airflow_provider_onelake import __version__


def get_provider_info() -> dict[str, Any]:
    """Return the provider's metadata: its connection type with its form, and where its parts are.

    :returns: as Airflow's provider schema asks for it.
    """
    package = "airflow_provider_onelake"
    integration = "OneLake"
    return {
        "package-name": "airflow-provider-onelake",
        "name": "OneLake",
        "description": "Many Spark jobs write one Delta table at the same time, on OneLake and elsewhere.",
        "versions": [__version__],
        "integrations": [
            {
                "integration-name": integration,
                "external-doc-url": "https://learn.microsoft.com/fabric/onelake/",
                "tags": ["service"],
            }
        ],
        "hooks": [{"integration-name": integration, "python-modules": [f"{package}.hooks.onelake"]}],
        "operators": [
            {
                "integration-name": integration,
                "python-modules": [
                    f"{package}.operators.write",
                    f"{package}.operators.reconcile",
                    f"{package}.operators.optimize",
                    f"{package}.operators.vacuum",
                ],
            }
        ],
        "sensors": [{"integration-name": integration, "python-modules": [f"{package}.sensors.delta_log"]}],
        "triggers": [{"integration-name": integration, "python-modules": [f"{package}.triggers.delta_log"]}],
        "connection-types": [
            {
                "connection-type": "onelake",
                "hook-class-name": f"{package}.hooks.onelake.OneLakeHook",
                "hook-name": "OneLake",
                "conn-fields": {
                    "lakehouse": {
                        "label": "Lakehouse",
                        "description": (
                            "The directory that every table of this connection lies in: "
                            "onelake://workspace/item.Lakehouse, or a local directory. Empty: any address is taken."
                        ),
                        "schema": {"type": ["string", "null"]},
                    },
                    "namespace": {
                        "label": "Namespace",
                        "description": (
                            "This Airflow deployment's name in the tables' logs. Two deployments that write one table "
                            "need two names. Do not change it: a rerun would no longer know what it has written."
                        ),
                        "schema": {"type": ["string", "null"], "default": "default"},
                    },
                },
                # `port` is not hidden: without it the form's Test button gets a 400 from Airflow 3.3.
                "ui-field-behaviour": {"hidden-fields": ["host", "schema", "login", "password"], "relabeling": {}},
            }
        ],
    }
