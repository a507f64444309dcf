"""The peers: others that do the same work on the same rows."""
