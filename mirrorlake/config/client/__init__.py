"""Client options: one spelling for librdkafka and for Java."""
