"""Examples: each is a script to run, and is run by the tests."""
