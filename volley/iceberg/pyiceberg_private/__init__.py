"""Everything that uses private names of pyiceberg: an upgrade of pyiceberg changes only this package."""
