# SPDX-License-Identifier: Apache-2.0
"""Larger modules of the standard library."""

from __future__ import annotations

import asyncio
import concurrent.futures
import math
import multiprocessing
import multiprocessing.connection
import os
import signal
import socket
import sys
import tempfile
import threading
import time
from multiprocessing import shared_memory

from features import child, feature, need


def _exit_of(method: str) -> None:
    process = multiprocessing.get_context(method).Process(target=os._exit, args=(7,))
    process.start()
    process.join(15)
    need(process.exitcode == 7, f"exit code {process.exitcode}")


@feature
def multiprocessing_fork() -> None:
    _exit_of("fork")


@feature
def multiprocessing_spawn() -> None:
    _exit_of("spawn")


@feature
def multiprocessing_forkserver() -> None:
    _exit_of("forkserver")


@feature
def multiprocessing_pool() -> None:
    with multiprocessing.Pool(2) as pool:
        need(pool.map(math.sqrt, [4, 9, 16]) == [2, 3, 4])


@feature
def multiprocessing_queue() -> None:
    queue: multiprocessing.Queue[int] = multiprocessing.Queue()
    process = multiprocessing.Process(target=queue.put, args=(42,))
    process.start()
    need(queue.get(timeout=10) == 42)
    process.join()


@feature
def multiprocessing_semaphores() -> None:
    semaphore, event = multiprocessing.Semaphore(1), multiprocessing.Event()
    with semaphore:
        need(not semaphore.acquire(timeout=0.02))
    process = multiprocessing.Process(target=event.set)
    process.start()
    need(event.wait(10))


@feature
def multiprocessing_shared_values() -> None:
    value, array = multiprocessing.Value("i", 5), multiprocessing.Array("d", [1.0, 2.0])
    with value.get_lock():
        value.value += 1
    need(value.value == 6 and array[1] == 2.0)


@feature
def multiprocessing_shared_memory() -> None:
    memory = shared_memory.SharedMemory(create=True, size=5000)
    memory.buf[:5] = b"hello"
    other = shared_memory.SharedMemory(memory.name)
    need(bytes(other.buf[:5]) == b"hello")
    other.close()
    memory.close()
    memory.unlink()


@feature
def multiprocessing_manager() -> None:
    with multiprocessing.Manager() as manager:
        shared = manager.dict()
        process = multiprocessing.Process(target=shared.update, args=({"a": 1},))
        process.start()
        process.join(10)
        need(dict(shared) == {"a": 1})


@feature
def multiprocessing_connections() -> None:
    for family in ("AF_UNIX", "AF_INET"):
        with multiprocessing.connection.Listener(family=family, authkey=b"key") as listener:
            client = multiprocessing.Process(
                target=multiprocessing.connection.Client, args=(listener.address,), kwargs={"authkey": b"key"}
            )
            client.start()
            listener.accept().close()
            client.join()


@feature
def executor_of_processes() -> None:
    with concurrent.futures.ProcessPoolExecutor(2) as executor:
        need(executor.submit(math.sqrt, 49).result(10) == 7)


@feature
def executor_of_threads() -> None:
    with concurrent.futures.ThreadPoolExecutor(4) as executor:
        need(sum(executor.map(math.sqrt, [1, 4, 9])) == 6)


@feature
def asyncio_runs() -> None:
    async def main() -> None:
        try:
            async with asyncio.timeout(0.02):
                await asyncio.sleep(20)
        except TimeoutError:
            return
        raise RuntimeError("no timeout")

    asyncio.run(main())


@feature
def asyncio_subprocess() -> None:
    async def main() -> None:
        process = await asyncio.create_subprocess_exec("cat", stdin=-1, stdout=-1)
        need((await process.communicate(b"hello"))[0] == b"hello" and process.returncode == 0)

    asyncio.run(main())


@feature
def asyncio_shell() -> None:
    async def main() -> None:
        process = await asyncio.create_subprocess_shell("exit 3")
        need(await process.wait() == 3)

    asyncio.run(main())


async def _echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(await reader.readline())
    await writer.drain()
    writer.close()


