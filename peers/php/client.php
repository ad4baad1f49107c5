<?php
// A client program over PHP's plain sockets for polymq's interoperability tests: what PHP applications do that bring no library.
//
// It reads one job, a JSON object, from standard input, does it, and answers with one JSON object on standard output.
// tests/interop/jobs.py describes the jobs. It keeps the habits of PHP clients in use that a server has to live with:
//
//   IDENTIFY   follows the magic at once, with "client_id": null
//   answers    are counted: RDY is only sent if OK is the first frame after those of IDENTIFY and AUTH, so a frame too many
//              in between (a heartbeat, another OK) leaves it waiting for ever; here it then fails
//   MPUB       gives as its size the sum of the bodies, without the count and the sizes that go with them
//   publishing over HTTP says `defer=0` where nothing is deferred
//   ids        are read as signed characters, of which only positive ones are kept
//   the end    is a closed socket, without CLS
declare(strict_types=1);

const FRAME_SIZE_BYTES_MAX = 2 << 20;
const TIMEOUT_S = 20;
const HEARTBEAT_MS = 1000;
const RESPONSE = 0;
const ERROR = 1;
const MESSAGE = 2;

function fail(string $problem): never
{
    fwrite(STDERR, "php client: $problem\n");
    exit(1);
}

/** One connection to a server, and the handshake by counting. */
final class Connection
{
    /** @var resource */
    private $socket;
    private string $input = '';

    public function __construct(string $address, private array $job)
    {
        $socket = stream_socket_client("tcp://$address", $code, $problem, TIMEOUT_S);
        if ($socket === false) {
            fail("$address: $problem");
        }
        stream_set_timeout($socket, TIMEOUT_S);
        $this->socket = $socket;
    }

    public function send(string $data): void
    {
        while ($data !== '') {
            $written = fwrite($this->socket, $data);
            if ($written === false || $written === 0) {
                fail('the server closed the connection');
            }
            $data = substr($data, $written);
        }
    }

    /** Wait for input, at most until a time (in seconds since 1970). */
    public function wait(?float $until): bool
    {
        if ($this->whole()) {
            return true;
        }
        $left = max(0.0, ($until ?? microtime(true) + TIMEOUT_S) - microtime(true));
        [$read, $write, $except] = [[$this->socket], null, null];
        return stream_select($read, $write, $except, (int) $left, (int) (fmod($left, 1) * 1_000_000)) > 0;
    }

    /** Read one frame: its type and data. */
    public function frame(): array
    {
        while (!$this->whole()) {
            $more = fread($this->socket, 1 << 20);
            if ($more === false || $more === '') {
                fail(stream_get_meta_data($this->socket)['timed_out'] ? 'no answer' : 'the server closed the connection');
            }
            $this->input .= $more;
        }
        ['size' => $size, 'type' => $type] = unpack('Nsize/Ntype', $this->input);
        $data = substr($this->input, 8, $size - 4);
        $this->input = substr($this->input, 4 + $size);
        return [$type, $data];
    }

    /** Say who is there, and AUTH if the server wants it; `$then` goes out at once behind that. */
    public function introduce(string $then = ''): void
    {
        $identity = ['client_id' => null, 'hostname' => gethostname(), 'user_agent' => 'php-sockets', 'feature_negotiation' => true];
        $identity['heartbeat_interval'] = HEARTBEAT_MS;
        if ($this->job['message_timeout_ms'] > 0) {
            $identity['msg_timeout'] = $this->job['message_timeout_ms'];
        }
        $body = json_encode($identity, JSON_THROW_ON_ERROR);
        $this->send("  V2IDENTIFY\n" . pack('N', strlen($body)) . $body);
        [$type, $data] = $this->frame();
        $agreed = json_decode($data, true);
        if ($type !== RESPONSE || !is_array($agreed) || !array_key_exists('auth_required', $agreed)) {
            fail("IDENTIFY: $data");
        }
        $secret = $this->job['auth_secret'];
        $this->send(($agreed['auth_required'] ? "AUTH\n" . pack('N', strlen($secret)) . $secret : '') . $then);
        if ($agreed['auth_required']) {
            [$type, $data] = $this->frame();
            if ($type !== RESPONSE || (json_decode($data, true)['permission_count'] ?? 0) <= 0) {
                fail("AUTH: $data");
            }
        }
    }

    /** Take the next frame as the answer, whatever it is. */
    public function expectOk(string $what): void
    {
        [$type, $data] = $this->frame();
        if ($type !== RESPONSE || $data !== 'OK') {
            fail("$what: frame of type $type: $data");
        }
    }

    private function whole(): bool
    {
        if (strlen($this->input) < 8) {
            return false;
        }
        $size = unpack('N', $this->input)[1];
        if ($size > FRAME_SIZE_BYTES_MAX) {
            fail("a frame of $size bytes");
        }
        return strlen($this->input) >= 4 + $size;
    }
}

function request(string $method, string $url, string $body = ''): string
{
    $options = ['method' => $method, 'content' => $body, 'timeout' => TIMEOUT_S, 'header' => 'Content-Type: application/octet-stream'];
    $answer = file_get_contents($url, false, stream_context_create(['http' => $options]));
    return $answer === false ? fail("$method $url") : $answer;
}

