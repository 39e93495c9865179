"""Properties of tables that tests give in SQL."""

VECTORS = "'delta.enableDeletionVectors'='true'"
FEED = "'delta.enableChangeDataFeed'='true'"
IDS = "'delta.enableRowTracking'='true'"
STAMPS = "'delta.enableInCommitTimestamps'='true'"
MAPPED = "'delta.columnMapping.mode'='name'"