@feature
def asyncio_tcp() -> None:
    async def main() -> None:
        server = await asyncio.start_server(_echo, "127.0.0.1", 0)
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        writer.write(b"hello\n")
        need(await reader.readline() == b"hello\n")

    asyncio.run(main())


@feature
def asyncio_unix() -> None:
    async def main() -> None:
        path = f"{tempfile.mkdtemp()}/socket"
        await asyncio.start_unix_server(_echo, path)
        reader, writer = await asyncio.open_unix_connection(path)
        writer.write(b"hello\n")
        need(await reader.readline() == b"hello\n")

    asyncio.run(main())


@feature
def asyncio_udp() -> None:
    async def main() -> None:
        heard = asyncio.get_running_loop().create_future()

        class Protocol(asyncio.DatagramProtocol):
            def datagram_received(self, data: bytes, addr: object) -> None:
                heard.set_result(data)

        loop = asyncio.get_running_loop()
        transport, _ = await loop.create_datagram_endpoint(Protocol, ("127.0.0.1", 0))
        transport.sendto(b"x", transport.get_extra_info("sockname"))
        need(await asyncio.wait_for(heard, 5) == b"x")

    asyncio.run(main())


@feature
def asyncio_signals() -> None:
    async def main() -> None:
        event = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, event.set)
        os.kill(os.getpid(), signal.SIGUSR1)
        await asyncio.wait_for(event.wait(), 5)

    asyncio.run(main())


@feature
def asyncio_threads_and_pipes() -> None:
    async def main() -> None:
        readable, writable = os.pipe()
        reader = asyncio.StreamReader()
        loop = asyncio.get_running_loop()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(readable, "rb"))
        await asyncio.to_thread(os.write, writable, b"hello\n")
        need(await reader.readline() == b"hello\n")

    asyncio.run(main())


@feature
def asyncio_pidfd_watcher() -> None:
    async def main() -> None:
        watcher = asyncio.PidfdChildWatcher()
        watcher.attach_loop(asyncio.get_running_loop())
        asyncio.set_child_watcher(watcher)
        process = await asyncio.create_subprocess_exec("true")
        need(await process.wait() == 0)

    if sys.version_info < (3, 14):
        asyncio.run(main())


@feature
def scheduler_of_events() -> None:
    import sched

    found: list[int] = []
    scheduler = sched.scheduler()
    scheduler.enter(0.02, 1, found.append, (1,))
    scheduler.run()
    need(found)


@feature
def locale_and_zones() -> None:
    import locale
    import zoneinfo

    locale.setlocale(locale.LC_ALL, "C.UTF-8")
    need(zoneinfo.ZoneInfo("Europe/Berlin"))
    os.environ["TZ"] = "Europe/Berlin"
    time.tzset()
    need(time.tzname[0] == "CET")


@feature
def hashes_and_secrets() -> None:
    import hashlib
    import secrets
    import ssl
    import uuid

    need(hashlib.scrypt(b"x", salt=b"y", n=16, r=1, p=1) and secrets.token_bytes(5))
    need(uuid.uuid1() and uuid.uuid4() and ssl.RAND_bytes(8))


@feature
def passwords_hashed() -> None:
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            import crypt
        except ImportError:  # gone in 3.13
            return
    need(crypt.crypt("word", crypt.METHOD_SHA512).startswith("$6$"))


@feature
def tls_between_threads() -> None:
    import ssl

    one, two = socket.socketpair()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    two.close()
    try:
        context.wrap_socket(one, server_side=True)
    except (ssl.SSLError, OSError):
        return
    raise RuntimeError("a handshake with nobody")


@feature
def memory_traced() -> None:
    import tracemalloc

    tracemalloc.start()
    kept = bytearray(100000)
    need(tracemalloc.get_traced_memory()[0] >= len(kept))


@feature
def deep_threads() -> None:
    threading.stack_size(16 << 20)
    thread = threading.Thread(target=math.sqrt, args=(4,))
    thread.start()
    thread.join()


@feature
def syslog_without_a_server() -> None:
    import syslog

    syslog.syslog("hello")


@feature
def fork_in_threads() -> None:
    found: list[int] = []
    thread = threading.Thread(target=lambda: found.append(child(lambda: 7)))
    thread.start()
    thread.join()
    need(found == [7])
