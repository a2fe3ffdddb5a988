package bustest

import (
	"syscall"
	"testing"
	"time"
)

// ProcessCPU is what this process has used, the embedded server included.
func ProcessCPU(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// Report reports the rate, and the CPU per event since cpuBefore.
func Report(b *testing.B, cpuBefore time.Duration) {
	b.Helper()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
	b.ReportMetric(float64(ProcessCPU(b)-cpuBefore)/float64(b.N), "cpu-ns/op")
}
