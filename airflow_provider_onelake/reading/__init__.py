"""What writers read: the files behind a source, and the code that makes rows."""
