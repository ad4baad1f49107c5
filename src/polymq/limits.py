"""Every limit that polymq keeps, with its reason. Relations between limits are asserted at import."""

from __future__ import annotations

from typing import Final

__all__ = [
    "ATTEMPTS_MAX",
    "BATCH_SIZE_BYTES_MAX",
    "BATCH_SIZE_BYTES_TARGET",
    "CONNECTIONS_MAX",
    "DEAD_LETTER_NAME_SIZE_MAX",
    "DELAY_NS_MAX",
    "DIALS_MAX",
    "HTTP_ANSWER_SIZE_BYTES_MAX",
    "HTTP_BODY_DISCARDED_BYTES_MAX",
    "HTTP_CHUNKS_PER_TURN_MAX",
    "HTTP_CHUNK_SIZE_BYTES_MAX",
    "HTTP_GUESTS_MAX",
    "HTTP_HEAD_SIZE_BYTES_MAX",
    "HTTP_IDLE_NS_MAX",
    "HTTP_NET_INTERVAL_NS",
    "HTTP_NS_PER_TURN_MAX",
    "HTTP_POLL_INTERVAL_NS",
    "HTTP_RECORDS_SIZE_BYTES",
    "HTTP_RECORDS_SIZE_BYTES_MAX",
    "HTTP_REDIRECTS_MAX",
    "HTTP_REQUESTS_PER_TURN_MAX",
    "HTTP_REQUEST_NS_MAX",
    "HTTP_SETTLE_SIZE_BYTES_MAX",
    "HTTP_STREAM_BEAT_NS",
    "HTTP_WAIT_NS_MAX",
    "IDENTIFY_SIZE_BYTES_MAX",
    "LATENCY_QUANTILES_MAX",
    "LAYER_CHUNKS_PER_PIECE_MAX",
    "LAYER_NS_PER_TURN_MAX",
    "LAYER_PIECES_PER_TURN_MAX",
    "LAYER_PIECE_SIZE_BYTES_MAX",
    "LOGIN_PATTERNS_LARGE_MAX",
    "LOGIN_PATTERNS_MAX",
    "LOOKUP_ADDRESSES_MAX",
    "LOOKUP_CHANNELS_MAX",
    "LOOKUP_COMMANDS_PER_TURN_MAX",
    "LOOKUP_COMMANDS_UNANSWERED_MAX",
    "LOOKUP_IDENTIFY_SIZE_BYTES_MAX",
    "LOOKUP_LINE_SIZE_BYTES_MAX",
    "LOOKUP_QUESTIONS_MAX",
    "LOOKUP_QUESTIONS_TOTAL_MAX",
    "LOOKUP_REGISTRATIONS_MAX",
    "LOOKUP_REPLY_SIZE_BYTES_MAX",
    "LOOKUP_SILENCE_NS_MAX",
    "MESSAGE_SIZE_BYTES_MAX",
    "METRICS_SAMPLES_PER_FAMILY_MAX",
    "NAME_SIZE_BYTES_MAX",
    "OFFSET_BITS",
    "OFFSET_MAX",
    "OUTBOX_SIZE_BYTES_HIGH",
    "OUTBOX_SIZE_BYTES_LOW",
    "OUTBOX_SIZE_BYTES_MAX",
    "PARTITIONS_PER_TOPIC_MAX",
    "PARTITION_BITS",
    "PARTITION_NUMBER_MAX",
    "PATTERNS_KEPT_MAX",
    "PATTERNS_LARGE_KEPT_MAX",
    "PATTERN_SIZE_BYTES_MAX",
    "PEEK_MESSAGES_MAX",
    "PEEK_READ_SIZE_BYTES",
    "PEEK_SIZE_BYTES_MAX",
    "PENDING_INPUT_SIZE_BYTES_MAX",
    "QUESTIONS_MAX",
    "QUESTIONS_PER_SERVER_MAX",
    "QUESTIONS_WAITING_MAX",
    "READ_BUFFER_SIZE_BYTES",
    "RESOLVER_THREADS_MAX",
    "SECRET_SIZE_BYTES_MAX",
    "SEGMENT_SIZE_BYTES_FIRST",
    "SEGMENT_SIZE_BYTES_MAX",
    "SLICE_MESSAGES_MAX",
    "SLICE_SIZE_BYTES_MAX",
    "SYNC_INTERVAL_NS",
    "TIME_NS_MAX",
    "TLS_EARLY_OUTPUT_SIZE_BYTES_MAX",
    "UNSYNCED_SIZE_BYTES_HIGH",
    "UNSYNCED_SIZE_BYTES_LOW",
]

