"""What is written down about a submission, by the threads that do so at once."""

from __future__ import annotations

import threading

import pytest

from airflow_provider_onelake.spark.base import StageJob
from airflow_provider_onelake.storage.stores import ObjectStore
from tests.support.cluster_mode import DRIVER, submitted


def test_a_withdrawal_and_a_drivers_id_that_are_written_down_at_once_are_both_there(
    store: ObjectStore, job: StageJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool = submitted(store, job)
    learning = threading.Thread(target=lambda: spool.remember(driver=DRIVER))
    put = ObjectStore.put

    def put_late(self: ObjectStore, path: str, content: bytes) -> None:
        if learning.ident is None:
            # The stop has read what is written down, and has not written yet: here the submission's answer comes.
            learning.start()
            if not spool._turn.locked():
                learning.join()
        put(self, path, content)

    monkeypatch.setattr(ObjectStore, "put", put_late)
    spool.withdraw()
    learning.join()
    assert spool.withdrawn
    assert spool.driver == DRIVER
