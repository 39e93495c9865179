"""Addresses of tables and the object stores behind them."""
