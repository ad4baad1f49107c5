"""Spark over the queues of RocketMQ's brokers: the data source `rocketmq`. Start at `source.py`."""
