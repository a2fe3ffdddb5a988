package consume

import (
	"cmp"
	"strconv"
	"strings"
	"time"
)

// CompareRuns compares the names of two runs of a writer by their order, as Progress.Run has them:
// by epoch, then by when they began. It returns 0 if the order is not known, because a name has
// another form.
func CompareRuns(a, b string) int {
	epochA, beganA, knownA := cutRun(a)
	epochB, beganB, knownB := cutRun(b)
	if !knownA || !knownB {
		return 0
	}
	return cmp.Or(cmp.Compare(epochA, epochB), cmp.Compare(beganA, beganB))
}

// RunBegan returns when a run began, by the clock of the agent; zero if its name has another form.
func RunBegan(run string) time.Time {
	_, began, known := cutRun(run)
	if !known {
		return time.Time{}
	}
	return time.UnixMilli(began)
}

// cutRun returns the epoch of a run, and when it began, in milliseconds since 1970. known is false
// if the name has another form.
func cutRun(run string) (epoch uint64, began int64, known bool) {
	first, second, _ := strings.Cut(run, "-")
	epoch, badEpoch := strconv.ParseUint(first, 10, 64)
	began, badBegan := strconv.ParseInt(second, 10, 64)
	return epoch, began, badEpoch == nil && badBegan == nil && began >= 0
}
