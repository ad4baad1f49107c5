"""Every limit that RocketMQ's part of polymq keeps, with its reason: `limits.py` for that one protocol."""

from __future__ import annotations

from typing import Final

from polymq.limits import BATCH_SIZE_BYTES_MAX, MESSAGE_SIZE_BYTES_MAX, OFFSET_BITS, PARTITION_BITS, PENDING_INPUT_SIZE_BYTES_MAX

__all__ = [
    "ANSWERS_SIZE_BYTES_PER_CALL_MAX",
    "ASKED_PER_CONNECTION_MAX",
    "CLIENT_ID_SIZE_MAX",
    "COLD_COPIES_SIZE_BYTES_MAX",
    "COLD_PULLS_MAX",
    "DELAY_LEVELS_MAX",
    "EXPRESSION_SIZE_MAX",
    "FILTERS_REMEMBERED_MAX",
    "FILTERS_REMEMBERED_SIZE_BYTES_MAX",
    "FRAME_SIZE_BYTES_MAX",
    "GROUPS_DELETED_PER_REQUEST_MAX",
    "GROUPS_PER_HEARTBEAT_MAX",
    "GROUP_OFFSETS_PER_TOPIC_MAX",
    "GROUP_SIZE_BYTES_MAX",
    "HASHED_SIZE_PER_HEARTBEAT_MAX",
    "HEADER_SIZE_BYTES_MAX",
    "JOBS_MAX",
    "JOBS_NS_PER_TURN_MAX",
    "JOBS_PER_CONNECTION_MAX",
    "JSON_BODY_SIZE_BYTES_MAX",
    "JSON_DEPTH_MAX",
    "JSON_VALUES_MAX",
    "KEYS_PER_CONNECTION_MAX",
    "LANES_PER_CONNECTION_MAX",
    "LOCKED_QUEUES_MAX",
    "LOCKED_QUEUES_PER_REQUEST_MAX",
    "MEMBERS_MAX",
    "MEMBERS_PER_CONNECTION_MAX",
    "MESSAGE_COUNT_PER_BATCH_MAX",
    "MESSAGE_COUNT_PER_PULL_MAX",
    "NAMED_BROKERS_MAX",
    "NAMED_SILENCE_NS_MAX",
    "NAMED_TOPICS_MAX",
    "NAMED_VERSION_SIZE_BYTES_MAX",
    "PHYSICAL_OFFSET_BITS",
    "PLACES_PER_CONNECTION_MAX",
    "PLACES_REMEMBERED_MAX",
    "PROPERTIES_SIZE_BYTES_MAX",
    "PULLS_MAX",
    "PULLS_PER_CONNECTION_MAX",
    "PULLS_WOKEN_PER_TURN_MAX",
    "PULL_HOLD_NS_MAX",
    "PULL_LOOKS_NS_PER_TURN_MAX",
    "PULL_SCAN_RECORDS_MAX",
    "PULL_SCAN_SIZE_BYTES_MAX",
    "PULL_SIZE_BYTES_MAX",
    "PULL_SUBSCRIPTION_WAIT_NS",
    "QUERY_ANSWER_SIZE_BYTES_MAX",
    "QUERY_MESSAGES_MAX",
    "QUERY_NS_MAX",
    "QUERY_PIECE_COUNT",
    "QUERY_PIECE_SIZE_BYTES",
    "QUERY_SIZE_BYTES_MAX",
    "QUEUES_PER_TOPIC_MAX",
    "READERS_PER_CONNECTION_MAX",
    "RECORD_SIZE_BYTES_MAX",
    "REGISTRATION_NAME_SIZE_MAX",
    "REGISTRATION_OBJECTS_MAX",
    "REGISTRATION_SIZE_BYTES_MAX",
    "REGISTRATION_TOPICS_MAX",
    "REPEATED_SIZE_BYTES_MAX",
    "REPEATS_PER_FEED_MAX",
    "REQUESTS_NS_PER_TURN_MAX",
    "REQUESTS_PER_FEED_MAX",
    "ROUTE_QUEUES_MAX",
    "SENDS_PER_FEED_MAX",
    "SUBSCRIPTIONS_MAX",
    "SUBSCRIPTIONS_PER_HEARTBEAT_MAX",
    "SUBSCRIPTIONS_PER_MEMBER_MAX",
    "SUBSCRIPTIONS_SIZE_BYTES_MAX",
    "TAGS_PER_SUBSCRIPTION_MAX",
    "TOPICS_REMEMBERED_MAX",
    "TOPIC_LISTS_REMEMBERED_MAX",
    "TOPIC_LIST_MAX",
    "TOPIC_SIZE_BYTES_MAX",
    "UNUSUAL_HEADER_SIZE_BYTES_MAX",
    "YOUNG_QUEUE_SIZE_BYTES_MAX",
]

