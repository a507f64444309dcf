"""The field ids that Iceberg's specification reserves for the columns of position-delete files."""

__all__ = ["PATH_ID", "POSITION_ID"]

PATH_ID = 2147483546
"""The field id of ``file_path``, the data file's location."""

POSITION_ID = 2147483545
"""The field id of ``pos``, the row's number in it."""
