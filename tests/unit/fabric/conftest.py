"""Tests of who may do what share a server with two lakehouses; each module has one of its own.

Every table that a test leaves here is compared with what deltalake sees.
"""

from tests.support.rights import rights, server
from tests.support.second_opinion import deltalake_agrees

__all__ = ["deltalake_agrees", "rights", "server"]
