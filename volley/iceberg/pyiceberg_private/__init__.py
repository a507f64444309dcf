"""All that stands on pyiceberg's private names: an upgrade of pyiceberg is an affair of this room."""
