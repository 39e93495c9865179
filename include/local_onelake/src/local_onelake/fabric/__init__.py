"""Fabric's REST: workspaces, items, shortcuts, who may do what, and SQL endpoints."""
