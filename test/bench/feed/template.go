package feed

import (
	"bytes"
	"fmt"
	"math/bits"
	"strconv"
	"time"
)

// template is one pod's JSON, from its metadata on, and the positions of its holes.
type template struct {
	text  []byte
	holes map[string][]int // offsets in text, by placeholder
}

// occurrences is how often each placeholder is in a pod. An accidental one in the text would
// otherwise go undetected.
var occurrences = map[string]int{
	holeSuffix:    1,
	holeUID:       1,
	holeVersion:   1,
	holeAddress:   3,
	holeHost:      1,
	holeContainer: 2,
	holeChanged:   3,
	holeSent:      1,
}

const typeMeta = `"kind":"Pod","apiVersion":"v1",`

func newTemplate(w int, ready bool, padding int) (*template, error) {
	text, err := pod(w, ready, padding)
	if err != nil {
		return nil, fmt.Errorf("template of workload %d: %w", w, err)
	}
	text, found := bytes.CutPrefix(text, []byte("{"+typeMeta))
	if !found {
		return nil, fmt.Errorf("template of workload %d does not begin with its type: %.60s", w, text)
	}
	t := &template{text: text, holes: make(map[string][]int, len(occurrences))}
	for hole, want := range occurrences {
		for at := 0; ; at += len(hole) {
			next := bytes.Index(text[at:], []byte(hole))
			if next < 0 {
				break
			}
			at += next
			t.holes[hole] = append(t.holes[hole], at)
		}
		if got := len(t.holes[hole]); got != want {
			return nil, fmt.Errorf("template of workload %d: %s stands there %d times, not %d", w, hole, got, want)
		}
	}
	return t, nil
}

// values are the values for the holes.
type values struct {
	pod     int
	version uint64
	changed time.Time
	sent    int64
}

// appendTo appends the template with its holes filled. A copy and some 13 patches: less than a
// microsecond.
func (t *template) appendTo(b []byte, v values) []byte {
	start := len(b)
	b = append(b, t.text...)
	text := b[start:]
	var scratch [64]byte

	high, low := identity(v.pod)
	t.patch(text, holeSuffix, appendSuffix(scratch[:0], v.pod))
	t.patch(text, holeUID, appendUID(scratch[:0], high, low))
	t.patch(text, holeVersion, appendPadded(scratch[:0], v.version, len(holeVersion)))
	t.patch(text, holeAddress, appendAddress(append(scratch[:0], "10"...), v.pod, '.'))
	t.patch(text, holeHost, appendAddress(append(scratch[:0], "ip-10"...), v.pod/40, '-'))
	t.patch(text, holeContainer, appendHex(appendHex(scratch[:0], low, 16), high, 16))
	t.patch(text, holeChanged, v.changed.AppendFormat(scratch[:0], time.RFC3339))
	t.patch(text, holeSent, appendPadded(scratch[:0], uint64(v.sent), len(holeSent)))
	return b
}

func (t *template) patch(text []byte, hole string, value []byte) {
	for _, at := range t.holes[hole] {
		copy(text[at:at+len(hole)], value)
	}
}

// identity is a pod's uid in two halves: well mixed (splitmix64), and the same in every run.
func identity(pod int) (high, low uint64) {
	mix := func(x uint64) uint64 {
		x *= 0x9e3779b97f4a7c15
		x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
		x = (x ^ x>>27) * 0x94d049bb133111eb
		return x ^ x>>31
	}
	return mix(uint64(pod)*2 + 1), mix(uint64(pod)*2 + 2)
}

// suffixAlphabet is the API server's for generated names, in ascending order so that names ascend
// with the pod.
const suffixAlphabet = "2456789bcdfghjklmnpqrstvwxz"

func appendSuffix(b []byte, pod int) []byte {
	var s [len(holeSuffix)]byte
	for i := len(s) - 1; i >= 0; i-- {
		s[i] = suffixAlphabet[pod%len(suffixAlphabet)]
		pod /= len(suffixAlphabet)
	}
	return append(b, s[:]...)
}

func appendUID(b []byte, high, low uint64) []byte {
	b = append(appendHex(b, high>>32, 8), '-')
	b = append(appendHex(b, high>>16, 4), '-')
	b = append(appendHex(b, high&0x0fff|0x4000, 4), '-')
	b = append(appendHex(b, low>>48&0x3fff|0x8000, 4), '-')
	return appendHex(b, low, 12)
}

// appendAddress appends three parts of three digits each, so that every address has the same width.
func appendAddress(b []byte, n int, separator byte) []byte {
	for _, part := range [3]int{n / 10000, n / 100, n} {
		b = append(b, separator)
		b = strconv.AppendInt(b, int64(100+part%100), 10)
	}
	return b
}

func appendHex(b []byte, n uint64, digits int) []byte {
	n = bits.RotateLeft64(n, 64-4*digits)
	for range digits {
		n = bits.RotateLeft64(n, 4)
		b = append(b, "0123456789abcdef"[n&15])
	}
	return b
}

func appendPadded(b []byte, n uint64, width int) []byte {
	start := len(b)
	for range width {
		b = append(b, '0')
	}
	for i := start + width - 1; i >= start; i-- {
		b[i] += byte(n % 10)
		n /= 10
	}
	return b
}
