"""What sources of change capture share: the selection of tables, the rows that come of them, segments of a stream."""
