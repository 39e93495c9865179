"""Publishing buffers: conflict analysis, policies, and the one create-only put."""
