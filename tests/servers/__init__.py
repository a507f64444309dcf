"""Real servers for the tests, one module each."""