# com.rocketmq.remoting.frameMaxLength: what every real peer takes. It counts all of the frame but its first four bytes.
FRAME_SIZE_BYTES_MAX: Final = 16 * 1024 * 1024
# A real peer knows no limit but the frame's. The largest header that makes sense holds 32 KiB of properties, six bytes for each
# where JSON escapes it. Two megabytes take the decoder's scanner 2 ms, during which nobody else is served.
HEADER_SIZE_BYTES_MAX: Final = 2 * 1024 * 1024
# A header that is unlike any real peer's goes through Python's JSON, which takes 10 ms for a megabyte.
UNUSUAL_HEADER_SIZE_BYTES_MAX: Final = 1024 * 1024
# Heartbeats and their like: a client with 1,000 groups says 500 KB. Read in one piece, so they hold up everybody.
JSON_BODY_SIZE_BYTES_MAX: Final = 1024 * 1024
# The deepest body of a real peer has 7 levels.
JSON_DEPTH_MAX: Final = 64
# Each is a Python object of 50 to 100 bytes: a body of empty lists would be a hundred times its size.
JSON_VALUES_MAX: Final = 200_000

# As RocketMQ has them. A stored message keeps a topic's size in a byte with a sign, and that of properties in two of them.
TOPIC_SIZE_BYTES_MAX: Final = 127
PROPERTIES_SIZE_BYTES_MAX: Final = 32767
# The retry topic of a group, `%RETRY%` and its name, must be possible, too.
GROUP_SIZE_BYTES_MAX: Final = 120

# A frame with one message as large as may be must fit what a client takes: larger ones, of other protocols, are passed over.
RECORD_SIZE_BYTES_MAX: Final = FRAME_SIZE_BYTES_MAX - 64 * 1024
# 4 MiB of messages without bodies are 200,000; a real client puts at most some thousands into one.
MESSAGE_COUNT_PER_BATCH_MAX: Final = 65_536
# maxTransferCountOnMessageInMemory and maxTransferBytesOnMessageInMemory of RocketMQ 4.9.8.
MESSAGE_COUNT_PER_PULL_MAX: Final = 32
PULL_SIZE_BYTES_MAX: Final = 256 * 1024

# What one feed decodes before the gateway acts on it: columns of 36 bytes for each send, an object for each other request.
SENDS_PER_FEED_MAX: Final = 4096
REQUESTS_PER_FEED_MAX: Final = 128
# Pulls of a connection that are known again by their headers, without being read as requests: so many bytes of a header's fields, and so many
# of them (some 1,500 bytes each); more than a consumer has queues are forgotten all together. One feed decodes so many of them.
REPEATED_SIZE_BYTES_MAX: Final = 1024
LANES_PER_CONNECTION_MAX: Final = 256
REPEATS_PER_FEED_MAX: Final = 16
# One connection's requests in a turn, after which the others have theirs; a single one may take longer.
REQUESTS_NS_PER_TURN_MAX: Final = 2_000_000
# A decoder remembers the topics that its client sends to, and forgets all of them when there are more.
TOPICS_REMEMBERED_MAX: Final = 1024

# A message's physical offset is its partition's number and the lower bits of its offset. JavaScript's numbers hold 53 bits.
# So a message is found again as long as its partition keeps fewer than 2,147,483,648 behind it.
PHYSICAL_OFFSET_BITS: Final = 53 - PARTITION_BITS

