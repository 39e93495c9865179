"""What Airflow reads about this package without importing the rest of it."""

from __future__ import annotations

from typing import Any

from airflow_provider_onelake import __version__

_INTEGRATION = "OneLake"
_PACKAGE = "airflow_provider_onelake"
_LINKS = ["SparkUiLink", "LakehouseLink", "TableLink"]
_SIGN_INS = ["default", "account_key", "service_principal", "workload_identity", "managed_identity", "cli", "token"]


def get_provider_info() -> dict[str, Any]:
    """Return the provider's metadata: its connection type with its form, and where its parts are.

    :returns: as Airflow's provider schema asks for it.
    """
    return {
        "package-name": "airflow-provider-onelake",
        "name": "OneLake",
        "description": "Many Spark jobs write one Delta table at the same time, on OneLake and elsewhere.",
        "versions": [__version__],
        "integrations": [
            {
                "integration-name": _INTEGRATION,
                "external-doc-url": "https://learn.microsoft.com/fabric/onelake/",
                "tags": ["service"],
            }
        ],
        "hooks": _modules("hooks", "onelake", "livy"),
        "operators": _modules(
            "operators",
            *("write", "scan", "staged", "reconcile", "statements", "plan"),
            *(
                "optimize",
                "vacuum",
                "restore",
                "alter",
                "versions",
                "manifests",
                "health",
                "access",
                "shortcuts",
                "refresh",
            ),
        ),
        "sensors": _modules("sensors", "delta_log"),
        "triggers": _modules("triggers", "delta_log", "wait", "driver", "refresh"),
        "asset-uris": [
            {
                "schemes": [scheme],
                "handler": f"{_PACKAGE}.assets.uris.sanitize_{scheme}",
                "factory": f"{_PACKAGE}.assets.uris.create_asset",
            }
            for scheme in ("onelake", "delta")
        ],
        "extra-links": [f"{_PACKAGE}.links.onelake.{link}" for link in _LINKS],
        "notifications": [f"{_PACKAGE}.notifications.onelake.OneLakeLoadNotifier"],
        "task-decorators": [{"name": "onelake_write", "class-name": f"{_PACKAGE}.decorators.write.onelake_write_task"}],
        "config": {
            "onelake": {
                "description": "What the provider of OneLake shows.",
                "options": {
                    "view_connections": {
                        "description": "Connections whose tables the Lakehouse view shows, with commas between them. "
                        "Each needs a lakehouse. Whoever may read assets may see these tables' logs.",
                        "version_added": __version__,
                        "type": "string",
                        "example": "onelake_default, sales_lake",
                        "default": "onelake_default",
                    }
                },
            }
        },
        "connection-types": [
            {
                "connection-type": "onelake",
                "hook-class-name": f"{_PACKAGE}.hooks.onelake.OneLakeHook",
                "hook-name": "OneLake",
                "conn-fields": _form(),
                # `port` is not hidden: without it the form's Test button gets a 400 from Airflow 3.3.
                "ui-field-behaviour": {
                    "hidden-fields": ["host", "schema"],
                    "relabeling": {
                        "login": "Access key or client id",
                        "password": "Secret key, client secret, account key or token",
                    },
                },
            },
            {
                "connection-type": "onelake_livy",
                "hook-class-name": f"{_PACKAGE}.hooks.livy.OneLakeLivyHook",
                "hook-name": "OneLake Livy",
                "conn-fields": _livy_form(),
                "ui-field-behaviour": {
                    "hidden-fields": ["schema"],
                    "relabeling": {
                        "host": "Address",
                        "login": "Client id, or user",
                        "password": "Client secret, password or token",
                    },
                    "placeholders": {
                        "host": "https://api.fabric.microsoft.com/v1/workspaces/<GUID>/lakehouses/<GUID>/livyapi/"
                        "versions/2023-12-01, or http://host:8998"
                    },
                },
            },
        ],
    }


def _modules(kind: str, *names: str) -> list[dict[str, Any]]:
    return [{"integration-name": _INTEGRATION, "python-modules": [f"{_PACKAGE}.{kind}.{name}" for name in names]}]


