"""The settings of a connection of the type ``spark``, and what in them and in a job looks like a secret."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import attrs

from airflow_provider_onelake.exceptions import InvalidWriteError, SparkSetUpError
from airflow_provider_onelake.spark.jobs.main import ENVIRONMENT
from airflow_provider_onelake.spark.submit.hook import SubmitHook
from airflow_provider_onelake.storage.spark import delta_package

if TYPE_CHECKING:
    from airflow.sdk import Connection

    from airflow_provider_onelake.spark.base import SparkJob
    from airflow_provider_onelake.storage.spark import SparkAccess

_EXTENSIONS = "spark.sql.extensions"
_DELTA = "io.delta.sql.DeltaSparkSessionExtension"
_EXCLUDES = "spark.jars.excludes"
_REDACTION = "spark.redaction.regex"
# Spark's own pattern of secrets, extended by the keys of storage accounts.
_TELLING = r"(?i)secret|passw|token|access[.]?key|account[.]?key|[.]sas[.]"
# Also hide the executors' environment variables, because their values come from the lakehouse's connection.
_HIDDEN = rf"{_TELLING}|^spark[.]executorEnv[.]"

_SETTINGS = {
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.sql.session.timeZone": "UTC",
    # The progress bar's carriage returns would make one endless line in the task's log.
    "spark.ui.showConsoleProgress": "false",
    # A driver's output goes into the task's log. At the level INFO, a short job prints hundreds of lines.
    "spark.log.level": "WARN",
}

# Settings whose names look like a secret, but which say only where a secret is or how to get it.
_NO_SECRET = re.compile(
    r"(?i)secretKeyRef[.]|[.]secrets[.]|kerberos[.]tokenSecret[.]|(?:file|provider|type|regex|enabled)$"
)
_PATH = re.compile(r"(?:[\w+-]+:)?/|[.]/")
# Settings that set environment variables, whose names follow another style.
_VARIABLES = re.compile(r"^spark[.](?:executorEnv|yarn[.]appMasterEnv|kubernetes[.]driverEnv)[.](.+)$")
_TELLING_VARIABLE = r"(?i)secret|passw|token|access_?key|account_?key|(?:^|_)(?:key|sas)(?:_|$)"
# Secrets inside a value: JVM properties and program options, and an address with a password.
_OPTIONS = re.compile(r"(?:-D|--)([\w.-]+)[=\s]+(\S+)")
_PASSWORD = re.compile(r"://[^/\s:@]+:[^/\s@]+@")
# Names of environment variables whose values must not be shown.
_SECRET_NAMES = re.compile(r"(?i)secret|password|token|key|sas")


@attrs.frozen
class SubmitTarget:
    """The settings of a connection of the type ``spark``: the Spark provider's fields, and three of ours.

    Our fields are in the connection's extra. ``conf`` has Spark's settings as a mapping. ``jars`` and ``packages``
    replace the packages that a job asks for by default: Delta Lake, and those of the table's store. An empty one means
    that Spark has them already.

    :param conn_id: the connection.
    :param conf: settings of every job.
    :param jars: paths or addresses. Default: none.
    :param packages: Maven coordinates. Default, without ``jars``: Delta Lake and the packages of the store.
    """

    conn_id: str
    conf: Mapping[str, str] = attrs.field(factory=dict)
    jars: tuple[str, ...] = ()
    packages: tuple[str, ...] | None = None

    @classmethod
    def of(cls, connection: Connection) -> SubmitTarget:
        """Read a connection.

        :param connection: of the type ``spark``.
        :raises InvalidWriteError: a field is malformed, or would put a secret on a command line.
        """
        extra, conn_id = connection.extra_dejson, connection.conn_id
        conf = extra.get("conf") or {}
        if isinstance(conf, str):
            try:
                conf = json.loads(conf)
            except ValueError as error:
                raise InvalidWriteError(f"`conf` in the extra of {conn_id} is no JSON: {error}.") from error
        if not isinstance(conf, Mapping):
            raise InvalidWriteError(f"`conf` in the extra of {conn_id} is no mapping of Spark's settings.")
        # A field of a form that was left empty may be there, as null.
        jars, packages = _listed(extra.get("jars")), None
        if extra.get("packages") is not None or extra.get("jars") is not None:
            packages = _listed(extra.get("packages"))
        target = cls(conn_id, {str(key): _text(value) for key, value in conf.items()}, jars, packages)
        _check_no_secrets(target.conf, f"`conf` in the extra of {conn_id}")
        _check_no_secrets({"jars": ",".join(jars), "packages": ",".join(packages or ())}, f"the extra of {conn_id}")
        return target

    def settings(self, access: SparkAccess) -> dict[str, str]:
        """Return the settings of a job.

        :param access: to the table's store.
        :raises InvalidWriteError: one of them would put a secret on a command line.
        """
        _check_no_secrets(access.settings, "the settings of the table's store")
        found = {**_SETTINGS, **access.settings, **self.conf}
        given = [name for name in found.get(_EXTENSIONS, "").split(",") if name]
        found[_EXTENSIONS] = ",".join([_DELTA, *(name for name in given if name != _DELTA)])
        if excluded := [each[_EXCLUDES] for each in (access.settings, self.conf) if each.get(_EXCLUDES)]:
            found[_EXCLUDES] = ",".join(excluded)
        found[_REDACTION] = "|".join(filter(None, (_HIDDEN, found.get(_REDACTION))))
        if access.environment:
            found[ENVIRONMENT] = ",".join(sorted(access.environment))
        return found

    def hook(self, access: SparkAccess, conf: Mapping[str, str] | None = None, **further: Any) -> SubmitHook:
        """Return the Spark provider's hook for one job.

        :param access: to the table's store.
        :param conf: settings of this job only. Default: none.
        :param further: what the hook takes, such as ``py_files``.
        :raises SparkSetUpError: this worker lacks what the connection's master needs.
        """
        from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook

        packages = (delta_package(), *access.packages) if self.packages is None else self.packages
        try:
            hook = SparkSubmitHook(
                conn_id=self.conn_id,
                conf={**self.settings(access), **(conf or {})},
                jars=",".join(self.jars) or None,
                packages=",".join(packages) or None,
                **further,
            )
        except (NameError, RuntimeError) as error:
            # The hook raises these if the Kubernetes provider is not installed.
            raise SparkSetUpError(
                f"The connection {self.conn_id} is for Spark on Kubernetes, and this worker lacks "
                f"apache-airflow-providers-cncf-kubernetes. Install it; nothing was staged. ({error})"
            ) from error
        return SubmitHook(hook)


def secrets(environment: Mapping[str, str]) -> list[str]:
    """Return the secret values of an environment, the longest first."""
    return sorted((v for name, v in environment.items() if v and _SECRET_NAMES.search(name)), key=len, reverse=True)


def check_job(job: SparkJob) -> None:
    """Refuse a secret in a job in cluster mode, because every reader of the table can read its ``job.json``.

    :raises InvalidWriteError: an option of the job's source looks like a secret.
    """
    options = job.as_dict().get("source", {}).get("options") or {}
    if found := _telling({str(name): str(value) for name, value in options.items()}):
        raise InvalidWriteError(
            f"{', '.join(found)} among the options of the source looks like a secret. "
            "In cluster mode a job lies in the table's store while it runs, for everybody who reads the table. Give it "
            "to the Spark of the cluster (spark-defaults.conf, its environment), or use the client deploy mode "
            "or Spark Connect. Nothing was staged."
        )


def _telling(settings: Mapping[str, str]) -> list[str]:
    """Return the names of settings or options that look like a secret, or whose value holds one."""
    return [key for key, value in settings.items() if _is_secret(key, value)]


def _check_no_secrets(settings: Mapping[str, str], whose: str) -> None:
    if found := _telling(settings):
        raise InvalidWriteError(
            f"{', '.join(found)} in {whose} looks like a secret, and would stand on the command line of spark-submit "
            "for everybody to read. Give it to the lakehouse's connection, or to Spark's own spark-defaults.conf. "
            "Nothing was staged."
        )


def _is_secret(key: str, value: str) -> bool:
    if _PASSWORD.search(value) or any(_is_secret(*option) for option in _OPTIONS.findall(value)):
        return True
    variable = _VARIABLES.match(key)
    looks_so = re.search(_TELLING_VARIABLE, variable[1]) if variable is not None else re.search(_TELLING, key)
    if not looks_so or _NO_SECRET.search(key) or value.startswith("${"):
        return False
    return not (key.lower().endswith("path") and _PATH.match(value))


def _listed(value: object) -> tuple[str, ...]:
    items = value.split(",") if isinstance(value, str) else list(value) if isinstance(value, Sequence) else []
    return tuple(text for item in items if (text := str(item).strip()))


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
