"""Full extracts of any source, one an epoch, to be compared."""
