"""Settings as documents: YAML with lines and columns, references to the environment, models, mistakes in words."""
