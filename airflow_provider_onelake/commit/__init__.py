"""The one road into a table's log: the loop of every commit of ours, and what its entry says."""
