"""Change events of databases as other programs write them: Debezium, Maxwell, Canal, AWS DMS, Airbyte, OLake, any."""
