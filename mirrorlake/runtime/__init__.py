"""What everything runs on: the Spark session, Java and its jars, work in the background."""
