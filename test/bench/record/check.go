package record

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"github.com/kubecdc/kubecdc/test/bench/feed"
)

// sampleEvery is the sampling interval: one of sampleEvery records is decoded and compared in full.
// It is prime, so that the samples include all pods of a cycle.
const sampleEvery = 23

// Check compares all records of a run with the feed's history. Every update must be there exactly
// once and in order per pod, and samples must have the true object before and after. So no
// contestant can win by losing records.
type Check struct {
	history *feed.History
	seen    []bool // by update
	last    []int  // by pod: its last update so far, plus one

	result Result
}

// Result is the outcome of a Check.
type Result struct {
	Updates    int    `json:"updates"`    // distinct ones seen
	Missing    int    `json:"missing"`    // of those that were released
	Duplicates int    `json:"duplicates"` // in the stream, so not those that the bus itself has dropped
	Disordered int    `json:"disordered"` // updates that come after a later one of the same pod
	Invalid    int    `json:"invalid"`    // records that are not what they should be
	Reads      int    `json:"reads"`      // pods of the first sync
	Others     int    `json:"others"`     // stream events
	Sampled    int    `json:"sampled"`    // records compared in full
	Example    string `json:"example,omitempty"`
}

// Complete reports whether nothing is wrong.
func (r Result) Complete() bool {
	return r.Missing == 0 && r.Duplicates == 0 && r.Disordered == 0 && r.Invalid == 0
}

func (r Result) String() string {
	if r.Complete() {
		return fmt.Sprintf("all %d updates once, in order, %d compared", r.Updates, r.Sampled)
	}
	text := fmt.Sprintf("%d updates, %d missing, %d twice, %d out of order, %d invalid",
		r.Updates, r.Missing, r.Duplicates, r.Disordered, r.Invalid)
	if r.Example != "" {
		text += ": " + r.Example
	}
	return text
}

// NewCheck expects the first n updates of a history.
func NewCheck(h *feed.History, n int) *Check {
	return &Check{
		history: h,
		seen:    make([]bool, n),
		last:    make([]int, h.Pods()),
		result:  Result{Missing: n},
	}
}

// Result returns the result so far.
func (c *Check) Result() Result { return c.result }

// Add takes the next record of the stream. The subject distinguishes objects from stream events.
func (c *Check) Add(subject string, record []byte) {
	if !strings.HasPrefix(subject, strings.TrimSuffix(Objects, ">")) {
		c.result.Others++
		return
	}
	// Attributes precede data, and no pod has a member of the same name. So a search is sufficient,
	// and costs a hundredth of decoding. The samples check that it found the right members.
	op := member(record, `"op":"`)
	version, err := strconv.ParseUint(member(record, `"resourceversion":"`), 10, 64)
	if err != nil {
		c.invalid(record, "no resourceversion")
		return
	}
	switch op {
	case "r", "c": // a stock informer cannot distinguish a listed object from a new one
		c.result.Reads++
		if c.result.Reads%sampleEvery == 1 {
			c.sample(record, version, 0)
		}
		return
	case "u":
	default:
		c.invalid(record, "op "+op)
		return
	}
	j, ok := c.history.Update(version)
	switch {
	case !ok || j >= len(c.seen):
		c.invalid(record, "an update that never was")
		return
	case c.seen[j]:
		c.result.Duplicates++
		return
	}
	c.seen[j] = true
	c.result.Updates++
	c.result.Missing--
	pod := c.history.Order(j)
	if c.last[pod] > j {
		c.result.Disordered++
	}
	c.last[pod] = j + 1
	if c.result.Updates%sampleEvery == 1 {
		c.sample(record, version, c.history.Previous(j))
	}
}

func member(record []byte, key string) string {
	_, rest, _ := bytes.Cut(record, []byte(key))
	value, _, _ := bytes.Cut(rest[:min(len(rest), 64)], []byte(`"`))
	return string(value)
}

// sample decodes a record and compares its objects with the history; previous is 0 where there is
// no before.
func (c *Check) sample(record []byte, version, previous uint64) {
	c.result.Sampled++
	var event struct {
		ResourceVersion string `json:"resourceversion"`
		Name            string `json:"name"`
		Data            struct {
			Before map[string]any `json:"before"`
			After  map[string]any `json:"after"`
		} `json:"data"`
	}
	if err := json.Unmarshal(record, &event); err != nil {
		c.invalid(record, err.Error())
		return
	}
	pod := int(version) - int(c.history.Initial(0)) // of one that has not been updated
	if j, ok := c.history.Update(version); ok {
		pod = c.history.Order(j)
	}
	if pod < 0 || event.ResourceVersion != strconv.FormatUint(version, 10) || event.Name != c.history.Name(pod) {
		c.invalid(record, "attributes do not fit the version")
		return
	}
	if !c.same(event.Data.After, pod, version) {
		c.invalid(record, "after is not what the feed sent")
		return
	}
	if previous != 0 && !c.same(event.Data.Before, pod, previous) {
		c.invalid(record, "before is not what the feed had sent")
	}
}

func (c *Check) same(got map[string]any, pod int, version uint64) bool {
	var want map[string]any
	if err := json.Unmarshal(c.history.AppendObject(nil, pod, version), &want); err != nil {
		panic(err) // the feed's own tests would have failed
	}
	return reflect.DeepEqual(stripped(got), stripped(want))
}

// stripped removes the fields that the agent strips, and the time of sending, which only the feed's
// process has.
func stripped(object map[string]any) map[string]any {
	meta, _ := object["metadata"].(map[string]any)
	delete(meta, "managedFields")
	annotations, _ := meta["annotations"].(map[string]any)
	delete(annotations, feed.SentAnnotation)
	return object
}

func (c *Check) invalid(record []byte, why string) {
	c.result.Invalid++
	if c.result.Example == "" {
		c.result.Example = fmt.Sprintf("%s: %.300s", why, record)
	}
}

// Sent returns when the newest object in the record was released, in nanoseconds since 1970. That
// is the object of after, which may be anywhere in the record. before and a patch have the same
// object or older ones.
func Sent(record []byte) (newest int64) {
	const width = 19
	for rest := record; ; {
		at := bytes.Index(rest, []byte(feed.SentAnnotation+`":"`))
		if at < 0 {
			return newest
		}
		rest = rest[at+len(feed.SentAnnotation)+len(`":"`):]
		if len(rest) < width {
			return newest
		}
		if n, err := strconv.ParseInt(string(rest[:width]), 10, 64); err == nil {
			newest = max(newest, n)
		}
	}
}
