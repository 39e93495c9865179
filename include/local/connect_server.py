"""A Spark Connect server on this machine: its command, its addresses, its status."""

from __future__ import annotations

import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import attrs
import httpx

from . import jars

HOST = "127.0.0.1"

# What each setting is for is said where it is not plain from its name.
_SETTINGS = {
    "spark.driver.host": HOST,
    "spark.driver.bindAddress": HOST,
    "spark.connect.grpc.binding.address": HOST,
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.sql.catalogImplementation": "in-memory",
    "spark.sql.session.timeZone": "UTC",
    "spark.driver.defaultJavaOptions": "-Duser.timezone=UTC -XX:+ExitOnOutOfMemoryError",
    # The tables are small and the cores few: Spark's defaults (200, 50 and 10,000 tasks) cost more than the work.
    "spark.sql.shuffle.partitions": "2",
    "spark.databricks.delta.snapshotPartitions": "2",
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "4",
    # Its two commits are not put-if-absent on a local disk (protocol: no Spark commit to the shared log).
    "spark.databricks.delta.vacuum.logging.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Writers share the cores; first come, first served would let a large one hold up all others.
    "spark.scheduler.mode": "FAIR",
    # Or a slow moment is logged with all of Spark's settings, secrets too.
    "spark.scheduler.listenerbus.logSlowEvent": "false",
    "spark.eventLog.enabled": "true",
    "spark.eventLog.compress": "false",
    "spark.eventLog.rolling.enabled": "false",
    # For a client that went away without a word (kill -9 of a task) Spark works on up to their sum, 50 s: it notices
    # only when a stream has had its time and nobody attaches again. Defaults: 2 min, 5 min, 30 s.
    "spark.connect.execute.reattachable.senderMaxStreamDuration": "15s",
    "spark.connect.execute.manager.detachedTimeout": "30s",
    "spark.connect.execute.manager.maintenanceInterval": "5s",
}

_FAIR_POOLS = """<?xml version="1.0"?>
<allocations><pool name="default"><schedulingMode>FAIR</schedulingMode></pool></allocations>
"""


@attrs.define(slots=False, eq=False)
class ConnectServer:
    """One Spark Connect server, its UI and status API.

    :param state: directory for its log, event log, warehouse and temporary files.
    :param token: that clients show. Default: everybody on this machine runs code there as the server's user.
    :param settings: further Spark settings, which win over the ones here.
    """

    state: Path
    port: int
    ui_port: int
    cores: int = 2
    memory: str = "2g"
    jar_files: Sequence[Path] = ()
    token: str | None = attrs.field(default=None, repr=False)
    settings: Mapping[str, str] = attrs.field(factory=dict, repr=False)

    def __attrs_post_init__(self) -> None:
        self.state = self.state.absolute()
        self.event_log_dir = self.state / "spark-events"
        self.log_file = self.state / "logs" / f"spark-connect-{self.port}.log"

    @property
    def remote(self) -> str:
        """Address for a Spark Connect client, with the token."""
        # pyspark sends a token without TLS to this name only.
        return f"sc://localhost:{self.port}/;token={self.token}" if self.token else f"sc://{HOST}:{self.port}"

    @property
    def ui_url(self) -> str:
        """Address of Spark's UI."""
        return f"http://{HOST}:{self.ui_port}"

    def command(self) -> list[str]:
        """Return the command that becomes the server: it ends in ``exec java``, so its pid is the JVM's."""
        settings = {
            **_SETTINGS,
            "spark.connect.grpc.binding.port": str(self.port),
            "spark.ui.port": str(self.ui_port),
            "spark.eventLog.dir": self.event_log_dir.as_uri(),
            "spark.sql.warehouse.dir": (self.state / "spark-warehouse").as_uri(),
            "spark.local.dir": str(self.state / "spark-tmp"),
            "spark.scheduler.allocation.file": (self.state / "spark-pools.xml").as_uri(),
            **self.settings,
        }
        return [
            str(jars.spark_home() / "bin" / "spark-submit"),
            *("--master", f"local[{self.cores}]", "--driver-memory", self.memory),
            *("--name", f"Spark Connect server on {self.port}", "--jars", ",".join(map(str, self.jar_files))),
            *(word for key, value in settings.items() for word in ("--conf", f"{key}={value}")),
            *("--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal"),
        ]

    def environment(self) -> dict[str, str]:
        """Return the environment for :meth:`command`."""
        return {
            **jars.environment(),
            "SPARK_LOCAL_IP": HOST,  # the UI listens there only
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_DRIVER_PYTHON": sys.executable,
            **({"SPARK_CONNECT_AUTHENTICATE_TOKEN": self.token} if self.token else {}),
        }

    def prepare(self) -> None:
        """Make the directories and files that :meth:`command` refers to."""
        for directory in (self.event_log_dir, self.log_file.parent, self.state / "spark-tmp"):
            directory.mkdir(parents=True, exist_ok=True)
        (self.state / "spark-pools.xml").write_text(_FAIR_POOLS)

    def healthy(self) -> bool:
        """Whether clients can connect and Spark's status answers, within about two seconds."""
        try:
            answer = httpx.get(f"{self.ui_url}/api/v1/applications", timeout=2, trust_env=False)
            # While it starts, Spark answers with a sentence, which is no JSON.
            return answer.is_success and bool(answer.json()) and listens(self.port)
        except (httpx.TransportError, ValueError):
            return False


def listens(port: int) -> bool:
    """Whether something accepts connections at a TCP port on 127.0.0.1."""
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex((HOST, port)) == 0


def free_port() -> int:
    """Return a TCP port on 127.0.0.1 that nothing uses now."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port
