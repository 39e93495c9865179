"""Fabric's REST: workspaces, items, shortcuts, and who may do what."""
