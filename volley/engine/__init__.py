"""The driver's side of a job: launch, epochs, checkpoint, progress."""
