"""Floor 2: the Delta tables and the functions from DataFrame to DataFrame; starts no query and knows no Kafka client."""
