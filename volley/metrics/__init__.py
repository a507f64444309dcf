"""The metrics of a job: what it counts, a reading of it, its text for Prometheus, and the port that serves it."""
