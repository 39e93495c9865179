"""What differs between Airflow 3.1, 3.2 and 3.3, where Airflow's own compat package does not know.

No other module looks for names of one release. The names that only moved come from
``airflow.providers.common.compat.sdk``. What a task keeps over its tries is the matter of ``hooks/task_state.py``.
"""

from __future__ import annotations

from airflow import __version__
from airflow.providers.common.compat.sdk import AirflowException

from airflow_provider_onelake.exceptions import InvalidWriteError

try:
    from airflow.sdk.exceptions import TaskDeferralError
except ImportError:  # 3.1
    from airflow.exceptions import TaskDeferralError  # type: ignore[no-redef]

try:
    from airflow.sdk.exceptions import AirflowSecretsBackendAccessDenied
except ImportError:  # 3.1 and 3.2 raise AirflowNotFoundException instead.

    class AirflowSecretsBackendAccessDenied(AirflowException):  # type: ignore[no-redef]
        """Nobody raises it."""


try:
    from airflow.sdk import RetryDecision, RetryPolicy
    from airflow.triggers.shared_stream import AdvanceItem, SharedStreamProducer
except ImportError:  # 3.1 and 3.2

    class RetryPolicy:  # type: ignore[no-redef]
        """Airflow asks none."""

    class SharedStreamProducer:  # type: ignore[no-redef]
        """Each trigger polls for itself."""

    RetryDecision = AdvanceItem = RetryPolicy  # type: ignore[misc, assignment]

RELEASE = tuple(int(part) for part in __version__.split(".")[:2])
"""Of Airflow, such as ``(3, 2)``."""
NO_RETRY_POLICY = {"retry_policy": None} if RELEASE >= (3, 3) else {}
"""The argument of an operator that takes none from ``default_args``."""


def check_has(what: str, instead: str) -> None:
    """Refuse what Airflow has since 3.3 where Airflow is older.

    :param what: the subject of the message.
    :param instead: a sentence that says what to do.
    :raises InvalidWriteError: Airflow is older.
    """
    if RELEASE < (3, 3):
        raise InvalidWriteError(f"{what} needs Airflow 3.3, and this is Airflow {__version__}. {instead}")


__all__ = [
    "NO_RETRY_POLICY",
    "RELEASE",
    "AdvanceItem",
    "AirflowSecretsBackendAccessDenied",
    "RetryDecision",
    "RetryPolicy",
    "SharedStreamProducer",
    "TaskDeferralError",
    "check_has",
]
