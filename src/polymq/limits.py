"""Every limit that polymq keeps, with its reason. Relations between limits are asserted at import."""

from __future__ import annotations

from typing import Final

__all__ = [
    "ATTEMPTS_MAX",
    "BATCH_SIZE_BYTES_MAX",
    "BATCH_SIZE_BYTES_TARGET",
    "CAPTURED_TOPICS_MAX",
    "COMPLAINTS_PER_MINUTE_MAX",
    "CONNECTIONS_MAX",
    "CONNECTIONS_SPARE",
    "CONNECT_URLS_SIZE_BYTES_MAX",
    "CONNECT_URL_SIZE_BYTES_MAX",
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
    "INTEREST_CACHED_NAMES_MAX",
    "INTEREST_CACHED_NAME_SIZE_BYTES_MAX",
    "INTEREST_CACHED_PARTS_MAX",
    "INTEREST_ENTRIES_MAX",
    "INTEREST_NAME_SIZE_BYTES_MAX",
    "INTEREST_PAIRS_KEPT_MAX",
    "INTEREST_TOKENS_MAX",
    "INTEREST_WEIGHT_MAX",
    "LATENCY_QUANTILES_MAX",
    "LAYER_CHUNKS_PER_PIECE_MAX",
    "LAYER_NS_PER_TURN_MAX",
    "LAYER_PIECES_PER_TURN_MAX",
    "LAYER_PIECE_SIZE_BYTES_MAX",
    "LIVE_ANSWERS_MAX",
    "LIVE_ANSWERS_SIZE_BYTES_MAX",
    "LIVE_LEAVING_PER_TURN",
    "LIVE_NEW_TOPICS_PER_PASS_MAX",
    "LIVE_REFUSALS_TOLD_MAX",
    "LIVE_RULES_NAMES_MAX",
    "LIVE_SHOWN_PER_TURN_MAX",
    "LIVE_SHOWN_SIZE_BYTES_PER_TURN",
    "LIVE_SHOWN_TOPICS_MAX",
    "LIVE_SORTED_KEPT_MAX",
    "LIVE_STEPS_HANDED_ON_FIRST",
    "LIVE_STEPS_PER_PASS_MAX",
    "LOGIN_PATTERNS_LARGE_MAX",
    "LOGIN_PATTERNS_MAX",
    "LOG_REQUESTS_MAX",
    "LOG_REQUESTS_PER_SESSION_MAX",
    "LOG_REQUEST_BACKLOG_BYTES_MAX",
    "LOG_REQUEST_LISTENERS_PER_TURN",
    "LOG_REQUEST_SIZE_BYTES_MAX",
    "LOG_REQUEST_SIZE_BYTES_PER_TURN",
    "LOG_REQUEST_TOPICS_MAX",
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
    "NATS_BULKY_SIZE_BYTES",
    "NATS_CONF_DEPTH_MAX",
    "NATS_CONF_FILES_MAX",
    "NATS_CONF_SIZE_BYTES_MAX",
    "NATS_CONF_VALUES_MAX",
    "NATS_DEPARTED_MAX",
    "NATS_DEPARTED_SUBSCRIPTIONS_MAX",
    "NATS_EVENTS_PER_FEED_MAX",
    "NATS_IMPORT_NAMES_MAX",
    "NATS_JETSTREAM_REQUESTS_MAX",
    "NATS_MEMBERSHIPS_MAX",
    "NATS_NS_PER_TURN_MAX",
    "NATS_QUESTIONS_SIZE_BYTES_MAX",
    "NATS_RECONSIDERED_PER_CLIENT",
    "NATS_RECONSIDERED_PER_LOSS",
    "NATS_RECONSIDERED_PER_TURN_MAX",
    "NATS_ROWS_MAX",
    "NATS_ROW_SUBSCRIPTIONS_MAX",
    "NATS_SERVICE_REQUESTS_MAX",
    "NATS_STALL_NS_MAX",
    "NATS_STALL_PENDING_PART",
    "NATS_STALL_SIZE_BYTES",
    "NATS_UNREAD_MESSAGES_MAX",
    "OFFSET_BITS",
    "OFFSET_MAX",
    "OUTBOX_SIZE_BYTES_HIGH",
    "OUTBOX_SIZE_BYTES_LOW",
    "OUTBOX_SIZE_BYTES_MAX",
    "PARTITIONS_PER_TOPIC_MAX",
    "PARTITION_BITS",
    "PARTITION_NUMBER_MAX",
    "PASSWORDS_WAITING_MAX",
    "PASSWORD_ANSWER_NS_MAX",
    "PASSWORD_THREADS_MAX",
    "PATTERNS_KEPT_MAX",
    "PATTERNS_LARGE_KEPT_MAX",
    "PATTERN_SIZE_BYTES_MAX",
    "PEEK_MESSAGES_MAX",
    "PEEK_READ_SIZE_BYTES",
    "PEEK_SIZE_BYTES_MAX",
    "PENDING_INPUT_SIZE_BYTES_MAX",
    "PREPARED_COMMIT_SIZE_BYTES_MAX",
    "PREPARED_FRAMES_MAX",
    "PREPARED_FRAMES_PER_REQUEST_MAX",
    "PREPARED_FRAMES_PER_SINK_MAX",
    "PREPARED_HEAD_SIZE_BYTES_MAX",
    "PREPARED_LATER_RECORDS_MAX",
    "PREPARED_MOVED_SIZE_BYTES_PER_FRAME",
    "PREPARED_MOVED_SIZE_BYTES_PER_TURN",
    "PREPARED_PARTS_PER_SINK_MAX",
    "PREPARED_REQUEST_SIZE_BYTES_MAX",
    "PREPARED_SINKS_MAX",
    "PREPARED_SINK_KEPT_NS_MIN",
    "PREPARED_SIZE_BYTES_MAX",
    "PREPARED_SIZE_BYTES_PER_SINK_MAX",
    "QUESTIONS_MAX",
    "QUESTIONS_PER_SERVER_MAX",
    "QUESTIONS_WAITING_MAX",
    "READS_MINDING_OTHERS",
    "READ_BUFFER_SIZE_BYTES",
    "READ_BULK_SIZE_BYTES",
    "RESOLVER_THREADS_MAX",
    "ROUTES_MAX",
    "ROUTES_WAITING_MAX",
    "ROUTE_CONNECT_URLS_MAX",
    "ROUTE_HEARSAY_MAX",
    "ROUTE_LINES_PER_TURN_MAX",
    "ROUTE_NS_PER_TURN_MAX",
    "ROUTE_PENDING_SIZE_BYTES_MAX",
    "ROUTE_PIECE_SIZE_BYTES",
    "ROUTE_PRESSED_SIZE_BYTES",
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
# The same for a connection whose messages are large and only passed on: nearly all of its time is in the kernel's copies and wake-ups,
# and the latter are fewer. At 1 KiB a message took 0.69 µs of the processor in place of 0.86.
READ_BULK_SIZE_BYTES: Final = 1024 * 1024
# But not while connections of another protocol are read as well: a mebibyte of 200 B takes 1 ms, and who may have only so many messages under
# way is served once a turn. So many reads one after the other must have been of one protocol.
READS_MINDING_OTHERS: Final = 64
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
# Beyond these, so many that are only told that there are too many, and so many again for those who look after the broker
# or are other servers: whatever clients do, they come in.
CONNECTIONS_SPARE: Final = 64

# Outgoing connections that are being made at one time; each holds a descriptor. One more fails at once.
DIALS_MAX: Final = 640
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

# Prepared batches. Sinks are queries that write, 300 bytes each, and remembered for as long as there is room, so that a batch that
# was committed is known again; one that was used within this time is not forgotten for another. Parts are attempts of
# tasks: Spark has as many as partitions, and a few lost ones. A frame is 256 KiB or less of one partition's records and
# costs 200 bytes; a sink's are a batch of 16 GiB at most, or of as many partitions of topics. Bytes: a batch that is
# larger is better cut (maxOffsetsPerTrigger), and what lies there is on the disk once more until it is committed.
PREPARED_SINKS_MAX: Final = 10_000
PREPARED_SINK_KEPT_NS_MIN: Final = 24 * 3600 * 1_000_000_000
PREPARED_PARTS_PER_SINK_MAX: Final = 4096
PREPARED_FRAMES_PER_SINK_MAX: Final = 65_536
PREPARED_FRAMES_MAX: Final = 1_000_000
PREPARED_SIZE_BYTES_PER_SINK_MAX: Final = 8 * 1024 * 1024 * 1024
PREPARED_SIZE_BYTES_MAX: Final = 32 * 1024 * 1024 * 1024
# One request: the largest message fits, and checking and copying it takes 4 ms. Frames of a request: 5 us each.
PREPARED_REQUEST_SIZE_BYTES_MAX: Final = 10 * 1024 * 1024
PREPARED_FRAMES_PER_REQUEST_MAX: Final = 1024
# Records of a sink that are for later: the due times of all go into one entry of the journal, 16 bytes each, when it commits.
PREPARED_LATER_RECORDS_MAX: Final = 100_000
PREPARED_HEAD_SIZE_BYTES_MAX: Final = 512 * 1024
# What commits append in a turn, all together: about a millisecond, and the frame that passes it. A small frame costs 60 us, as much
# as this many bytes of a large one, so that a turn has 64 of them at most: some milliseconds.
PREPARED_MOVED_SIZE_BYTES_PER_TURN: Final = 1024 * 1024
PREPARED_MOVED_SIZE_BYTES_PER_FRAME: Final = 16 * 1024
# The names of parts in a commit's or an abort's request: 4096 of 60 bytes, twice.
PREPARED_COMMIT_SIZE_BYTES_MAX: Final = 512 * 1024

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

# Threads that compare passwords with their bcrypt hashes: one for each core, at most so many; they run only where nothing
# else has to. And the different passwords that wait: at 100 ms each and on two cores the last one waits 50 s.
PASSWORD_THREADS_MAX: Final = 32
PASSWORDS_WAITING_MAX: Final = 1000
# How long an answer may take, whoever has asked: longer than all that can wait, at 500 ms each and on two cores.
PASSWORD_ANSWER_NS_MAX: Final = 300_000_000_000

# A configuration of nats-server, with all the files that it includes: 45,000 users with permissions are 13 MiB and 720,000
# values, which take 15 s and 600 MB at the start. Values behind a variable count each time; five levels are usual.
NATS_CONF_SIZE_BYTES_MAX: Final = 16 * 1024 * 1024
NATS_CONF_VALUES_MAX: Final = 1_000_000
NATS_CONF_FILES_MAX: Final = 256
NATS_CONF_DEPTH_MAX: Final = 64

# Samples of one family that /metrics lists: about 20 families, 250 KB each. The rest is added up.
METRICS_SAMPLES_PER_FAMILY_MAX: Final = 2_000
# Quantiles of latencies in statistics: each is one more number per topic and group wherever they are shown.
LATENCY_QUANTILES_MAX: Final = 20

# Patterns of live messages, and names of their queue groups: the longest line that says one has 4 KiB by default.
INTEREST_NAME_SIZE_BYTES_MAX: Final = 4096
# Each token of a pattern may cost a node, 150 bytes. People use up to 16; a pattern of the longest line would cost 300 KB.
INTEREST_TOKENS_MAX: Final = 256
# Entries of one namespace, at 300 to 600 bytes each; sites with a million are known, one with nine.
INTEREST_ENTRIES_MAX: Final = 10_000_000
# What one remote member of a queue group may weigh, in members: nine digits travel. The sum of ENTRIES_MAX has 54 bits.
INTEREST_WEIGHT_MAX: Final = 999_999_999
# Names whose matches are remembered, per namespace. Longer names and larger matches are looked up each time: so all
# of it is at most 8192 x (512 bytes + 256 references), 20 MB; usually 2.
INTEREST_CACHED_NAMES_MAX: Final = 8192
INTEREST_CACHED_NAME_SIZE_BYTES_MAX: Final = 512
INTEREST_CACHED_PARTS_MAX: Final = 256
# Room for pairs that a target keeps from one batch to the next: 8 KiB, for ten thousand connections 80 MB at the worst.
INTEREST_PAIRS_KEPT_MAX: Final = 1024
# What one pass over a batch of live messages may take before the clock is looked at, and what it makes is written: 5 ms. A pair is a step, as is
# an entry that gets nothing, and 256 bytes of a payload for one who gets them: so it is 512 KiB of pairs at most, and 16 MiB of messages. A read of small
# messages for a hundred listeners each takes two passes.
LIVE_STEPS_PER_PASS_MAX: Final = 64 * 1024
# And the first pass where messages are handed on to other namespaces: each pass after it is twice as large, and there is none once the
# turn has taken long enough. So it takes about twice as long at most, whatever becomes of the messages there.
LIVE_STEPS_HANDED_ON_FIRST: Final = 512
# Entries of those who have left that a turn takes out: 2 ms.
LIVE_LEAVING_PER_TURN: Final = 1024
# Names of live messages of which it is remembered whether a principal may publish or hear them: 2 MB of usual ones, 10 of the
# longest that are remembered (INTEREST_CACHED_NAME_SIZE_BYTES_MAX).
LIVE_RULES_NAMES_MAX: Final = 16 * 1024
# Questions that one connection was asked, has not answered, and may answer because it was asked, and the bytes of the names for
# those answers, of which each may have 4 KiB: 18 MB.
LIVE_ANSWERS_MAX: Final = 64 * 1024
LIVE_ANSWERS_SIZE_BYTES_MAX: Final = 8 * 1024 * 1024
# Names of which an import remembers what they are in the other account: 100 kB of usual ones, 1 MB of the longest that are remembered
# (INTEREST_CACHED_NAME_SIZE_BYTES_MAX).
NATS_IMPORT_NAMES_MAX: Final = 1024
# Questions to a service of another account that were not answered, for each that is imported: 25 MB, 33 with their replies.
NATS_SERVICE_REQUESTS_MAX: Final = 64 * 1024
# And the bytes of the replies of those who have asked, which may have 4 KiB each.
NATS_QUESTIONS_SIZE_BYTES_MAX: Final = 8 * 1024 * 1024
# Questions of clients to JetStream on other servers that were not answered: 6 MB, and no more than 14 with
# NATS_QUESTIONS_SIZE_BYTES_MAX. A server with JetStream drops its own from 10,000 on.
NATS_JETSTREAM_REQUESTS_MAX: Final = 16 * 1024
# Work groups that one NATS client is a member of, and what each of them may give it that it has not read: what comes later goes to others of the
# group. Messages are objects there: some milliseconds for all of one member's.
NATS_MEMBERSHIPS_MAX: Final = 1024
NATS_UNREAD_MESSAGES_MAX: Final = 256
# Requests to read the log by live messages that are under way, at about 2 kB each and up to 256 KiB for those that read the disk.
LOG_REQUESTS_MAX: Final = 1024
# Of those, for one connection: nobody takes all of them.
LOG_REQUESTS_PER_SESSION_MAX: Final = 64
# A request is a little JSON.
LOG_REQUEST_SIZE_BYTES_MAX: Final = 4096
# What all of them read in a turn, in pieces of a quarter: 2 ms, since each message is an object here; a topic's name that is looked at
# counts for 32 bytes. Whoever has more than this waiting for him is not sent more: a listener is cut off at 64 MiB.
LOG_REQUEST_SIZE_BYTES_PER_TURN: Final = 64 * 1024
LOG_REQUEST_BACKLOG_BYTES_MAX: Final = 1024 * 1024
# Listeners that are looked at in a turn, to see whether they keep up: 2 ms.
LOG_REQUEST_LISTENERS_PER_TURN: Final = 10_000
# Names in one answer: 1,000 of the longest are 255 KiB.
LOG_REQUEST_TOPICS_MAX: Final = 1000
# Topics that patterns make in one namespace: names come from outside, and each topic is a folder, a file of 64 KiB at
# least and an entry here. Who has more knows it, and says so.
CAPTURED_TOPICS_MAX: Final = 10_000
# Topics that one pass over a batch makes, at 2 ms each, and requests that are answered within it; then whoever publishes may have to
# wait for the next turn.
LIVE_NEW_TOPICS_PER_PASS_MAX: Final = 4
# Places for messages that are being sorted to be stored, kept from one batch to the next: 1.5 MB. A read of 256 KiB of the
# smallest messages has 23,832.
LIVE_SORTED_KEPT_MAX: Final = 64 * 1024
# Of what one read publishes and cannot be stored, a publisher who is not verbose is told about so many topics: each has a line of its own.
LIVE_REFUSALS_TOLD_MAX: Final = 8
# What others have published is handed to who listens live in pieces: so much of each topic and of all in a turn, a millisecond.
LIVE_SHOWN_PER_TURN_MAX: Final = 16
LIVE_SHOWN_SIZE_BYTES_PER_TURN: Final = 256 * 1024
# Topics that somebody listens to live whose place in the log is known, at about 1 kB each; the others' is found again.
LIVE_SHOWN_TOPICS_MAX: Final = 10_000
# Clients of NATS that are gone and still shown by the monitoring pages, each with so many of its subscriptions. A name may have
# 4 KiB: 36 MB at the worst, and usually 1. (nats-server keeps 10,000.)
NATS_DEPARTED_MAX: Final = 1000
NATS_DEPARTED_SUBSCRIPTIONS_MAX: Final = 8
# Rows of one answer of the monitoring pages, whatever its limit says, and subscriptions in one row of /connz. Choosing
# the rows is 3 ms of everybody's time; each of them is made when it is its turn to be sent, a row of the largest in 2 ms.
NATS_ROWS_MAX: Final = 10_000
NATS_ROW_SUBSCRIPTIONS_MAX: Final = 1000
# A client of NATS that publishes to somebody with more than this part of `max_pending` waiting is not read for a while: for each
# SIZE_BYTES that it has sent at once, 10 ms, as nats-server does; but not so long that it seems dead.
NATS_STALL_PENDING_PART: Final = 0.75
NATS_STALL_SIZE_BYTES: Final = 64 * 1024
# Publishers of messages that have this size on average are read in large pieces.
NATS_BULKY_SIZE_BYTES: Final = 128
NATS_STALL_NS_MAX: Final = 100_000_000

# What a client of NATS says is acted on for so long in a turn; the rest waits for the next one, as does the client. The clock is
# looked at between passes over what is published (LIVE_STEPS_PER_PASS_MAX) and, for other commands, after so many: a millisecond.
NATS_NS_PER_TURN_MAX: Final = 5_000_000
NATS_EVENTS_PER_FEED_MAX: Final = 128
# When a reload says anew who may do what: subscriptions that are looked at in a turn, all clients together (who has more is looked
# at in several), and for how many a client counts, and one that is lost beside itself: some milliseconds.
NATS_RECONSIDERED_PER_TURN_MAX: Final = 1000
NATS_RECONSIDERED_PER_CLIENT: Final = 20
NATS_RECONSIDERED_PER_LOSS: Final = 3

# Output that waits for another NATS server, which may be slow and must not be lost as easily as a client: half a second of
# all that a route can carry. nats-server keeps any amount until a write has made no progress for 10 s. While less than this
# waits, the route is read all the same.
ROUTE_PENDING_SIZE_BYTES_MAX: Final = 256 * 1024 * 1024
# Above this, clients that publish to it wait (NATS_STALL_…): polymq takes four times as much from them as a route carries.
ROUTE_PRESSED_SIZE_BYTES: Final = 64 * 1024 * 1024
# Lines of interest that a new route is told in one turn, at 0.5 us each; half a million take 31 turns.
ROUTE_LINES_PER_TURN_MAX: Final = 16 * 1024
# Input of a route is handled in such pieces: some hundred messages, in 0.1 ms, or NATS_EVENTS_PER_FEED_MAX lines of interest. After
# this time the rest waits for the next turn, so that half a million lines do not keep clients waiting.
ROUTE_PIECE_SIZE_BYTES: Final = 64 * 1024
ROUTE_NS_PER_TURN_MAX: Final = 5_000_000
# Servers of one cluster, each with a route to each other one; clusters of 180 are known.
ROUTES_MAX: Final = 1024
# Connections at the route port that have not said who they are, beyond the routes.
ROUTES_WAITING_MAX: Final = 256
# Lines of the log for each sort of thing that is wrong with other servers: enough to see what it is, and that it goes on.
COMPLAINTS_PER_MINUTE_MAX: Final = 5
# Addresses for clients that are taken over from one other server: one for each of its network's interfaces.
ROUTE_CONNECT_URLS_MAX: Final = 64
# One of them: a name of a host, which has 253 bytes at most, and a port. And all that clients are told, with what is around each:
# nats-py gives up connecting where INFO has more than 64 KiB. 600 servers have room.
CONNECT_URL_SIZE_BYTES_MAX: Final = 253 + len(":65535")
CONNECT_URLS_SIZE_BYTES_MAX: Final = 16 * 1024
# Servers that are dialled, at a time, because others have told of them; each newcomer is one. Of those who take the call and do not
# say who they are there may be as many again: beyond that the oldest such connection is closed.
ROUTE_HEARSAY_MAX: Final = 128

assert DELAY_NS_MAX < TIME_NS_MAX
assert DEAD_LETTER_NAME_SIZE_MAX <= NAME_SIZE_BYTES_MAX
assert OFFSET_BITS + PARTITION_BITS == 63
assert INTEREST_ENTRIES_MAX * INTEREST_WEIGHT_MAX < 1 << 63
assert INTEREST_CACHED_NAME_SIZE_BYTES_MAX <= INTEREST_NAME_SIZE_BYTES_MAX
assert QUESTIONS_MAX + LOOKUP_QUESTIONS_TOTAL_MAX + LOOKUP_ADDRESSES_MAX + ROUTE_HEARSAY_MAX <= DIALS_MAX
assert LOOKUP_QUESTIONS_MAX <= QUESTIONS_PER_SERVER_MAX < QUESTIONS_MAX
assert HTTP_HEAD_SIZE_BYTES_MAX < READ_BUFFER_SIZE_BYTES
assert HTTP_RECORDS_SIZE_BYTES <= HTTP_RECORDS_SIZE_BYTES_MAX
assert HTTP_CHUNK_SIZE_BYTES_MAX <= OUTBOX_SIZE_BYTES_LOW
assert MESSAGE_SIZE_BYTES_MAX < BATCH_SIZE_BYTES_MAX <= SEGMENT_SIZE_BYTES_MAX
assert BATCH_SIZE_BYTES_TARGET < BATCH_SIZE_BYTES_MAX
assert MESSAGE_SIZE_BYTES_MAX < PREPARED_REQUEST_SIZE_BYTES_MAX < PENDING_INPUT_SIZE_BYTES_MAX
assert PREPARED_REQUEST_SIZE_BYTES_MAX < BATCH_SIZE_BYTES_MAX
assert SEGMENT_SIZE_BYTES_FIRST < SEGMENT_SIZE_BYTES_MAX
assert UNSYNCED_SIZE_BYTES_LOW < UNSYNCED_SIZE_BYTES_HIGH
assert OUTBOX_SIZE_BYTES_LOW < OUTBOX_SIZE_BYTES_HIGH
assert OUTBOX_SIZE_BYTES_HIGH + SLICE_SIZE_BYTES_MAX < OUTBOX_SIZE_BYTES_MAX
assert READ_BUFFER_SIZE_BYTES < READ_BULK_SIZE_BYTES < PENDING_INPUT_SIZE_BYTES_MAX
