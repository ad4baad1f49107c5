"""What `polymq pipeline init` writes: a file that runs as it is, with everything else that may be said in comments."""

from __future__ import annotations

from typing import Final

__all__ = ["write"]

_TEMPLATE: Final = """\
# A pipeline from messages to tables. Next: `polymq pipeline once`, then `polymq pipeline report`.
# What is commented out is the default. docs/PIPELINE.md explains every table and column.
name = "{name}"

# All tables are below this folder, relative to this file.
storage = "archive"

[source]
# polymq reads the log of a polymq node; nsq, nats, rocketmq and phpmq read any server of these protocols.
format = "polymq"

[source.options]
# The options of the source, as spark.readStream has them.
server = "{server}"
subscribe = "{topics}"
startingOffsets = "earliest"
# So that one batch stays small enough for this machine.
maxOffsetsPerTrigger = "500000"

[spark]
# "local[2]" is two cores of this machine; spark://HOST:7077 is a cluster that sees the storage folder.
# master = "local[2]"
# memory = "1g"

# [spark.settings]
# "spark.sql.shuffle.partitions" = "8"

[triggers]
# bronze = "5s"          # messages are taken in
# silver = "5s"          # bodies are decoded
# gold = "1m"            # aggregates are made again, for the days that have changed
# statistics = "15s"     # the broker is asked for its groups
# compaction = "1h"      # small files are put together, old ones removed

[silver]
# How bodies are decoded: json (the fields are found out), text, or none (such topics have no silver table).
# decode = "json"
# A message whose id was seen so recently is a repeat, and left out.
# repeat_window = "1h"

# One topic, if it differs. With a schema the fields are those and no others.
# [topics.orders]
# decode = "json"
# schema = "id bigint, price double, items array<string>"

[retention]
# By the date of the messages; "0s" is for ever.
# bronze = "30d"
# silver = "90d"
# quarantine = "30d"
# statistics = "30d"
# gold = "0s"

[compaction]
# files_min = 8
# file_size = "128MiB"

[statistics]
# The HTTP door of a polymq node. Without it, that of the source.
# server = "127.0.0.1:4171"
# What the node wants to be shown, if it does: a file, or an environment variable.
# secret_file = "node.secret"
# secret_env = ""

# A table of your own: SQL over bronze, silver_<topic>, quarantine, statistics, traffic, failures and groups.
# [gold.busiest]
# sql = "SELECT topic, sum(messages) AS messages FROM traffic GROUP BY topic ORDER BY messages DESC"
"""


def write(*, name: str, server: str, topics: str) -> str:
    """Fill the template in."""
    quoted = {
        key: value.replace("\\", "\\\\").replace('"', '\\"') for key, value in {"name": name, "server": server, "topics": topics}.items()
    }
    return _TEMPLATE.format(**quoted)
