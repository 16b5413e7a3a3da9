// SPDX-License-Identifier: Apache-2.0

// A server that answers, as its image starts it; with the word "probe", the features that it may need one day, each
// with a time limit and a line: NAME ok, NAME fail:WHY or NAME hang.
package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"os/user"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
	"unsafe"
)

const limit = 20 * time.Second

type feature struct {
	name string
	work func() error
}

var errWrong = errors.New("wrong answer")

func need(right bool) error {
	if right {
		return nil
	}
	return errWrong
}

// first is the first that is an error.
func first(all ...error) error {
	for _, one := range all {
		if one != nil {
			return one
		}
	}
	return nil
}

func main() {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "probe":
			probe()
			return
		case "exit":
			os.Exit(7)
		case "cat":
			_, _ = io.Copy(os.Stdout, os.Stdin)
			return
		case "wait":
			time.Sleep(time.Hour)
		}
	}
	http.HandleFunc("/", func(answer http.ResponseWriter, _ *http.Request) { fmt.Fprintln(answer, "hello") })
	fmt.Fprintln(os.Stderr, http.ListenAndServe(":8080", nil))
	os.Exit(1)
}

func probe() {
	for _, one := range features {
		one := one
		ended := make(chan error, 1)
		go func() {
			defer func() {
				if found := recover(); found != nil {
					ended <- fmt.Errorf("panic: %v", found)
				}
			}()
			ended <- one.work()
		}()
		select {
		case err := <-ended:
			if err == nil {
				fmt.Println(one.name, "ok")
			} else {
				text := strings.ReplaceAll(err.Error(), "\n", " ")
				fmt.Printf("%s fail:%.120s\n", one.name, text)
			}
		case <-time.After(limit):
			fmt.Println(one.name, "hang")
		}
	}
	fmt.Println("probe ended")
}

func folder() string {
	name, err := os.MkdirTemp("", "probe")
	if err != nil {
		panic(err)
	}
	return name
}

func talk(network, address string) error {
	server, err := net.Listen(network, address)
	if err != nil {
		return err
	}
	defer server.Close()
	go func() {
		if one, err := server.Accept(); err == nil {
			_, _ = io.CopyN(one, one, 5)
			one.Close()
		}
	}()
	client, err := net.Dial(network, server.Addr().String())
	if err != nil {
		return err
	}
	defer client.Close()
	_, _ = client.Write([]byte("hello"))
	got := make([]byte, 5)
	_, err = io.ReadFull(client, got)
	return err
}

func datagrams(network, address string) error {
	one, err := net.ListenPacket(network, address)
	if err != nil {
		return err
	}
	defer one.Close()
	if _, err = one.WriteTo([]byte("x"), one.LocalAddr()); err != nil {
		return err
	}
	_, _, err = one.ReadFrom(make([]byte, 5))
	return err
}

func call(number uintptr, arguments ...uintptr) (uintptr, error) {
	var all [6]uintptr
	copy(all[:], arguments)
	got, _, errno := syscall.Syscall6(number, all[0], all[1], all[2], all[3], all[4], all[5])
	if errno != 0 {
		return got, errno
	}
	return got, nil
}

func read(path string) func() error {
	return func() error {
		text, err := os.ReadFile(path)
		if err == nil && len(text) == 0 {
			return errors.New("empty")
		}
		return err
	}
}

