// SPDX-License-Identifier: Apache-2.0

import java.io.*;
import java.lang.management.ManagementFactory;
import java.net.*;
import java.net.http.*;
import java.nio.*;
import java.nio.channels.*;
import java.nio.file.*;
import java.nio.file.attribute.*;
import java.security.SecureRandom;
import java.util.*;
import java.util.concurrent.*;
import java.util.concurrent.locks.LockSupport;
import com.sun.net.httpserver.HttpServer;

/**
 * A server that answers, as its image starts it; with the word "probe", the features that it may need one day, each
 * with a time limit and a line: NAME ok, NAME fail:WHY or NAME hang.
 */
public class App {
    interface Work {
        void run() throws Exception;
    }

    static final Map<String, Work> FEATURES = new LinkedHashMap<>();
    static final long LIMIT_S = 30;

    public static void main(String[] words) throws Exception {
        if (words.length > 0 && words[0].equals("probe")) {
            probe();
            return;
        }
        HttpServer server = HttpServer.create(new InetSocketAddress(8080), 0);
        server.createContext("/", exchange -> {
            exchange.sendResponseHeaders(200, 6);
            exchange.getResponseBody().write("hello\n".getBytes());
            exchange.close();
        });
        server.start();
    }

    static void need(boolean right) {
        if (!right) {
            throw new IllegalStateException("wrong answer");
        }
    }

