<?php
// A PHPMQ client over PHP's plain streams for polymq's interoperability tests, in both dialects.
//
// It reads one job, a JSON object, from standard input, does it, and answers with one JSON object on standard output:
//
//   publish   sends `bodies` (base64) to `queue`, all with `ttl` in the newer dialect; then ends its side and waits for the other's end
//   consume   asks for `window` messages of `queue`, and does with each what `then` says (ack, requeue, dead, nothing), until `count` were dealt with
//
// As the reference client does, it knows how many packets a message has by its type alone, and reads exactly that many bytes: whoever is
// sent a packet more or less takes what follows for something else, and fails here.
declare(strict_types=1);

const TIMEOUT_S = 20;
const PACKETS = ['current' => [3 => 4], 'legacy' => [3 => 3]];

function fail(string $problem): never
{
    fwrite(STDERR, "phpmq client: $problem\n");
    exit(1);
}

function packet(int $type, string $content): string
{
    return sprintf('P%02d%029d', $type, strlen($content)) . $content;
}

function message(int $type, string ...$packets): string
{
    return sprintf('H%02d%03d%02d', 1, $type, count($packets)) . implode('', $packets);
}

final class Connection
{
    /** @var resource */
    private $stream;

    public function __construct(private array $job)
    {
        $stream = stream_socket_client($job['address'], $code, $problem, TIMEOUT_S, STREAM_CLIENT_CONNECT, stream_context_create(['ssl' => [
            'verify_peer' => false, 'verify_peer_name' => false,
        ]]));
        if ($stream === false) {
            fail("{$job['address']}: $problem");
        }
        stream_set_timeout($stream, TIMEOUT_S);
        $this->stream = $stream;
    }

    public function send(string $data): void
    {
        for ($at = 0; $at < strlen($data); $at += $written) {
            $written = fwrite($this->stream, substr($data, $at, 1 << 16));
            if ($written === false || $written === 0) {
                fail('the server closed the connection');
            }
        }
    }

    private function read(int $size): string
    {
        $data = '';
        while (strlen($data) < $size) {
            $more = fread($this->stream, $size - strlen($data));
            if ($more === false || $more === '') {
                fail(stream_get_meta_data($this->stream)['timed_out'] ? 'nothing more came' : 'the server closed the connection');
            }
            $data .= $more;
        }
        return $data;
    }

    /** Read one dispatched message: its packets by type. */
    public function dispatched(): array
    {
        $head = $this->read(8);
        $type = (int) substr($head, 3, 3);
        $packets = [];
        for ($left = PACKETS[$this->job['dialect']][$type] ?? fail("a message that begins with $head"); $left > 0; $left--) {
            $packet = $this->read(32);
            if ($packet[0] !== 'P') {
                fail("a packet that begins with $packet");
            }
            $size = (int) substr($packet, 3);
            $packets[(int) substr($packet, 1, 2)] = $size > 0 ? $this->read($size) : '';
        }
        return $packets;
    }

    public function end(): void
    {
        stream_socket_shutdown($this->stream, STREAM_SHUT_WR);
        if (fread($this->stream, 1) !== '' || !feof($this->stream)) {
            fail('the server did not close the connection');
        }
    }
}

function publish(array $job): array
{
    $connection = new Connection($job);
    foreach ($job['bodies'] as $body) {
        $packets = [packet(1, $job['queue']), packet(2, base64_decode($body))];
        if ($job['dialect'] === 'current') {
            $packets[] = packet(5, (string) $job['ttl']);
        }
        $connection->send(message(1, ...$packets));
    }
    $connection->end();
    return ['published' => count($job['bodies'])];
}

function consume(array $job): array
{
    $connection = new Connection($job);
    if ($job['greet']) {
        // Who has sent something has shown which dialect it speaks.
        $packets = [packet(1, $job['greet']), packet(2, 'hello')];
        $connection->send(message(1, ...($job['dialect'] === 'current' ? [...$packets, packet(5, '0')] : $packets)));
    }
    $connection->send(message(2, packet(1, $job['queue']), packet(4, (string) $job['window'])));
    $deliveries = [];
    while (count($deliveries) < $job['count']) {
        [1 => $queue, 2 => $content, 3 => $id] = $found = $connection->dispatched();
        $deliveries[] = ['queue' => $queue, 'body' => base64_encode($content), 'id' => $id, 'ttl' => isset($found[5]) ? (int) $found[5] : null];
        $named = [packet(1, $queue), packet(3, $id)];
        match ($job['then']) {
            'ack' => $connection->send(message(4, ...$named)),
            'requeue' => $connection->send(message(5, ...[...$named, packet(5, (string) $job['ttl'])])),
            'dead' => $connection->send(message(6, ...$named)),
            'nothing' => null,
        };
    }
    if ($job['then'] !== 'nothing') {
        $connection->end();
    }
    return ['deliveries' => $deliveries];
}

error_reporting(E_ALL);
set_error_handler(function (int $level, string $text): bool {
    fail($text);
});
$job = json_decode(stream_get_contents(STDIN), true, flags: JSON_THROW_ON_ERROR);
$answer = match ($job['action']) {
    'publish' => publish($job),
    'consume' => consume($job),
};
echo json_encode($answer, JSON_THROW_ON_ERROR), "\n";
