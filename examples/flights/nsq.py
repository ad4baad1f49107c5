"""placeholder."""

Deliveries = ProducerConnection = object
connect = subscribe = None
