"""Fabric's own table maintenance is gone, and says what to take."""

from __future__ import annotations

import pytest

from airflow_provider_onelake.exceptions import InvalidWriteError


def test_it_is_refused_by_name_where_a_dag_imports_it() -> None:
    with pytest.raises(InvalidWriteError, match=r"is gone, .*Take OneLakeOptimizeOperator\(v_order=True"):
        from airflow_provider_onelake.operators.table_maintenance import OneLakeTableMaintenanceOperator  # noqa: F401