# A message id is partition number and offset side by side in 63 bits, so it is positive in every language. 41 bits
# of offset are 2.2e12 messages per partition (25 days at a million a second, 70 years at a thousand); 22 bits are
# four million partitions, counted over the life of a data folder, since numbers are never used twice.
OFFSET_BITS: Final = 41
PARTITION_BITS: Final = 22
OFFSET_MAX: Final = (1 << OFFSET_BITS) - 1
PARTITION_NUMBER_MAX: Final = (1 << PARTITION_BITS) - 1
# Of one topic: each is a folder and a file, and a publish goes to one of them. One process gains nothing from more.
PARTITIONS_PER_TOPIC_MAX: Final = 256

# One socket read. Big enough that a full read amortises the turn, small enough to stay in the L2 cache.
READ_BUFFER_SIZE_BYTES: Final = 256 * 1024
# Unparsed input of one connection: the largest command (an MPUB body of 5 MiB, its line, its headers) fits.
PENDING_INPUT_SIZE_BYTES_MAX: Final = 16 * 1024 * 1024

# What a compressed stream may unfold to at a time; the rest stays compressed until that has been handled, so that a
# bomb holds no memory. Pieces of one connection follow one another in a turn, up to this many and for this long: as
# much as a few full reads, but commands that take long to handle do not keep the others waiting. Output goes through
# layers in such pieces and for so long as well: deflate takes 1.3 ms for one.
LAYER_PIECE_SIZE_BYTES_MAX: Final = 64 * 1024
LAYER_PIECES_PER_TURN_MAX: Final = 16
LAYER_NS_PER_TURN_MAX: Final = 1_000_000
# Parts that a piece of a compressed stream may have, each at 0.4 us and more: some mean nothing and are skipped.
LAYER_CHUNKS_PER_PIECE_MAX: Final = 1024
# Output before the end of a TLS handshake: a greeting or an error, not a stream.
TLS_EARLY_OUTPUT_SIZE_BYTES_MAX: Final = 64 * 1024

# The largest single message; a protocol may set a lower limit of its own (nsqd's default is 1 MiB).
MESSAGE_SIZE_BYTES_MAX: Final = 8 * 1024 * 1024
# A batch is closed once it is this large, so that readers can be handed batches one by one.
BATCH_SIZE_BYTES_TARGET: Final = 256 * 1024
# What one atomic publish may amount to with record headers; also what a reader must be able to hold.
BATCH_SIZE_BYTES_MAX: Final = 16 * 1024 * 1024

# Segments double from the first to the largest: an idle partition costs little, a busy one has few files.
SEGMENT_SIZE_BYTES_FIRST: Final = 64 * 1024
SEGMENT_SIZE_BYTES_MAX: Final = 64 * 1024 * 1024

# The durability point without fsync: synced within this time, and never more than this many bytes unsynced.
SYNC_INTERVAL_NS: Final = 1_000_000_000
UNSYNCED_SIZE_BYTES_HIGH: Final = 256 * 1024 * 1024
UNSYNCED_SIZE_BYTES_LOW: Final = 128 * 1024 * 1024

# Deliveries stop while a connection has more than HIGH bytes unsent, and go on below LOW.
OUTBOX_SIZE_BYTES_HIGH: Final = 1024 * 1024
OUTBOX_SIZE_BYTES_LOW: Final = 256 * 1024
# A connection with more unsent than this is not read either: it asks and does not listen. Well above HIGH, because a
# consumer that is busy writing its settles may be read from although it does not read.
OUTBOX_SIZE_BYTES_MAX: Final = 4 * 1024 * 1024

# Connections of all listeners together: 10,000 clients, and room for those who look after them; more wait in the
# kernel's backlog. Each costs a descriptor and 2 to 10 KiB.
CONNECTIONS_MAX: Final = 12_000

# Outgoing connections that are being made at one time; each holds a descriptor. One more fails at once.
DIALS_MAX: Final = 512
# Threads that look up names: a name server that does not answer holds one for up to half a minute, and a second one
# still serves the names in /etc/hosts. Whoever waits gives up at its own deadline.
RESOLVER_THREADS_MAX: Final = 4

# One slice of the log handed to one consumer in one go: keeps a turn short and consumers evenly served.
SLICE_MESSAGES_MAX: Final = 2500
SLICE_SIZE_BYTES_MAX: Final = 512 * 1024

# What one look at single messages may show: an object is made of each, about 3 us, so a full page holds a turn for a
# millisecond. Bodies stop at the size (with the one that passes it); the log is read in pieces of what a window has.
PEEK_MESSAGES_MAX: Final = 250
PEEK_SIZE_BYTES_MAX: Final = 1024 * 1024
PEEK_READ_SIZE_BYTES: Final = 256 * 1024

