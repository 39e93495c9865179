"""Every table that a test leaves here is compared with what deltalake sees."""

from __future__ import annotations

from tests.support.second_opinion import deltalake_agrees

__all__ = ["deltalake_agrees"]
