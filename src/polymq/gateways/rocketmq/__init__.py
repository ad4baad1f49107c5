"""RocketMQ: the gateway of brokers and name servers, over the core."""