    static void probe() {
        collect();
        ExecutorService threads = Executors.newCachedThreadPool();
        FEATURES.forEach((name, work) -> {
            Future<?> future = threads.submit(() -> {
                work.run();
                return null;
            });
            String said;
            try {
                future.get(LIMIT_S, TimeUnit.SECONDS);
                said = "ok";
            } catch (TimeoutException error) {
                said = "hang";
            } catch (Exception error) {
                String text = String.valueOf(error.getCause()).replaceAll("\\s+", " ");
                said = "fail:" + text.substring(0, Math.min(120, text.length()));
            }
            System.out.println(name + " " + said);
        });
        System.out.println("probe ended");
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    static Path folder() throws IOException {
        return Files.createTempDirectory("probe");
    }

    static void talk(ServerSocketChannel server, SocketAddress where) throws Exception {
        server.bind(where);
        try (SocketChannel client = SocketChannel.open(server.getLocalAddress()); SocketChannel other = server.accept()) {
            client.write(ByteBuffer.wrap("hello".getBytes()));
            ByteBuffer got = ByteBuffer.allocate(5);
            while (got.hasRemaining() && other.read(got) >= 0) {
            }
            need(new String(got.array()).equals("hello"));
        } finally {
            server.close();
        }
    }

    static void collect() {
        FEATURES.put("tcp_ipv4", () -> talk(ServerSocketChannel.open(StandardProtocolFamily.INET), new InetSocketAddress("127.0.0.1", 0)));
        FEATURES.put("tcp_ipv6", () -> talk(ServerSocketChannel.open(StandardProtocolFamily.INET6), new InetSocketAddress("::1", 0)));
        FEATURES.put("unix_stream", () -> talk(ServerSocketChannel.open(StandardProtocolFamily.UNIX), UnixDomainSocketAddress.of(folder().resolve("socket"))));
        FEATURES.put("tcp_classic", () -> {
            try (ServerSocket server = new ServerSocket(0); Socket client = new Socket("127.0.0.1", server.getLocalPort())) {
                client.setKeepAlive(true);
                client.setTcpNoDelay(true);
                client.setSoLinger(true, 1);
                client.setSoTimeout(20);
                server.accept();
                try {
                    client.getInputStream().read();
                    need(false);
                } catch (SocketTimeoutException expected) {
                }
            }
        });
        FEATURES.put("socket_options", () -> {
            try (ServerSocketChannel server = ServerSocketChannel.open()) {
                server.setOption(StandardSocketOptions.SO_REUSEPORT, true);
                server.setOption(StandardSocketOptions.SO_RCVBUF, 65536);
            }
        });
        FEATURES.put("udp_ipv4", () -> {
            try (DatagramSocket one = new DatagramSocket(0, InetAddress.getByName("127.0.0.1"))) {
                one.send(new DatagramPacket(new byte[1], 1, one.getLocalSocketAddress()));
                one.receive(new DatagramPacket(new byte[5], 5));
            }
        });
        FEATURES.put("udp_ipv6", () -> {
            try (DatagramSocket one = new DatagramSocket(0, InetAddress.getByName("::1"))) {
                one.send(new DatagramPacket(new byte[1], 1, one.getLocalSocketAddress()));
                one.receive(new DatagramPacket(new byte[5], 5));
            }
        });
        FEATURES.put("multicast", () -> {
            NetworkInterface lo = NetworkInterface.getByName("lo");
            try (DatagramChannel one = DatagramChannel.open(StandardProtocolFamily.INET)) {
                one.bind(new InetSocketAddress(0));
                one.join(InetAddress.getByName("224.0.0.251"), lo);
            }
        });
        FEATURES.put("interfaces", () -> {
            NetworkInterface lo = NetworkInterface.getByName("lo");
            need(lo.isLoopback() && lo.getMTU() > 0 && lo.getInetAddresses().hasMoreElements());
        });
        FEATURES.put("resolve_localhost", () -> need(InetAddress.getAllByName("localhost").length > 0));
        FEATURES.put("host_name", () -> InetAddress.getLocalHost());
        FEATURES.put("reachable", () -> need(InetAddress.getByName("127.0.0.1").isReachable(1000)));
        FEATURES.put("selector", () -> {
            Pipe pipe = Pipe.open();
            try (Selector selector = Selector.open()) {
                pipe.source().configureBlocking(false);
                pipe.source().register(selector, SelectionKey.OP_READ);
                need(selector.select(20) == 0);
                pipe.sink().write(ByteBuffer.wrap(new byte[3]));
                need(selector.select(2000) == 1);
                selector.wakeup();
                need(selector.selectNow() >= 0);
            }
        });
        FEATURES.put("selector_of_datagrams", () -> {
            try (Selector selector = Selector.open(); DatagramChannel one = DatagramChannel.open()) {
                one.bind(new InetSocketAddress("127.0.0.1", 0));
                one.configureBlocking(false);
                one.register(selector, SelectionKey.OP_READ);
                need(selector.select(20) == 0);
                one.send(ByteBuffer.wrap(new byte[1]), one.getLocalAddress());
                need(selector.select(2000) == 1);
                selector.wakeup();
            }
        });
        FEATURES.put("pipe", () -> {
            Pipe pipe = Pipe.open();
            pipe.sink().write(ByteBuffer.wrap(new byte[3]));
            need(pipe.source().read(ByteBuffer.allocate(3)) == 3);
        });
        FEATURES.put("asynchronous_sockets", () -> {
            AsynchronousServerSocketChannel server = AsynchronousServerSocketChannel.open().bind(new InetSocketAddress("127.0.0.1", 0));
            AsynchronousSocketChannel client = AsynchronousSocketChannel.open();
            client.connect(server.getLocalAddress()).get();
            server.accept().get().write(ByteBuffer.wrap(new byte[2])).get();
            need(client.read(ByteBuffer.allocate(2)).get() > 0);
        });
        FEATURES.put("http_server_and_client", () -> {
            HttpServer server = HttpServer.create(new InetSocketAddress("127.0.0.1", 0), 0);
            server.createContext("/", exchange -> {
                exchange.sendResponseHeaders(200, -1);
                exchange.close();
            });
            server.start();
            URI where = URI.create("http://127.0.0.1:" + server.getAddress().getPort() + "/");
            HttpResponse<Void> answer = HttpClient.newHttpClient().send(HttpRequest.newBuilder(where).build(), HttpResponse.BodyHandlers.discarding());
            server.stop(0);
            need(answer.statusCode() == 200);
        });
        FEATURES.put("file_lock", () -> {
            try (FileChannel one = FileChannel.open(folder().resolve("file"), StandardOpenOption.CREATE, StandardOpenOption.WRITE)) {
                FileLock lock = one.tryLock(0, 10, false);
                need(lock.isValid());
                lock.release();
            }
        });
        FEATURES.put("map", () -> {
            try (FileChannel one = FileChannel.open(folder().resolve("file"), StandardOpenOption.CREATE, StandardOpenOption.READ, StandardOpenOption.WRITE)) {
                MappedByteBuffer memory = one.map(FileChannel.MapMode.READ_WRITE, 0, 10000);
                memory.put(5, (byte) 1);
                memory.force();
                memory.load();
                need(memory.isLoaded());
            }
        });
        FEATURES.put("transfer", () -> {
            try (FileChannel one = FileChannel.open(Path.of("/etc/passwd")); FileChannel two = FileChannel.open(folder().resolve("file"), StandardOpenOption.CREATE, StandardOpenOption.WRITE)) {
                need(one.transferTo(0, one.size(), two) == one.size());
                two.force(true);
            }
        });
        FEATURES.put("asynchronous_file", () -> {
            try (AsynchronousFileChannel one = AsynchronousFileChannel.open(Path.of("/etc/passwd"))) {
                need(one.read(ByteBuffer.allocate(10), 0).get() == 10);
            }
        });
        FEATURES.put("direct_file", () -> {
            Path name = folder().resolve("file");
            Files.write(name, new byte[8192]);
            try (FileChannel one = FileChannel.open(name, com.sun.nio.file.ExtendedOpenOption.DIRECT)) {
                need(one.read(ByteBuffer.allocateDirect(8192).alignedSlice(4096)) > 0);
            }
        });
        FEATURES.put("watch", () -> {
            Path where = folder();
            try (WatchService service = where.getFileSystem().newWatchService()) {
                where.register(service, StandardWatchEventKinds.ENTRY_CREATE);
                Files.createFile(where.resolve("new"));
                need(service.poll(5, TimeUnit.SECONDS) != null);
            }
        });
        FEATURES.put("files", () -> {
            Path name = folder().resolve("file");
            Files.writeString(name, "hello");
            Files.copy(name, name.resolveSibling("copy"));
            Files.move(name, name.resolveSibling("moved"), StandardCopyOption.ATOMIC_MOVE);
            Files.createLink(name.resolveSibling("hard"), name.resolveSibling("copy"));
            Files.createSymbolicLink(name, name.resolveSibling("copy"));
            Files.setLastModifiedTime(name, FileTime.fromMillis(5));
            Files.setPosixFilePermissions(name, PosixFilePermissions.fromString("rw-r-----"));
            need(Files.getOwner(name).getName().equals("root"));
        });
        FEATURES.put("attributes", () -> {
            Path name = Files.createFile(folder().resolve("file"));
            Files.getFileAttributeView(name, UserDefinedFileAttributeView.class).write("probe", ByteBuffer.wrap(new byte[2]));
        });
        FEATURES.put("file_store", () -> need(Files.getFileStore(Path.of("/tmp")).getTotalSpace() > 0));
        FEATURES.put("file_stores", () -> need(FileSystems.getDefault().getFileStores().iterator().hasNext()));
        FEATURES.put("random_access_file", () -> {
            try (RandomAccessFile one = new RandomAccessFile(folder().resolve("file").toFile(), "rwd")) {
                one.setLength(1000);
                one.seek(500);
                one.write(1);
            }
        });
        FEATURES.put("process", () -> {
            Process one = new ProcessBuilder("/bin/sh", "-c", "cat; exit 3").start();
            one.getOutputStream().close();
            need(one.waitFor() == 3);
        });
        FEATURES.put("process_script", () -> {
            Path name = folder().resolve("script");
            Files.writeString(name, "#!/bin/sh\nexit 4\n");
            name.toFile().setExecutable(true);
            need(new ProcessBuilder(name.toString()).start().waitFor() == 4);
        });
        FEATURES.put("process_timeout", () -> {
            Process one = new ProcessBuilder("sleep", "100").start();
            need(!one.waitFor(20, TimeUnit.MILLISECONDS));
            one.destroyForcibly().waitFor();
        });
        FEATURES.put("process_handles", () -> {
            Process one = new ProcessBuilder("sleep", "100").start();
            try {
                need(ProcessHandle.current().children().anyMatch(child -> child.pid() == one.pid()));
                need(ProcessHandle.current().info().command().isPresent());
            } finally {
                one.destroy();
            }
        });
        FEATURES.put("process_vfork", () -> need(Runtime.getRuntime().exec("true").waitFor() == 0));
        FEATURES.put("threads", () -> {
            CountDownLatch latch = new CountDownLatch(50);
            for (int count = 0; count < 50; count++) {
                new Thread(latch::countDown).start();
            }
            need(latch.await(20, TimeUnit.SECONDS));
        });
        FEATURES.put("timer", () -> {
            CountDownLatch latch = new CountDownLatch(3);
            Timer timer = new Timer(true);
            timer.scheduleAtFixedRate(new TimerTask() {
                @Override
                public void run() {
                    latch.countDown();
                }
            }, 5, 5);
            need(latch.await(5, TimeUnit.SECONDS));
            timer.cancel();
        });
        FEATURES.put("scheduled", () -> need(Executors.newScheduledThreadPool(1).schedule(() -> 7, 10, TimeUnit.MILLISECONDS).get() == 7));
        FEATURES.put("parking", () -> {
            LockSupport.parkNanos(1000000);
            Object lock = new Object();
            synchronized (lock) {
                lock.wait(10);
            }
            Thread.sleep(5);
        });
        FEATURES.put("fork_join", () -> need(java.util.stream.IntStream.range(0, 1000).parallel().sum() == 499500));
        FEATURES.put("priority", () -> {
            Thread one = new Thread(() -> { });
            one.setPriority(Thread.MAX_PRIORITY);
            one.start();
            one.join();
        });
        FEATURES.put("random", () -> new SecureRandom().nextBytes(new byte[16]));
        FEATURES.put("random_strong", () -> need(SecureRandom.getInstanceStrong().nextInt() != 12345));
        FEATURES.put("clock", () -> need(System.nanoTime() > 0 && java.time.Instant.now().getNano() >= 0));
        FEATURES.put("collector", () -> {
            System.gc();
            need(ManagementFactory.getMemoryMXBean().getHeapMemoryUsage().getUsed() > 0);
        });
        FEATURES.put("direct_memory", () -> need(ByteBuffer.allocateDirect(16 << 20).put(5, (byte) 1).capacity() > 0));
        FEATURES.put("processor_time", () -> need(ManagementFactory.getThreadMXBean().getCurrentThreadCpuTime() > 0));
        FEATURES.put("system_bean", () -> {
            var bean = (com.sun.management.UnixOperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
            need(bean.getOpenFileDescriptorCount() > 0 && bean.getTotalMemorySize() > 0 && bean.getSystemLoadAverage() >= 0);
        });
        FEATURES.put("processor_load", () -> {
            var bean = (com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
            bean.getCpuLoad();
            need(bean.getProcessCpuTime() > 0 && bean.getFreeSwapSpaceSize() >= 0);
        });
        FEATURES.put("process_id", () -> need(ProcessHandle.current().pid() > 0));
        FEATURES.put("signal", () -> {
            CountDownLatch latch = new CountDownLatch(1);
            sun.misc.Signal.handle(new sun.misc.Signal("USR2"), signal -> latch.countDown());
            sun.misc.Signal.raise(new sun.misc.Signal("USR2"));
            need(latch.await(5, TimeUnit.SECONDS));
        });
        FEATURES.put("second_machine", () -> {
            Process one = new ProcessBuilder("/usr/bin/java", "-XX:+UseSerialGC", "-Xmx32m", "-version").redirectErrorStream(true).start();
            one.getInputStream().readAllBytes();
            need(one.waitFor() == 0);
        });
        FEATURES.put("second_machine_large_pages", () -> {
            Process one = new ProcessBuilder("/usr/bin/java", "-XX:+UseTransparentHugePages", "-XX:+UseParallelGC", "-Xmx32m", "-version").redirectErrorStream(true).start();
            String text = new String(one.getInputStream().readAllBytes());
            need(one.waitFor() == 0 && !text.contains("ransparent"));
        });
        FEATURES.put("attach_file", () -> need(Files.exists(Path.of("/tmp/hsperfdata_root/" + ProcessHandle.current().pid()))));
        FEATURES.put("preferences_locale", () -> need(Locale.getDefault() != null && java.nio.charset.Charset.defaultCharset() != null));
        for (String name : new String[] {"/proc/self/status", "/proc/self/maps", "/proc/meminfo", "/proc/self/cgroup", "/proc/self/mountinfo", "/proc/stat", "/proc/net/if_inet6", "/proc/sys/net/core/somaxconn", "/sys/devices/system/cpu/online", "/dev/urandom"}) {
            FEATURES.put("read" + name, () -> {
                try (InputStream one = new FileInputStream(name)) {
                    need(one.read() >= 0);
                }
            });
        }
    }
}
