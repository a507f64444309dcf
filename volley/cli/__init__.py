"""The command line: run, check and look at pipelines that stand in YAML."""
