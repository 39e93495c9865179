"""A OneLake on this machine, to develop and to test without a tenant: one path table behind several HTTP faces."""
