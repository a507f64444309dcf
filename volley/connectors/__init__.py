"""Sources and sinks that come with Volley."""