# Topic, group and namespace names, in UTF-8. RocketMQ allows 255 characters, the longest of the four.
NAME_SIZE_BYTES_MAX: Final = 255
# The name that the broker itself makes for a dead-letter topic: the protocol with the shortest names has 64 characters.
DEAD_LETTER_NAME_SIZE_MAX: Final = 64
# Times and sizes are stored in 63 bits. The longest delay is half of that, 146 years, so that the sum with the present
# time has a number for another century.
TIME_NS_MAX: Final = (1 << 63) - 1
DELAY_NS_MAX: Final = 1 << 62
# Deliveries of one message are counted in 16 bits, as NSQ's frame has them; the count stays at the maximum.
ATTEMPTS_MAX: Final = 0xFFFF

# A request line and its headers. Enough for any client of ours; IIS and h11 draw the same line, Go's is 1 MiB.
HTTP_HEAD_SIZE_BYTES_MAX: Final = 16 * 1024
# A body that no endpoint wants is read and thrown away up to here, to keep the connection; Go draws the same line.
HTTP_BODY_DISCARDED_BYTES_MAX: Final = 256 * 1024 - 1
# A streamed answer is handed to the connection in chunks of at most this size: about 0.2 ms
# of a turn, and the next is asked for before the last has left the kernel.
HTTP_CHUNK_SIZE_BYTES_MAX: Final = 256 * 1024
# Pipelined requests of one connection that are answered in one turn, at 20 to 50 us each; fewer when their answers pass
# OUTBOX_SIZE_BYTES_HIGH, or when they take long. The others have their turns in between, and who does not read makes no
# more answers. Chunks of bodies are counted as well, at 6 us each, however small.
HTTP_REQUESTS_PER_TURN_MAX: Final = 128
HTTP_CHUNKS_PER_TURN_MAX: Final = 500
HTTP_NS_PER_TURN_MAX: Final = 3_000_000
# A request must be complete this long after its first byte, so that nobody can hold connections by dripping.
HTTP_REQUEST_NS_MAX: Final = 60_000_000_000
# A connection without a request is closed after this time. nsqd never does; clients pool connections for minutes.
HTTP_IDLE_NS_MAX: Final = 15 * 60_000_000_000
# How often an answer that has to wait (for new records, for the disk) looks again; how often one does all the same that
# is rung for when there is something, as a net; and how long an answer may wait.
HTTP_POLL_INTERVAL_NS: Final = 10_000_000
HTTP_NET_INTERVAL_NS: Final = 1_000_000_000
HTTP_WAIT_NS_MAX: Final = 30_000_000_000
# A stream of messages that has nothing to send says so this often: a peer that is gone is noticed, proxies keep it open.
HTTP_STREAM_BEAT_NS: Final = 30_000_000_000
# The ids that one request finishes: 64 KiB are 3,855 of them, about 2 ms of a turn.
HTTP_SETTLE_SIZE_BYTES_MAX: Final = 64 * 1024
# What one request for records may ask for; a reader that wants more asks again.
HTTP_RECORDS_SIZE_BYTES_MAX: Final = 64 * 1024 * 1024
HTTP_RECORDS_SIZE_BYTES: Final = 8 * 1024 * 1024

# What a client says of itself before anybody has asked who it is: usually 300 bytes, kept as long as the connection
# lasts. Reading the worst JSON of this size takes 10 ms; nsqd reads as much as a batch of messages may have.
IDENTIFY_SIZE_BYTES_MAX: Final = 64 * 1024

# A node's command line to the directory that serves nsqlookupd's protocol: at most 143 bytes are legal, and what is
# not is given back in the error, as nsqlookupd does for lines of any length. Who it is: usually 150 bytes, kept as
# long as the connection lasts.
LOOKUP_LINE_SIZE_BYTES_MAX: Final = 64 * 1024
LOOKUP_IDENTIFY_SIZE_BYTES_MAX: Final = 16 * 1024
# What one node may say in one turn: about 4 ms. Nodes with many channels say it all at once when they connect.
LOOKUP_COMMANDS_PER_TURN_MAX: Final = 1000
# Names, and nodes that have them, in that directory: a thousand nodes with a thousand topics. Each costs about 300 bytes.
LOOKUP_REGISTRATIONS_MAX: Final = 1_000_000
# A node says PING every 15 s and is hidden after 5 min. Whoever is silent for so long is taken for a machine that
# went away without a word, so that it does not hold a connection for ever; nsqlookupd relies on TCP for that.
LOOKUP_SILENCE_NS_MAX: Final = 3600 * 1_000_000_000
# What a directory answers: OK, a short error, or 100 bytes about itself.
LOOKUP_REPLY_SIZE_BYTES_MAX: Final = 64 * 1024
# Commands to a directory that it has not answered: their answers, 6 bytes each, fit any socket's buffer.
LOOKUP_COMMANDS_UNANSWERED_MAX: Final = 1000
# Directories that a node announces itself to. Two or three are usual; each costs a connection.
LOOKUP_ADDRESSES_MAX: Final = 64
# Channels of a new topic that are made because directories know them: more would be a directory that lies.
LOOKUP_CHANNELS_MAX: Final = 1000
# Questions for channels that one directory has at a time; more topics wait. And those that all directories have, which
# take nothing from QUESTIONS_MAX: a dozen may hang and another one is asked still.
LOOKUP_QUESTIONS_MAX: Final = 16
LOOKUP_QUESTIONS_TOTAL_MAX: Final = 192

