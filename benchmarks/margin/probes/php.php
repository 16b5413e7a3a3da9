<?php
// SPDX-License-Identifier: Apache-2.0
// What programs in PHP may need. On the command line it starts PHP's FastCGI server and asks it for each feature in a
// request of its own, with a time limit; a line each: NAME ok, NAME fail:WHY or NAME hang.
const LIMIT_S = 20;
const SERVER = '/tmp/fpm.sock';

set_error_handler(function ($number, $text) { throw new ErrorException($text); });

function need($right) { if (!$right) throw new Exception('wrong answer'); }
function file_of($text = 'hello') { $name = tempnam('/tmp', 'probe'); file_put_contents($name, $text); return $name; }

/** Run PHP's own program with this code; returns its output. */
function in_program($code) {
    $process = proc_open(['php', '-r', $code], [1 => ['pipe', 'w'], 2 => ['pipe', 'w']], $pipes);
    $text = stream_get_contents($pipes[1]);
    need(proc_close($process) === 0);
    return $text;
}

function features() {
    $all = [
        'request' => fn() => need(PHP_SAPI === 'fpm-fcgi' && $_SERVER['REQUEST_METHOD'] === 'GET'),
        'finish_request' => function () { need(function_exists('fastcgi_finish_request')); },
        'opcache' => fn() => need(opcache_get_status(false)['opcache_enabled']),
        'opcache_script' => function () { $name = file_of('<?php return 6 * 7;'); need(opcache_compile_file($name) && (require $name) === 42); },
        'flock' => function () {
            $one = fopen($name = file_of(), 'r+');
            need(flock($one, LOCK_EX | LOCK_NB));
            need(!flock(fopen($name, 'r+'), LOCK_EX | LOCK_NB));
        },
        'put_locked' => fn() => need(file_put_contents(file_of(), 'x', LOCK_EX) === 1),
        'session' => function () { session_save_path('/tmp'); need(session_start(['use_cookies' => false, 'use_only_cookies' => false, 'cache_limiter' => ''])); $_SESSION['a'] = 1; session_write_close(); },
        'sqlite' => function () { $one = new SQLite3(file_of('')); $one->exec('create table t (v)'); $one->exec('insert into t values (7)'); need($one->querySingle('select v from t') === 7); },
        'sqlite_wal' => function () { $one = new SQLite3(file_of('')); need($one->querySingle('pragma journal_mode = wal') === 'wal'); $one->exec('create table t (v)'); },
        'pdo_sqlite' => function () { $one = new PDO('sqlite:' . file_of('')); $one->beginTransaction(); $one->exec('create table t (v)'); $one->commit(); },
        'tcp_ipv4' => fn() => talk('tcp://127.0.0.1:0'),
        'tcp_ipv6' => fn() => talk('tcp://[::1]:0'),
        'unix_stream' => fn() => talk('unix:///tmp/probe-' . getmypid() . '.sock'),
        'udp' => function () { $one = stream_socket_server('udp://127.0.0.1:0', $e, $t, STREAM_SERVER_BIND); stream_socket_sendto($one, 'x', 0, stream_socket_get_name($one, false)); need(stream_socket_recvfrom($one, 5) === 'x'); },
        'socket_extension' => function () {
            $one = socket_create(AF_INET, SOCK_STREAM, SOL_TCP);
            socket_set_option($one, SOL_SOCKET, SO_REUSEADDR, 1);
            socket_set_option($one, SOL_SOCKET, SO_REUSEPORT, 1);
            socket_set_option($one, SOL_SOCKET, SO_RCVTIMEO, ['sec' => 1, 'usec' => 0]);
            socket_bind($one, '127.0.0.1');
            need(socket_listen($one));
        },
        'socket_ipv6' => fn() => need(socket_bind(socket_create(AF_INET6, SOCK_DGRAM, SOL_UDP), '::1')),
        'socket_pair' => function () { socket_create_pair(AF_UNIX, SOCK_STREAM, 0, $two); socket_write($two[0], 'x'); need(socket_read($two[1], 1) === 'x'); },
        'socket_message' => function () { socket_create_pair(AF_UNIX, SOCK_DGRAM, 0, $two); need(socket_sendmsg($two[0], ['iov' => ['hello']]) === 5); },
        'socket_select' => function () { socket_create_pair(AF_UNIX, SOCK_STREAM, 0, $two); $r = [$two[0]]; $w = $e = null; need(socket_select($r, $w, $e, 0, 20000) === 0); },
        'stream_select' => function () { $two = stream_socket_pair(STREAM_PF_UNIX, STREAM_SOCK_STREAM, 0); $r = [$two[0]]; $w = $e = null; need(stream_select($r, $w, $e, 0, 20000) === 0); },
        'host_names' => fn() => need(gethostbyname('localhost') === '127.0.0.1' && gethostname()),
        'interfaces' => fn() => need(isset(net_get_interfaces()['lo'])),
        'shared_memory_sysv' => function () { $one = shm_attach(4711, 10000); shm_put_var($one, 1, [5]); need(shm_get_var($one, 1) === [5] && shm_remove($one)); },
        'semaphore_sysv' => function () { $one = sem_get(4712); need(sem_acquire($one) && sem_release($one) && sem_remove($one)); },
        'messages_sysv' => function () { $one = msg_get_queue(4713); msg_send($one, 1, 'hi'); need(msg_receive($one, 1, $kind, 100, $text) && $text === 'hi' && msg_remove_queue($one)); },
        'shared_memory_operations' => function () { $one = shmop_open(4714, 'c', 0600, 100); need(shmop_write($one, 'abc', 0) === 3); shmop_delete($one); },
        'program' => fn() => need(exec('echo hello') === 'hello'),
        'program_shell' => fn() => need(shell_exec('echo $((6*7))') === "42\n"),
        'program_pipes' => function () { $one = proc_open('cat', [['pipe', 'r'], ['pipe', 'w']], $pipes); fwrite($pipes[0], 'hi'); fclose($pipes[0]); need(stream_get_contents($pipes[1]) === 'hi' && proc_close($one) === 0); },
        'program_popen' => fn() => need(fgets(popen('echo hi', 'r')) === "hi\n"),
        'program_script' => function () { $name = file_of("#!/bin/sh\necho ran\n"); chmod($name, 0755); need(exec($name) === 'ran'); },
        'program_stopped' => function () { $one = proc_open(['sleep', '100'], [], $pipes); proc_terminate($one); need(proc_close($one) !== 0); },
        'mail' => fn() => need(is_bool(@mail('nobody', 'x', 'y'))),
        'pcntl_fork' => fn() => need(in_program('$p = pcntl_fork(); if (!$p) exit(7); pcntl_waitpid($p, $s); echo pcntl_wexitstatus($s);') === '7'),
        'pcntl_signal' => fn() => need(in_program('pcntl_async_signals(true); pcntl_signal(SIGUSR1, fn() => print("heard")); posix_kill(getmypid(), SIGUSR1);') === 'heard'),
        'pcntl_alarm' => fn() => need(in_program('pcntl_async_signals(true); pcntl_signal(SIGALRM, function () { echo "rang"; exit(0); }); pcntl_alarm(1); for ($i = 0; $i < 300; $i++) usleep(10000);') === 'rang'),
        'pcntl_wait' => fn() => need(in_program('pcntl_sigprocmask(SIG_BLOCK, [SIGUSR1]); posix_kill(getmypid(), SIGUSR1); echo pcntl_sigwaitinfo([SIGUSR1], $i);') === (string) 10),
        'pcntl_timed_wait' => fn() => need(in_program('pcntl_sigprocmask(SIG_BLOCK, [SIGUSR1]); echo @pcntl_sigtimedwait([SIGUSR1], $i, 0, 1000000);') !== '10'),
        'pcntl_priority' => fn() => need(in_program('echo pcntl_setpriority(5) ? pcntl_getpriority() : "";') === '5'),
        'time_limit' => function () { set_time_limit(10); need(true); },
        'time_limit_ends' => fn() => need(str_contains(in_program('register_shutdown_function(function () { exit(0); }); ini_set("display_errors", "1"); set_time_limit(1); while (true);'), 'Maximum execution time')),
        'posix' => fn() => need(posix_getpwnam('www-data')['uid'] === 33 && posix_getuid() === 33 && posix_uname() && posix_times() && posix_getrlimit()),
        'posix_fifo' => fn() => need(posix_mkfifo('/tmp/fifo-' . getmypid() . mt_rand(), 0600)),
        'files' => function () { $name = file_of(); chmod($name, 0600); touch($name, 5); symlink($name, "$name-link"); link($name, "$name-hard"); rename($name, "$name-new"); copy("$name-new", $name); need(stat("$name-hard")['mtime'] === 5 && readlink("$name-link") === $name); },
        'file_synced' => function () { $one = fopen(file_of(), 'r+'); need(fsync($one) && fdatasync($one) && ftruncate($one, 100)); },
        'folders' => function () { $name = '/tmp/folder-' . getmypid(); mkdir("$name/a/b", 0755, true); need(count(scandir($name)) === 3 && count(glob("$name/*")) === 1); },
        'disk' => fn() => need(disk_free_space('/tmp') > 0 && disk_total_space('/') > 0),
        'upload_folder' => fn() => need(is_writable(sys_get_temp_dir()) && tmpfile()),
        'random' => fn() => need(strlen(random_bytes(8)) === 8 && random_int(1, 5)),
        'password' => fn() => need(password_verify('a', password_hash('a', PASSWORD_BCRYPT, ['cost' => 4]))),
        'keys' => fn() => need(sodium_crypto_sign_keypair() && openssl_random_pseudo_bytes(8)),
        'clock' => fn() => need(hrtime(true) > 0 && microtime(true) > 0 && getrusage()['ru_utime.tv_usec'] >= 0),
        'sleep' => function () { usleep(1000); need(time_nanosleep(0, 1000000)); },
        'load' => fn() => need(count(sys_getloadavg()) === 3),
        'memory' => fn() => need(memory_get_usage() > 0 && strlen(str_repeat('x', 16 << 20)) > 0),
        'compressed' => fn() => need(gzdecode(gzencode('x')) === 'x'),
        'http_wrapper_of_files' => fn() => need(file_get_contents('data:text/plain,hi') === 'hi' && file_get_contents('php://memory') === ''),
        'device_random' => fn() => need(strlen(file_get_contents('/dev/urandom', false, null, 0, 8)) === 8),
    ];
    foreach (['/proc/self/status', '/proc/meminfo', '/proc/cpuinfo', '/proc/loadavg', '/proc/self/stat', '/proc/net/tcp', '/proc/sys/net/core/somaxconn', '/sys/devices/system/cpu/online'] as $name)
        $all["read$name"] = fn() => need(file_get_contents($name, false, null, 0, 64) !== '');
    return $all;
}

