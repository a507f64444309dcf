"""Type names, schemas as users write them, and their Arrow types."""