# What other brokers register with our name server: a cluster has some dozens of them, and a name or an address that is longer is a mistake.
NAMED_BROKERS_MAX: Final = 1000
NAMED_TOPICS_MAX: Final = 200_000  # of all brokers: 60 MB
NAMED_SILENCE_NS_MAX: Final = 600 * 1_000_000_000
REGISTRATION_NAME_SIZE_MAX: Final = 255
# A topic takes 130 bytes of JSON, and twice its name. Read in one piece: 50 ms for as many as there may be, and names of 20 characters.
REGISTRATION_SIZE_BYTES_MAX: Final = 8 * 1024 * 1024
REGISTRATION_TOPICS_MAX: Final = 20_000
# Lists and objects of any JSON in it: a topic is two. They take a hundred times the memory of what they are written with.
REGISTRATION_OBJECTS_MAX: Final = 150_000
# The version that a broker compares with ours: a real one takes 60 bytes.
NAMED_VERSION_SIZE_BYTES_MAX: Final = 4096
# BenchmarkTest has 1024 with a real broker.
ROUTE_QUEUES_MAX: Final = 65_536
# Names in one answer: 1 MB, and 10 ms to write.
TOPIC_LIST_MAX: Final = 50_000
# Such answers are kept until topics come or go, one for each namespace.
TOPIC_LISTS_REMEMBERED_MAX: Final = 16
# One client has one key; a proxy may speak for some.
KEYS_PER_CONNECTION_MAX: Final = 64

assert REGISTRATION_TOPICS_MAX * (2 * TOPIC_SIZE_BYTES_MAX + 130) < REGISTRATION_SIZE_BYTES_MAX < FRAME_SIZE_BYTES_MAX