function talk($where) {
    $server = stream_socket_server($where);
    $client = stream_socket_client(str_starts_with($where, 'unix') ? $where : 'tcp://' . stream_socket_get_name($server, false));
    fwrite($client, 'hello');
    need(fread(stream_socket_accept($server, 2), 5) === 'hello');
}

/** One request to the server, as FastCGI says; returns its whole answer, or null where none came in time. */
function ask($name) {
    $client = stream_socket_client('unix://' . SERVER);
    $record = fn($kind, $text) => pack('CCnnCx', 1, $kind, 1, strlen($text), 0) . $text;
    $words = '';
    foreach (['REQUEST_METHOD' => 'GET', 'SCRIPT_FILENAME' => __FILE__, 'SCRIPT_NAME' => '/probe.php', 'QUERY_STRING' => "name=$name"] as $key => $value)
        $words .= chr(strlen($key)) . chr(strlen($value)) . $key . $value;
    fwrite($client, $record(1, pack('nCx5', 1, 0)) . $record(4, $words) . $record(4, '') . $record(5, ''));
    $answer = '';
    for ($until = microtime(true) + LIMIT_S; microtime(true) < $until;) {
        $read = [$client];
        $write = $except = null;
        if (!stream_select($read, $write, $except, 0, 50000)) continue;
        $part = fread($client, 65536);
        if ($part === '' || $part === false) return $answer;
        $answer .= $part;
    }
    return null;
}

