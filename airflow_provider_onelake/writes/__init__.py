"""Publishing buffers: what is checked first, which commits conflict, and what the policy makes of that."""
