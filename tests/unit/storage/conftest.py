"""Tests of who may do what share a server with two lakehouses; each module has one of its own."""

from tests.support.rights import rights, server

__all__ = ["rights", "server"]
