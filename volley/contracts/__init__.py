"""What a source, a sink or a dimension implements, and the values that they exchange with the engine."""