/** The command for one step, over TCP. */
function publishing(string $topic, array $bodies, int $delayMs): string
{
    if ($delayMs > 0) {
        return "DPUB $topic $delayMs\n" . pack('N', strlen($bodies[0])) . $bodies[0];
    }
    if (count($bodies) === 1) {
        return "PUB $topic\n" . pack('N', strlen($bodies[0])) . $bodies[0];
    }
    $messages = implode('', array_map(fn (string $body): string => pack('N', strlen($body)) . $body, $bodies));
    // Not the size of what follows, as the protocol says, but of the bodies alone.
    $short = array_sum(array_map('strlen', $bodies));
    return "MPUB $topic\n" . pack('NN', $short, count($bodies)) . $messages;
}

function publish(array $job): array
{
    $connection = null;
    $published = 0;
    foreach ($job['steps'] as $step) {
        $bodies = array_map('base64_decode', $step['bodies']);
        if ($job['http'] !== '' && count($bodies) === 1) {
            $query = http_build_query(['topic' => $job['topic'], 'defer' => $step['delay_ms']]);
            $answer = request('POST', "http://{$job['http']}/pub?$query", $bodies[0]);
            if ($answer !== 'OK') {
                fail("/pub: $answer");
            }
        } else {
            if ($connection === null) {
                $connection = new Connection($job['address'], $job);
                $connection->introduce();
            }
            $connection->send(publishing($job['topic'], $bodies, $step['delay_ms']));
            $connection->expectOk('publishing');
        }
        $published += count($bodies);
    }
    return ['published' => $published];
}

/** Ask a directory where the topic is; until somebody has it. */
function find(array $job): string
{
    $until = microtime(true) + TIMEOUT_S;
    while (microtime(true) < $until) {
        $answer = @file_get_contents("http://{$job['directory']}/lookup?" . http_build_query(['topic' => $job['topic']]));
        $found = $answer === false ? [] : json_decode($answer, true);
        foreach ($found['data']['producers'] ?? $found['producers'] ?? [] as $producer) {
            return "{$producer['broadcast_address']}:{$producer['tcp_port']}";
        }
        usleep(50_000);
    }
    fail("nobody has {$job['topic']}");
}

function messageId(string $data): string
{
    return implode('', array_map('chr', array_filter(unpack('c16', $data), fn (int $character): bool => $character > 0)));
}

/** What is kept for a while before it is finished: touched now and then. */
final class Held
{
    public float $touchAt;
    public float $finishAt;

    public function __construct(public string $id, private array $job)
    {
        $this->touchAt = microtime(true) + $job['touch_every_ms'] / 1000;
        $this->finishAt = microtime(true) + $job['hold_ms'] / 1000;
    }

    public function due(): float
    {
        return min($this->touchAt, $this->finishAt);
    }

    /** The command that is due; true with it if it is the last. */
    public function act(): array
    {
        if ($this->finishAt <= $this->touchAt) {
            return ["FIN {$this->id}\n", true];
        }
        $this->touchAt += $this->job['touch_every_ms'] / 1000;
        return ["TOUCH {$this->id}\n", false];
    }
}

function consume(array $job): array
{
    $connection = new Connection($job['directory'] !== '' ? find($job) : $job['address'], $job);
    $connection->introduce("SUB {$job['topic']} {$job['channel']}\n");
    $connection->expectOk('SUB');
    $connection->send("RDY {$job['max_in_flight']}\n");
    [$deliveries, $finished, $held] = [[], 0, []];
    while ($finished < $job['count']) {
        $due = $held ? min(array_map(fn (Held $each): float => $each->due(), $held)) : null;
        if ($connection->wait($due)) {
            [$type, $data] = $connection->frame();
            if ($type === ERROR) {
                fwrite(STDERR, "php client: $data\n");
            } elseif ($type === RESPONSE) {
                $connection->send("NOP\n");
            } else {
                ['time' => $time, 'attempts' => $attempts] = unpack('Jtime/nattempts', $data);
                $id = messageId(substr($data, 10, 16));
                $finish = !($job['requeue_first'] && $attempts === 1);
                $delivery = ['body' => base64_encode(substr($data, 26)), 'id' => $id, 'attempts' => $attempts];
                $deliveries[] = $delivery + ['timestamp_ns' => $time, 'finished' => $finish];
                if (!$finish) {
                    $connection->send("REQ $id {$job['requeue_delay_ms']}\n");
                } elseif ($job['hold_ms'] > 0) {
                    $held[$id] = new Held($id, $job);
                } else {
                    $connection->send("FIN $id\n");
                    $finished++;
                }
            }
        } elseif ($due === null) {
            fail('nothing more came');
        }
        foreach ($held as $id => $each) {
            if ($each->due() <= microtime(true)) {
                [$command, $last] = $each->act();
                $connection->send($command);
                if ($last) {
                    unset($held[$id]);
                    $finished++;
                }
            }
        }
    }
    return ['deliveries' => $deliveries];
}

error_reporting(E_ALL);
set_error_handler(function (int $level, string $text): bool {
    if (error_reporting() & $level) {
        fail($text);
    }
    return true;
});
$job = json_decode(stream_get_contents(STDIN), true, flags: JSON_THROW_ON_ERROR);
$answer = match ($job['action']) {
    'publish' => publish($job),
    'consume' => consume($job),
};
echo json_encode($answer, JSON_THROW_ON_ERROR), "\n";
