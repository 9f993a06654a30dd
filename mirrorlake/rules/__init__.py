"""Rules: what a flow does to records on their way, on Arrow batches; no Kafka and no Spark session in here."""