# An answer to a question of ours: an authentication server's is a few hundred bytes, for a thousand topics 100 KiB.
HTTP_ANSWER_SIZE_BYTES_MAX: Final = 256 * 1024
# Secrets that were shown over HTTP and are remembered, with a session each (1 KiB); an older one is asked for again.
HTTP_GUESTS_MAX: Final = 1000
# Go's client and curl draw the same line, browsers at 20.
HTTP_REDIRECTS_MAX: Final = 10
# A regular expression from outside: some hundred names as alternatives, which nsqd takes.
PATTERN_SIZE_BYTES_MAX: Final = 16 * 1024
# Compiled patterns that are kept, about 3 KiB each: those of all users of a company, or the worst of one attacker.
PATTERNS_KEPT_MAX: Final = 4096
# And of the large ones among them, up to 1 MiB each.
PATTERNS_LARGE_KEPT_MAX: Final = 64
# Patterns in one answer of an authentication server: each may take 1 ms of everybody's time to compile, a large one 20.
LOGIN_PATTERNS_MAX: Final = 512
LOGIN_PATTERNS_LARGE_MAX: Final = 16
# The secret of a login. It travels in the URL of a question, for which Go's server allows 1 MiB and others 8 KiB.
SECRET_SIZE_BYTES_MAX: Final = 16 * 1024

# Questions of logins that are asked at a time, and of those at one server; the rest wait. A server that hangs for 5 s
# lets 13 a second through, and three that hang leave a quarter of all to the others. One that answers within 10 ms is
# asked 6,400 times a second.
QUESTIONS_MAX: Final = 256
QUESTIONS_PER_SERVER_MAX: Final = 64
# Those that wait, as many as there can be connections that ask, each for as long as its answer may take.
QUESTIONS_WAITING_MAX: Final = 10_000

# Samples of one family that /metrics lists: about 20 families, 250 KB each. The rest is added up.
METRICS_SAMPLES_PER_FAMILY_MAX: Final = 2_000
# Quantiles of latencies in statistics: each is one more number per topic and group wherever they are shown.
LATENCY_QUANTILES_MAX: Final = 20

assert DELAY_NS_MAX < TIME_NS_MAX
assert DEAD_LETTER_NAME_SIZE_MAX <= NAME_SIZE_BYTES_MAX
assert OFFSET_BITS + PARTITION_BITS == 63
assert QUESTIONS_MAX + LOOKUP_QUESTIONS_TOTAL_MAX + LOOKUP_ADDRESSES_MAX <= DIALS_MAX
assert LOOKUP_QUESTIONS_MAX <= QUESTIONS_PER_SERVER_MAX < QUESTIONS_MAX
assert HTTP_HEAD_SIZE_BYTES_MAX < READ_BUFFER_SIZE_BYTES
assert HTTP_RECORDS_SIZE_BYTES <= HTTP_RECORDS_SIZE_BYTES_MAX
assert HTTP_CHUNK_SIZE_BYTES_MAX <= OUTBOX_SIZE_BYTES_LOW
assert MESSAGE_SIZE_BYTES_MAX < BATCH_SIZE_BYTES_MAX <= SEGMENT_SIZE_BYTES_MAX
assert BATCH_SIZE_BYTES_TARGET < BATCH_SIZE_BYTES_MAX
assert SEGMENT_SIZE_BYTES_FIRST < SEGMENT_SIZE_BYTES_MAX
assert UNSYNCED_SIZE_BYTES_LOW < UNSYNCED_SIZE_BYTES_HIGH
assert OUTBOX_SIZE_BYTES_LOW < OUTBOX_SIZE_BYTES_HIGH
assert OUTBOX_SIZE_BYTES_HIGH + SLICE_SIZE_BYTES_MAX < OUTBOX_SIZE_BYTES_MAX
assert READ_BUFFER_SIZE_BYTES < PENDING_INPUT_SIZE_BYTES_MAX
