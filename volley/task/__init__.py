"""What one executor task does: read, run the steps, sort out bad rows, write."""
