"""Tables that an earlier commit of this package has made."""
