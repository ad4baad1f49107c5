#!/bin/sh
# Bring the programs that polymq is tested and measured against: by name and version, from their package managers, into .peers/.
#
#   peers/build.sh             everything
#   peers/build.sh nsq         one part: nsq, go-nsq, nsqjs, php, nats, nats-2.9, nats_go, nats-cli, rocketmq,
#                              rocketmq_go, ali-ons (the Python clients come with the extra `interop`)
#
# Doing it again is cheap: a part whose files have not changed since is left alone. Needs go >= 1.26, npm, php-cli, maven and a JDK >= 17.
#
# POLYMQ_PEERS=FOLDER: into another folder.
set -eu
cd "$(dirname "$0")/.."
target="${POLYMQ_PEERS:-$PWD/.peers}"

say() { printf 'peers: %s\n' "$*"; }
die() { printf 'peers: %s\n' "$*" >&2; exit 1; }

need() {
    command -v "$1" >/dev/null 2>&1 && return
    die "'$1' is missing, and $3 cannot be had. Install it, for example: $2"
}

# A part is stamped with the checksum of everything that it is built from.
fingerprint() { find "peers/$1" -type f ! -path '*/node_modules/*' | LC_ALL=C sort | xargs cat | cksum; }
current() { [ -f "$target/stamps/$1" ] && [ "$(cat "$target/stamps/$1")" = "$(fingerprint "$1")" ]; }
stamp() { fingerprint "$1" >"$target/stamps/$1"; }

# The toolchain that is here, and exactly the versions in go.sum.
go_build() { (cd "peers/$1" && shift && GOTOOLCHAIN=local GOFLAGS='-mod=readonly -buildvcs=false' go build -o "$target/bin/" "$@"); }

# Exactly what is in the lock file, and our program beside it.
npm_install() {
    rm -rf "${target:?}/$1"
    mkdir -p "$target/$1"
    cp "peers/$1/package.json" "peers/$1/package-lock.json" "peers/$1/.npmrc" "peers/$1/client.js" "$target/$1/"
    (cd "$target/$1" && npm ci --ignore-scripts --loglevel=error >/dev/null)
}

build_nsq() {
    need go 'apt-get install golang-go' 'nsqd'
    say 'nsq 1.3.0: nsqd, nsqlookupd, nsqadmin, its tools, bench_reader, bench_writer (go, about a minute the first time)'
    nsq=github.com/nsqio/nsq
    go_build nsq $nsq/apps/nsqd $nsq/apps/nsqlookupd $nsq/apps/nsqadmin $nsq/apps/nsq_stat $nsq/apps/nsq_tail \
        $nsq/apps/nsq_to_file $nsq/apps/nsq_to_http $nsq/apps/nsq_to_nsq $nsq/apps/to_nsq $nsq/bench/bench_reader $nsq/bench/bench_writer
}

build_go_nsq() {
    need go 'apt-get install golang-go' 'the go-nsq client'
    say 'go-nsq 1.1.0: our client program over it (go)'
    go_build go-nsq .
}

build_nsqjs() {
    need npm 'apt-get install npm' 'the nsqjs client'
    say 'nsqjs 0.13.0 (npm)'
    # Optional parts are the native compression modules; they come built.
    npm_install nsqjs
}

# Nothing is built: the program runs as it is, on any PHP since 8.1.
build_php() {
    need php 'apt-get install php-cli' 'the PHP client'
    say "PHP $(php -r 'echo PHP_VERSION;'): our client program over plain sockets"
    php -l peers/php/client.php >/dev/null || die 'php cannot read peers/php/client.php: it is for PHP 8.1 and newer'
}

build_nats() {
    need go 'apt-get install golang-go' 'nats-server'
    say 'nats-server 2.15.2, and the programs that nats.go shows (go, about a minute the first time)'
    server=github.com/nats-io/nats-server/v2 programs=github.com/nats-io/nats.go/examples
    go_build nats $server $programs/nats-bench $programs/nats-echo $programs/nats-pub $programs/nats-qsub $programs/nats-req \
        $programs/nats-rply $programs/nats-sub
}

# Debian's, as its package is: an old server of many installations, built by an old compiler. Elsewhere the same version as a module.
build_nats_2_9() {
    unpacked="$target/unpacked"
    rm -rf "$unpacked"
    mkdir -p "$unpacked"
    version=$(apt-cache madison nats-server 2>/dev/null | awk '$3 ~ /^2\.9\.10-/ { print $3; exit }') || version=
    if [ -n "$version" ] && (cd "$unpacked" && apt-get download -qq "nats-server=$version" 2>/dev/null && dpkg-deb -x ./*.deb .); then
        say "nats-server $version (Debian's package)"
        cp "$unpacked/usr/sbin/nats-server" "$target/bin/nats-server-2.9"
    else
        need go 'apt-get install golang-go' 'nats-server 2.9'
        say 'nats-server 2.9.10 (go; there is no Debian package of it here)'
        (cd peers/nats-2.9 && GOTOOLCHAIN=local GOFLAGS='-mod=readonly -buildvcs=false' go build -o "$target/bin/nats-server-2.9" \
            github.com/nats-io/nats-server/v2)
    fi
    rm -rf "$unpacked"
}

build_nats_go() {
    need go 'apt-get install golang-go' 'the nats.go client'
    say 'nats.go 1.55.0: our client program over it (go)'
    go_build nats_go .
}

build_nats_cli() {
    need go 'apt-get install golang-go' 'the nats command line tool'
    say 'nats 0.4.0: the command line tool (go, about two minutes the first time)'
    go_build nats-cli github.com/nats-io/natscli/nats
}

# The jars, and our programs over them, each compiled beside the jars it is for.
build_rocketmq() {
    need mvn 'apt-get install maven' 'RocketMQ'
    need javac 'apt-get install openjdk-17-jdk-headless' 'RocketMQ'
    say 'RocketMQ: nameserver and broker 4.9.7 and 5.3.3, Java client 4.9.8 and 5.3.3, benchmark 5.5.0, our programs over them (maven, about a minute)'
    jars="$target/rocketmq"
    rm -rf "$jars"
    mvn --batch-mode --quiet --strict-checksums -f peers/rocketmq/pom.xml -Dstyle.color=never -Dpeers="$jars" package
    source=peers/rocketmq/source
    javac -Xlint:all -Werror -d "$jars/worlds" $source/Worlds.java
    for version in 4.9 5.3; do
        javac -XDsuppressNotes -d "$jars/peer-$version" -cp "$jars/client-$version/*" $source/Peer.java
        javac -XDsuppressNotes -d "$jars/servers-$version" -cp "$jars/server-$version/*" $source/Servers.java
    done
}

build_rocketmq_go() {
    need go 'apt-get install golang-go' 'the rocketmq-client-go client'
    say 'rocketmq-client-go 2.1.2: our client program over it (go)'
    go_build rocketmq_go .
}

build_ali_ons() {
    need npm 'apt-get install npm' 'the ali-ons client'
    say 'ali-ons 3.12.0 (npm)'
    npm_install ali-ons
}

mkdir -p "$target/bin" "$target/stamps"
# The folder hides itself from git.
echo '*' >"$target/.gitignore"
all='nsq go-nsq nsqjs php nats nats-2.9 nats_go nats-cli rocketmq rocketmq_go ali-ons'
for part in ${*:-$all}; do
    case " $all " in *" $part "*) ;; *) die "no such part: $part ($all)" ;; esac
    if current "$part" && [ "$part" != php ]; then
        say "$part is up to date"
        continue
    fi
    "build_$(echo "$part" | tr -- -. __)"
    stamp "$part"
done
say "ready in $target"