var features = []feature{
	{"tcp_ipv4", func() error { return talk("tcp4", "127.0.0.1:0") }},
	{"tcp_ipv6", func() error { return talk("tcp6", "[::1]:0") }},
	{"tcp_any", func() error { return talk("tcp", ":0") }},
	{"unix_stream", func() error { return talk("unix", folder()+"/socket") }},
	{"unix_seqpacket", func() error { return talk("unixpacket", folder()+"/socket") }},
	{"unix_abstract", func() error { return talk("unix", "@probe") }},
	{"udp_ipv4", func() error { return datagrams("udp4", "127.0.0.1:0") }},
	{"udp_ipv6", func() error { return datagrams("udp6", "[::1]:0") }},
	{"unix_datagrams", func() error { return datagrams("unixgram", folder()+"/socket") }},
	{"raw_icmp", func() error { _, err := net.ListenPacket("ip4:icmp", "127.0.0.1"); return err }},
	{"multicast", func() error {
		_, err := net.ListenMulticastUDP("udp4", nil, &net.UDPAddr{IP: net.IPv4(224, 0, 0, 251), Port: 5353})
		return err
	}},
	{"interfaces", func() error {
		found, err := net.Interfaces()
		if err != nil {
			return err
		}
		_, err = found[0].Addrs()
		return err
	}},
	{"deadline", func() error {
		server, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		_ = server.(*net.TCPListener).SetDeadline(time.Now().Add(20 * time.Millisecond))
		_, err = server.Accept()
		return need(errors.Is(err, os.ErrDeadlineExceeded))
	}},
	{"http", func() error {
		server, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		go func() { _ = http.Serve(server, http.FileServer(http.Dir("/etc"))) }()
		answer, err := http.Get("http://" + server.Addr().String() + "/passwd")
		if err != nil {
			return err
		}
		_, err = io.Copy(io.Discard, answer.Body)
		return err
	}},
	{"keepalive", func() error {
		server, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		client, err := (&net.Dialer{KeepAlive: time.Second}).Dial("tcp", server.Addr().String())
		if err != nil {
			return err
		}
		return client.(*net.TCPConn).SetLinger(1)
	}},
	{"reuseport", func() error {
		config := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
			var inner error
			err := raw.Control(func(handle uintptr) {
				inner = syscall.SetsockoptInt(int(handle), syscall.SOL_SOCKET, 15, 1)
			})
			return first(err, inner)
		}}
		_, err := config.Listen(context.Background(), "tcp", "127.0.0.1:0")
		return err
	}},
	{"exec", func() error {
		command := exec.Command("/proc/self/exe", "cat")
		command.Stdin = strings.NewReader("hello")
		got, err := command.Output()
		if err != nil {
			return err
		}
		return need(string(got) == "hello")
	}},
	{"exec_by_path", func() error {
		err := exec.Command("/app", "exit").Run()
		var status *exec.ExitError
		return need(errors.As(err, &status) && status.ExitCode() == 7)
	}},
	{"exec_with_deadline", func() error {
		limited, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
		defer cancel()
		return need(exec.CommandContext(limited, "/app", "wait").Run() != nil && limited.Err() != nil)
	}},
	{"exec_as_another_user", func() error {
		command := exec.Command("/app", "cat")
		command.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}, Setsid: true}
		return command.Run()
	}},
	{"exec_dies_with_parent", func() error {
		command := exec.Command("/app", "cat")
		command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
		return command.Run()
	}},
	{"executable", func() error { _, err := os.Executable(); return err }},
	{"signal_notify", func() error {
		heard := make(chan os.Signal, 1)
		signal.Notify(heard, syscall.SIGUSR1)
		if err := syscall.Kill(os.Getpid(), syscall.SIGUSR1); err != nil {
			return err
		}
		<-heard
		return nil
	}},
	{"alarm", func() error {
		heard := make(chan os.Signal, 1)
		signal.Notify(heard, syscall.SIGALRM)
		timer := [4]int64{0, 0, 0, 20000}
		if _, err := call(syscall.SYS_SETITIMER, 0, uintptr(unsafe.Pointer(&timer)), 0); err != nil {
			return err
		}
		<-heard
		return nil
	}},
	{"timers", func() error {
		ticker := time.NewTicker(5 * time.Millisecond)
		for count := 0; count < 3; count++ {
			<-ticker.C
		}
		<-time.After(5 * time.Millisecond)
		return nil
	}},
	{"goroutines", func() error {
		var all sync.WaitGroup
		for count := 0; count < 50; count++ {
			all.Add(1)
			go func() {
				defer all.Done()
				runtime.LockOSThread()
				time.Sleep(time.Millisecond)
			}()
		}
		all.Wait()
		return nil
	}},
	{"flock", func() error {
		one, err := os.Create(folder() + "/lock")
		if err != nil {
			return err
		}
		if err = syscall.Flock(int(one.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
			return err
		}
		two, err := os.Open(one.Name())
		if err != nil {
			return err
		}
		return need(syscall.Flock(int(two.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == syscall.EWOULDBLOCK)
	}},
	{"lock_of_posix", func() error {
		one, err := os.Create(folder() + "/lock")
		if err != nil {
			return err
		}
		return syscall.FcntlFlock(one.Fd(), syscall.F_SETLK, &syscall.Flock_t{Type: syscall.F_WRLCK})
	}},
	{"epoll", func() error {
		poll, err := syscall.EpollCreate1(0)
		if err != nil {
			return err
		}
		var ends [2]int
		_ = syscall.Pipe2(ends[:], syscall.O_NONBLOCK)
		event := syscall.EpollEvent{Events: syscall.EPOLLIN}
		if err = syscall.EpollCtl(poll, syscall.EPOLL_CTL_ADD, ends[0], &event); err != nil {
			return err
		}
		_, _ = syscall.Write(ends[1], []byte("x"))
		count, err := syscall.EpollWait(poll, make([]syscall.EpollEvent, 1), 1000)
		return first(err, need(count == 1))
	}},
	{"inotify", func() error {
		handle, err := syscall.InotifyInit1(syscall.IN_CLOEXEC)
		if err != nil {
			return err
		}
		where := folder()
		if _, err = syscall.InotifyAddWatch(handle, where, syscall.IN_CREATE); err != nil {
			return err
		}
		_ = os.WriteFile(where+"/new", nil, 0o600)
		_, err = syscall.Read(handle, make([]byte, 512))
		return err
	}},
	{"eventfd", func() error { _, err := call(syscall.SYS_EVENTFD2, 0, 0); return err }},
	{"timerfd", func() error { _, err := call(syscall.SYS_TIMERFD_CREATE, 1, 0); return err }},
	{"signalfd", func() error {
		mask := uint64(1) << 9
		_, err := call(syscall.SYS_SIGNALFD4, ^uintptr(0), uintptr(unsafe.Pointer(&mask)), 8, 0)
		return err
	}},
	{"pidfd", func() error { _, err := call(434, uintptr(os.Getpid()), 0); return err }},
	{"memfd", func() error {
		name := []byte("probe\x00")
		_, err := call(319, uintptr(unsafe.Pointer(&name[0])), 0)
		return err
	}},
	{"mmap", func() error {
		memory, err := syscall.Mmap(-1, 0, 1<<20, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_SHARED)
		if err != nil {
			return err
		}
		memory[0] = 1
		if err = syscall.Madvise(memory, syscall.MADV_DONTNEED); err != nil {
			return err
		}
		return syscall.Mprotect(memory, syscall.PROT_READ)
	}},
	{"mlock", func() error { return syscall.Mlock(make([]byte, 4096)) }},
	{"copy_file", func() error {
		one, err := os.Open("/app")
		if err != nil {
			return err
		}
		two, err := os.Create(folder() + "/copy")
		if err != nil {
			return err
		}
		_, err = io.Copy(two, one) // copy_file_range
		return err
	}},
	{"send_file", func() error {
		ends, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
		if err != nil {
			return err
		}
		file, err := os.Open("/app")
		if err != nil {
			return err
		}
		_, err = syscall.Sendfile(ends[0], int(file.Fd()), nil, 1000)
		return err
	}},
	{"splice", func() error {
		var one, two [2]int
		_ = syscall.Pipe(one[:])
		_ = syscall.Pipe(two[:])
		_, _ = syscall.Write(one[1], []byte("hello"))
		_, err := syscall.Splice(one[0], nil, two[1], nil, 5, 0)
		return err
	}},
	{"fallocate", func() error {
		file, err := os.Create(folder() + "/file")
		if err != nil {
			return err
		}
		return syscall.Fallocate(int(file.Fd()), 0, 0, 10000)
	}},
	{"attributes", func() error {
		name := folder() + "/file"
		_ = os.WriteFile(name, nil, 0o600)
		return syscall.Setxattr(name, "user.probe", []byte("x"), 0)
	}},
	{"links_and_times", func() error {
		name := folder() + "/file"
		return first(os.WriteFile(name, []byte("x"), 0o600), os.Link(name, name+"2"), os.Symlink(name, name+"3"),
			os.Chtimes(name, time.Now(), time.Now()), os.Chown(name, 1, 2), os.Truncate(name, 1<<20))
	}},
	{"named_pipe", func() error { return syscall.Mkfifo(folder()+"/pipe", 0o600) }},
	{"walk", func() error {
		return filepath.WalkDir("/proc/self/fd", func(string, os.DirEntry, error) error { return nil })
	}},
	{"statfs", func() error { return syscall.Statfs("/tmp", &syscall.Statfs_t{}) }},
	{"limits", func() error {
		var found syscall.Rlimit
		return first(syscall.Getrlimit(syscall.RLIMIT_NOFILE, &found), syscall.Setrlimit(syscall.RLIMIT_NOFILE, &found))
	}},
	{"usage", func() error { return syscall.Getrusage(0, &syscall.Rusage{}) }},
	{"system_information", func() error { return syscall.Sysinfo(&syscall.Sysinfo_t{}) }},
	{"hostname", func() error { _, err := os.Hostname(); return err }},
	{"user", func() error { _, err := user.Current(); return err }},
	{"random", func() error { _, err := rand.Read(make([]byte, 16)); return err }},
	{"change_root", func() error {
		command := exec.Command("/app", "cat")
		command.SysProcAttr = &syscall.SysProcAttr{Chroot: "/"}
		return command.Run()
	}},
	{"netlink", func() error { _, err := syscall.NetlinkRIB(syscall.RTM_GETROUTE, syscall.AF_INET); return err }},
	{"packet", func() error { _, err := syscall.Socket(syscall.AF_PACKET, syscall.SOCK_RAW, 0); return err }},
	{"membarrier", func() error { _, err := call(324, 0, 0); return err }},
	{"io_uring", func() error {
		var parameters [120]byte
		_, err := call(425, 4, uintptr(unsafe.Pointer(&parameters)))
		return err
	}},
	{"shared_memory", func() error { _, err := call(syscall.SYS_SHMGET, 0, 4096, 0o1600); return err }},
	{"priority", func() error { return syscall.Setpriority(syscall.PRIO_PROCESS, 0, 3) }},
	{"affinity", func() error { return need(runtime.NumCPU() > 0) }},
	{"read/proc/self/status", read("/proc/self/status")},
	{"read/proc/self/maps", read("/proc/self/maps")},
	{"read/proc/self/cgroup", read("/proc/self/cgroup")},
	{"read/proc/self/mountinfo", read("/proc/self/mountinfo")},
	{"read/proc/self/limits", read("/proc/self/limits")},
	{"read/proc/meminfo", read("/proc/meminfo")},
	{"read/proc/stat", read("/proc/stat")},
	{"read/proc/net/tcp", read("/proc/net/tcp")},
	{"read/proc/net/dev", read("/proc/net/dev")},
	{"read/proc/sys/net/core/somaxconn", read("/proc/sys/net/core/somaxconn")},
	{"read/proc/sys/kernel/random/boot_id", read("/proc/sys/kernel/random/boot_id")},
	{"read/sys/class/net/lo/mtu", read("/sys/class/net/lo/mtu")},
	{"read/sys/kernel/mm/transparent_hugepage/hpage_pmd_size", read("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size")},
}
