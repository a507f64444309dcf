"""Names of types, schemas as users write them, and their Arrow types."""
