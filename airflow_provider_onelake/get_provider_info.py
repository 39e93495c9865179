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
                    f"{package}.operators.plan",
                ],
            }
        ],
        "sensors": [{"integration-name": integration, "python-modules": [f"{package}.sensors.delta_log"]}],
        "triggers": [
            {
                "integration-name": integration,
                "python-modules": [
                    f"{package}.triggers.delta_log",
                    f"{package}.triggers.wait",
                    f"{package}.triggers.driver",
                ],
            }
        ],
        "asset-uris": [
            {
                "schemes": [scheme],
                "handler": f"{package}.assets.uris.sanitize_{scheme}",
                "factory": f"{package}.assets.uris.create_asset",
            }
            for scheme in ("onelake", "delta")
        ],
        "extra-links": [f"{package}.links.onelake.{link}" for link in ("SparkUiLink", "TableLink", "CommitLink")],
        "task-decorators": [{"name": "onelake_write", "class-name": f"{package}.decorators.write.onelake_write_task"}],
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
                            "onelake://<workspace GUID>/<item GUID>, onelake://workspace/item.Lakehouse, abfss://…, "
                            "s3://bucket/path, or a local directory. Empty: any address is taken."
                        ),
                        "schema": {"type": ["string", "null"]},
                    },
                    "lakehouse_alias": {
                        "label": "OneLake: the lakehouse's other spelling",
                        "description": (
                            "By names where the lakehouse is written by GUIDs, or by GUIDs where it is written by "
                            "names. A table that is spelled so is then known as the same table."
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
                    "patience": {
                        "label": "Patience",
                        "description": (
                            "Seconds for which a request is tried again that the store does not answer. Empty: 150, "
                            "which rides out an outage of two minutes."
                        ),
                        "schema": {"type": ["number", "null"], "minimum": 0},
                    },
                    **_sign_in_fields(),
                    **_page_fields(),
                },
                # `port` is not hidden: without it the form's Test button gets a 400 from Airflow 3.3.
                "ui-field-behaviour": {
                    "hidden-fields": ["host", "schema"],
                    "relabeling": {
                        "login": "Access key or client id",
                        "password": "Secret key, client secret, account key or token",
                    },
                },
            }
        ],
    }


def _sign_in_fields() -> dict[str, Any]:
    """Return the form's fields about signing in; secrets are in the password, which Airflow encrypts and masks."""
    text: dict[str, Any] = {"type": ["string", "null"]}
    flag: dict[str, Any] = {"type": ["boolean", "null"]}
    ways = ["default", "account_key", "service_principal", "workload_identity", "managed_identity", "cli", "token"]
    return {
        "sign_in": {
            "label": "Sign in to Azure by",
            "description": (
                "Empty: by service principal where there is a client id and a password, by account key where there is "
                "a password only, else by what the machine offers."
            ),
            "schema": {"type": ["string", "null"], "enum": ["", *ways]},
        },
        "tenant_id": {"label": "Azure: tenant id", "schema": text},
        "authority": {
            "label": "Azure: authority",
            "description": "Where tokens come from, in other clouds. Empty: https://login.microsoftonline.com",
            "schema": text,
        },
        "region": {"label": "S3: region", "schema": text},
        "profile": {"label": "S3: profile", "description": "Of AWS's configuration files.", "schema": text},
        "role_arn": {
            "label": "S3: role",
            "description": "ARN of a role to assume, and to assume again before it expires.",
            "schema": text,
        },
        "session_token": {
            "label": "S3: session token",
            "description": "Of temporary keys, which are not renewed.",
            "schema": {**text, "format": "password"},
        },
        "endpoint": {
            "label": "Endpoint",
            "description": "Of a store that is not AWS, or of an emulator of Azure.",
            "schema": text,
        },
        "path_style": {
            "label": "S3: bucket in the path",
            "description": "Rather than in the host name. Empty: with an endpoint.",
            "schema": flag,
        },
        "allow_http": {
            "label": "Allow http",
            "description": "Speak to the endpoint without TLS: on this machine only.",
            "schema": flag,
        },
    }


def _page_fields() -> dict[str, Any]:
    """Return the form's fields about the pages that tasks link to."""
    text: dict[str, Any] = {"type": ["string", "null"]}
    return {
        "table_page": {
            "label": "Page of a table",
            "description": (
                "https://…, with {table}, {authority}, {path} or {name} in it. Empty: its page in the store's console, "
                "where the address alone leads there."
            ),
            "schema": text,
        },
        "commit_page": {
            "label": "Page of a commit",
            "description": "https://…, with {version} or {entry} besides.",
            "schema": text,
        },
    }
