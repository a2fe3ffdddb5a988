package process

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

func endWithParent(a *syscall.SysProcAttr) { a.Pdeathsig = syscall.SIGKILL }

// AdoptOrphans makes this process the parent of its descendants whose own parent ends.
func AdoptOrphans() error {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("adopt orphans: %w", err)
	}
	return nil
}

// Children returns the running children of this process.
func Children() []Running {
	var found []Running
	stats, _ := filepath.Glob("/proc/[0-9]*/stat") // The pattern is right.
	for _, file := range stats {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // It has ended.
		}
		// "pid (name) state ppid ...", where a name may have any character.
		fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
		if len(fields) < 2 || string(fields[0]) == "Z" || string(fields[1]) != strconv.Itoa(os.Getpid()) {
			continue
		}
		dir := filepath.Dir(file)
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil {
			continue
		}
		argv, _ := os.ReadFile(filepath.Join(dir, "cmdline")) // Empty if it has ended meanwhile.
		found = append(found, Running{pid, string(bytes.TrimSpace(bytes.ReplaceAll(argv, []byte{0}, []byte{' '})))})
	}
	return found
}

// CPU returns the CPU time of all threads of the process so far, including those that have ended.
// It has nanosecond resolution, while /proc counts in hundredths of a second.
func CPU(pid int) (time.Duration, error) {
	// The clock of another process: see MAKE_PROCESS_CPUCLOCK and CPUCLOCK_SCHED in Linux'
	// posix-timers.h.
	const sched = 2
	var t unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|sched), &t); err != nil {
		return 0, fmt.Errorf("CPU clock of process %d: %w", pid, err)
	}
	return time.Duration(t.Nano()), nil
}

// ReadMemory returns the memory of a process.
func ReadMemory(pid int) (Memory, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return Memory{}, err
	}
	m := Memory{RSS: field(text, "VmRSS:"), Peak: field(text, "VmHWM:")}
	if m.RSS == 0 {
		return m, fmt.Errorf("process %d has ended", pid)
	}
	return m, nil
}

// ResetPeak resets Peak to the current memory.
func ResetPeak(pid int) error {
	return os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0)
}

// Available returns the available memory of the machine, in bytes.
func Available() (int64, error) {
	text, err := os.ReadFile("/proc/meminfo")
	return field(text, "MemAvailable:"), err
}

// field returns a field of a /proc file in bytes. The file has it in kB.
func field(text []byte, name string) int64 {
	_, rest, _ := bytes.Cut(text, []byte(name))
	line, _, _ := bytes.Cut(rest, []byte("\n"))
	n, _ := strconv.ParseInt(string(bytes.TrimSpace(bytes.TrimSuffix(line, []byte("kB")))), 10, 64)
	return n << 10
}