def _form() -> dict[str, Any]:
    """Return the fields of the connection's form. Secrets are in the password, which Airflow encrypts and masks."""
    return {
        "lakehouse": _field(
            "Lakehouse",
            "The directory that every table of this connection lies in: onelake://<workspace GUID>/<item GUID>, "
            "onelake://workspace/item.Lakehouse, abfss://…, s3://bucket/path, or a local directory. Empty: any address "
            "is taken.",
        ),
        "lakehouse_alias": _field(
            "OneLake: the lakehouse's other spelling",
            "By names where the lakehouse is written by GUIDs, or by GUIDs where it is written by names. A table that "
            "is spelled so is then known as the same table.",
        ),
        "fabric_api": _field(
            "OneLake: address of Fabric's REST",
            "Which is asked for shortcuts and SQL endpoints. Empty: https://api.fabric.microsoft.com/v1",
        ),
        "powerbi_api": _field(
            "OneLake: address of Power BI's REST",
            "Which is asked for refreshes of semantic models. Empty: https://api.powerbi.com/v1.0/myorg",
        ),
        "follow_shortcuts": _field(
            "OneLake: follow shortcuts",
            "A path through a shortcut is the table that it leads to. Empty: where Fabric's REST shows where it leads; "
            "true: else it is an error; false: never.",
            "boolean",
        ),
        "namespace": _field(
            "Namespace",
            "This Airflow deployment's name in the tables' logs. Two deployments that write one table need two names. "
            "Do not change it: a rerun would no longer know what it has written.",
            default="default",
        ),
        "iceberg_readers": _field(
            "Iceberg readers of tables with UniForm",
            "may_be_stale: tables with UniForm are written to, and their Iceberg readers do not see it until Spark "
            "writes Iceberg's metadata. Empty: such tables are refused for writing.",
            enum=["", "may_be_stale"],
        ),
        "fsync": _field(
            "Local disk: survive a power cut",
            "Each put is on the disk itself when it returns. false, for a table that may be made anew: commits are "
            "faster, and a power cut may damage it.",
            "boolean",
            default=True,
        ),
        "patience": _field(
            "Patience",
            "Seconds for which a request is tried again that the store does not answer. Empty: 150, which rides out an "
            "outage of two minutes.",
            "number",
            minimum=0,
        ),
        "sign_in": _field(
            "Sign in to Azure by",
            "Empty: by service principal where there is a client id and a password, by account key where there is a "
            "password only, else by what the machine offers.",
            enum=["", *_SIGN_INS],
        ),
        "tenant_id": _field("Azure: tenant id"),
        "authority": _field(
            "Azure: authority",
            "Where tokens come from, in other clouds. Empty: https://login.microsoftonline.com",
        ),
        "region": _field("S3: region"),
        "profile": _field("S3: profile", "Of AWS's configuration files."),
        "role_arn": _field("S3: role", "ARN of a role to assume, and to assume again before it expires."),
        "session_token": _field("S3: session token", "Of temporary keys, which are not renewed.", format="password"),
        "endpoint": _field("Endpoint", "Of a store that is not AWS, or of an emulator of Azure."),
        "path_style": _field(
            "S3: bucket in the path", "Rather than in the host name. Empty: with an endpoint.", "boolean"
        ),
        "allow_http": _field("Allow http", "Speak to the endpoint without TLS: on this machine only.", "boolean"),
        "table_page": _field(
            "Page of a table",
            "https://…, with {table}, {authority}, {path} or {name} in it. Empty: its page in the store's console, "
            "where the address alone leads there.",
        ),
    }


def _livy_form() -> dict[str, Any]:
    """Return the fields of the form of a Livy connection."""
    return {
        "conf": _field(
            "Spark's settings",
            'Of every job, as JSON: {"spark.executor.memory": "4g"}. No secrets: they would be shown.',
        ),
        "packages": _field(
            "Packages",
            "Maven coordinates, with commas between. Empty: in Fabric none; elsewhere Delta Lake and what the table's "
            "store needs.",
        ),
        "jars": _field("JARs", "Addresses that Spark reads, with commas between. If there are any, no package is."),
        "environment": _field("Fabric: environment", "Its GUID. Empty: the workspace's own."),
        "sign_in": _field(
            "Fabric: sign in by",
            "Empty: by service principal where there is a client id and a secret, else by what the machine offers.",
            enum=["", *(way for way in _SIGN_INS if way != "account_key")],
        ),
        "tenant_id": _field("Fabric: tenant id"),
        "authority": _field(
            "Fabric: authority",
            "Where tokens come from, in other clouds. Empty: https://login.microsoftonline.com",
        ),
        "patience": _field(
            "Patience",
            "Seconds for which a new batch waits for room on the server or the capacity. Empty: 150.",
            "number",
            minimum=0,
        ),
        "allow_http": _field("Allow http", "Send secrets without TLS: on this machine only.", "boolean"),
        "spark_ui": _field(
            "Page of Spark's UI", "https://…, with {application_id} in it. Empty: what Spark itself says, if it lasts."
        ),
    }


def _field(label: str, description: str | None = None, kind: str = "string", **schema: Any) -> dict[str, Any]:
    told = {} if description is None else {"description": description}
    return {"label": label, **told, "schema": {"type": [kind, "null"], **schema}}
