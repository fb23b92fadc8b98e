"""What is asked of Spark's JVM beyond PySpark's own API: Hadoop's file systems, Kafka's client, causes of errors."""
