"""The builder: streams, keyed streams, joins and views, each a value that describes a plan."""