# A real client id is an address, a process and a time: 40 characters.
CLIENT_ID_SIZE_MAX: Final = 512
# A process with so many groups says 1 MB every 30 seconds, which is what a body may have.
GROUPS_PER_HEARTBEAT_MAX: Final = 2_000
# Groups come by committing, whatever they are called, and stay: each keeps an offset of 8 bytes for each queue of the topic. 4,096 groups
# of the largest topic, a million of one with four queues.
GROUP_OFFSETS_PER_TOPIC_MAX: Final = 4 * 1024 * 1024
# From so many topics a group is taken in one turn: 20 ms.
GROUPS_DELETED_PER_REQUEST_MAX: Final = 1_000
# Clients in groups, of consumers and producers: about 500 bytes each. Ten thousand processes with ten groups each.
MEMBERS_MAX: Final = 100_000
# A real connection is one client's, in at most as many groups as a heartbeat may name. All leave at once when it ends: 15 ms.
MEMBERS_PER_CONNECTION_MAX: Final = 4_096
# What members have subscribed to, all together: about 500 bytes each, and the hashes of tags. Most have two.
SUBSCRIPTIONS_MAX: Final = 400_000
SUBSCRIPTIONS_PER_MEMBER_MAX: Final = 2_000
# Expressions and hashes of tags can be long; real ones are not.
SUBSCRIPTIONS_SIZE_BYTES_MAX: Final = 256 * 1024 * 1024
TAGS_PER_SUBSCRIPTION_MAX: Final = 1_000
# Characters of all tags of one subscription, or of a pull's own: 2 ms to hash. Real ones have some dozens.
EXPRESSION_SIZE_MAX: Final = 16 * 1024
# Characters of tags in one heartbeat that come without their hashes, which real clients send along: 10 ms.
HASHED_SIZE_PER_HEARTBEAT_MAX: Final = 64 * 1024
# Each takes about 5 µs to register, during which nobody else is served.
SUBSCRIPTIONS_PER_HEARTBEAT_MAX: Final = 10_000
# Queues that orderly consumers have for themselves: about 300 bytes each. A request names those of one topic, or of all.
LOCKED_QUEUES_MAX: Final = 200_000
LOCKED_QUEUES_PER_REQUEST_MAX: Final = 10_000
# RocketMQ has 18; each message names one, so they cost nothing.
DELAY_LEVELS_MAX: Final = 1_000
# A queue is a partition with files of its own. Real topics have 4 to 16; more than 1,024 is a slip.
QUEUES_PER_TOPIC_MAX: Final = 1024
# Filters of pulls are parsed once each, and forgotten all together when they are more, or larger.
FILTERS_REMEMBERED_MAX: Final = 4096
FILTERS_REMEMBERED_SIZE_BYTES_MAX: Final = 16 * 1024 * 1024
# A new group of a queue that begins at 0 and is no larger starts there: RocketMQ's rule is "in memory", 40 % of it.
YOUNG_QUEUE_SIZE_BYTES_MAX: Final = 256 * 1024 * 1024
# Where the messages of a queue are said to be is worked out once for each; 300 bytes.
PLACES_REMEMBERED_MAX: Final = 16_384
# The queues that one connection sends to.
PLACES_PER_CONNECTION_MAX: Final = 1024
# Replies that a client has been handed and has not confirmed: it does so at once, or never.
ASKED_PER_CONNECTION_MAX: Final = 4096
# A consumer holds one pull for each queue that it has: 1,000 topics of four queues are 4,000. Each is 700 bytes here.
PULLS_PER_CONNECTION_MAX: Final = 8192
PULLS_MAX: Final = 65_536
# Real clients ask for 15 to 20 s, and give up 10 s later; longer than 25 s and the connection may count as idle.
PULL_HOLD_NS_MAX: Final = 25_000_000_000
# A pull that knows of a newer subscription than we do waits so long for the heartbeat that tells of it: it follows at once.
PULL_SUBSCRIPTION_WAIT_NS: Final = 1_000_000_000
# What a filter may reject for one pull: 800 index entries in RocketMQ. Here a record costs 20 ns to look at: 0.3 ms.
PULL_SCAN_RECORDS_MAX: Final = 16_384
PULL_SCAN_SIZE_BYTES_MAX: Final = 4 * 1024 * 1024
# What one connection is answered in one call; more of its requests, and its other pulls, wait until that is written.
ANSWERS_SIZE_BYTES_PER_CALL_MAX: Final = 1024 * 1024
# Places in the log that a connection goes on reading from: 200 bytes each, and found again if there are more.
READERS_PER_CONNECTION_MAX: Final = 4096
# What those keep of what is not in memory, all connections together: 256 KiB each, or 4 MiB as long as there is room, or a whole batch.
COLD_COPIES_SIZE_BYTES_MAX: Final = 96 * 1024 * 1024
# Reads of the disk for pulls at the same time; the others wait their turn. One thread reads: more would only be kept in memory.
COLD_PULLS_MAX: Final = 8
# Pulls that are woken in one turn: 10 us for each that finds nothing for it, and nobody else is served meanwhile.
PULLS_WOKEN_PER_TURN_MAX: Final = 128
# What one turn spends on pulls with a filter or of what is not in memory: no more are begun then.
PULL_LOOKS_NS_PER_TURN_MAX: Final = 3_000_000
# Questions that are answered over some turns, of one connection and in all: each reads 512 KiB, or 128 messages, at a time.
JOBS_PER_CONNECTION_MAX: Final = 128
JOBS_MAX: Final = 1024
# What all of them together may do in a turn; a single step may take longer.
JOBS_NS_PER_TURN_MAX: Final = 2_000_000
# A query by key: messages it gives, what it looks through, and for how long (clients wait for 3 to 6 s). A message of any size may be the first.
QUERY_MESSAGES_MAX: Final = 64
QUERY_ANSWER_SIZE_BYTES_MAX: Final = 1024 * 1024
QUERY_PIECE_SIZE_BYTES: Final = 512 * 1024
QUERY_PIECE_COUNT: Final = 128  # those in which the key stands are made objects, at 13 µs each
QUERY_SIZE_BYTES_MAX: Final = 512 * 1024 * 1024
QUERY_NS_MAX: Final = 2_500_000_000

assert 24 <= PHYSICAL_OFFSET_BITS <= OFFSET_BITS
assert FRAME_SIZE_BYTES_MAX <= PENDING_INPUT_SIZE_BYTES_MAX
assert HEADER_SIZE_BYTES_MAX >= UNUSUAL_HEADER_SIZE_BYTES_MAX > 6 * PROPERTIES_SIZE_BYTES_MAX
assert FRAME_SIZE_BYTES_MAX < BATCH_SIZE_BYTES_MAX or RECORD_SIZE_BYTES_MAX > MESSAGE_SIZE_BYTES_MAX
assert MEMBERS_PER_CONNECTION_MAX > GROUPS_PER_HEARTBEAT_MAX
assert REGISTRATION_OBJECTS_MAX > 2 * REGISTRATION_SIZE_BYTES_MAX // 130
assert len("%RETRY%") + GROUP_SIZE_BYTES_MAX <= TOPIC_SIZE_BYTES_MAX
