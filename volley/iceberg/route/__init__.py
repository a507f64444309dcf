"""Many tables in one sink: names, the executors' writers, and the committer of their committers."""
