"""MariaDB change capture: the binary log, and an initial load."""