if (PHP_SAPI !== 'cli') {
    try {
        features()[$_GET['name']]();
        $said = 'ok';
    } catch (Throwable $error) {
        $said = 'fail:' . substr(preg_replace('/\s+/', ' ', $error->getMessage()), 0, 120);
    }
    echo "<<$said>>";
    return;
}
$pool = "[global]\nerror_log = /tmp/fpm.log\ndaemonize = no\n[www]\nuser = www-data\ngroup = www-data\nlisten = " . SERVER . "\npm = static\npm.max_children = 3\n";
file_put_contents('/tmp/fpm.conf', $pool);
$server = proc_open(['php-fpm8.2', '-F', '-y', '/tmp/fpm.conf'], [2 => ['file', '/tmp/fpm.err', 'w']], $pipes);
for ($try = 0; $try < 200 && !file_exists(SERVER); $try++) usleep(100000);
foreach (features() as $name => $work) {
    try {
        $answer = ask($name);
        $said = $answer === null ? 'hang' : (preg_match('/<<(.*)>>/s', $answer, $found) ? $found[1] : 'fail:no answer');
    } catch (Throwable $error) {
        $said = 'fail:' . substr($error->getMessage(), 0, 120);
    }
    echo "$name $said\n";
}
proc_terminate($server);
echo "probe ended\n";
