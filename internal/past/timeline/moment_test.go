package timeline_test

import (
	"strings"
	"testing"
	"time"

	"github.com/kubecdc/kubecdc/internal/past/timeline"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

func TestParseMoment(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Skip(err)
	}
	now := time.Date(2026, 11, 20, 13, 20, 30, 0, berlin)
	for in, want := range map[string]string{
		"now":                            "now",
		"2026-11-20T12:05:00Z":           "2026-11-20T12:05:00Z",
		"2026-11-20T13:05:00.25+01:00":   "2026-11-20T13:05:00.25+01:00",
		"2026-11-20T12:20:30Z":           "2026-11-20T12:20:30Z", // the present
		"13:05":                          "2026-11-20T13:05:00+01:00",
		" 9:05 ":                         "2026-11-20T09:05:00+01:00",
		"13:20:29":                       "2026-11-20T13:20:29+01:00",
		"yesterday 14:05":                "2026-11-19T14:05:00+01:00",
		"yesterday 00:00:01":             "2026-11-19T00:00:01+01:00",
		"yesterday":                      "2026-11-19T00:00:00+01:00",
		"today":                          "2026-11-20T00:00:00+01:00",
		"today 00:00":                    "2026-11-20T00:00:00+01:00",
		"today  9:05":                    "2026-11-20T09:05:00+01:00",
		"2026-11-20":                     "2026-11-20T00:00:00+01:00",
		"2026-10-25":                     "2026-10-25T00:00:00+02:00", // summer time
		"2026-10-25 14:05":               "2026-10-25T14:05:00+01:00", // the day on which it ends
		"2026-11-20 13:20:30":            "2026-11-20T13:20:30+01:00",
		"2h":                             "2026-11-20T11:20:30+01:00",
		"7d":                             "2026-11-13T13:20:30+01:00",
		"1h30m":                          "2026-11-20T11:50:30+01:00",
		"0s":                             "2026-11-20T13:20:30+01:00",
		"700h":                           "2026-10-22T10:20:30+02:00", // summer time
		"rv:48211":                       "rv:48211",
		"rv:48211/h0":                    "rv:48211",
		"rv:48211/h1":                    "rv:48211/h1",
		"rv:18446744073709551615/h12":    "rv:18446744073709551615/h12",
		"13:21":                          "error: moment \"13:21\" is in the future: it is 2026-11-20T13:20:30+01:00: use 'yesterday 13:21' for the day before",
		"2026-11-20T13:05:00Z":           "error: moment \"2026-11-20T13:05:00Z\" is in the future: it is 2026-11-20T13:20:30+01:00",
		"":                               "error: want a time like",
		"tomorrow 14:05":                 "error: want a time like",
		"today 13:21":                    "error: moment \"today 13:21\" is in the future: it is 2026-11-20T13:20:30+01:00\n",
		"2026-11-21":                     "error: moment \"2026-11-21\" is in the future: it is 2026-11-20T13:20:30+01:00\n",
		"today yesterday":                "error: want a time like",
		"14:05 yesterday":                "error: want a time like",
		"2026-11-31":                     "error: want a time like",
		"2026-11":                        "error: want a time like",
		"yesterday now":                  "error: want a time like",
		"yesterday 2h":                   "error: want a time like",
		"24:00":                          "error: want a time like",
		"14":                             "error: want a time like",
		"-2h":                            "error: without a sign",
		"+2h":                            "error: without a sign",
		"48211":                          "error: want a time like",
		"rv:":                            "error: want a resourceVersion like",
		"rv:0":                           "error: want a resourceVersion like",
		"rv:-1":                          "error: want a resourceVersion like",
		"rv:abc/h1":                      "error: want a resourceVersion like",
		"rv:48211/1":                     "error: want a resourceVersion like",
		"rv:48211/h":                     "error: want the number of restores",
		"rv:48211/hx":                    "error: want the number of restores",
		"rv:48211/h99999999999999999999": "error: want the number of restores",
	} {
		m, err := timeline.ParseMoment(in, now)
		if text, wrong := strings.CutPrefix(want, "error: "); wrong {
			if err == nil || !strings.Contains(err.Error()+"\n", text) {
				t.Errorf("%q: error %v, want %q in it", in, err, text)
			}
			continue
		}
		if err != nil || m.String() != want {
			t.Errorf("%q: %v, %v, want %s", in, m, err, want)
		}
		again, err := timeline.ParseMoment(m.String(), now)
		if err != nil || again.String() != m.String() {
			t.Errorf("%q: again %v, %v", in, again, err)
		}
	}
}

func TestMomentIncludes(t *testing.T) {
	noon := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	event := func(id, sequence string, s *consume.Stream) *consume.Event {
		return &consume.Event{ID: id, Time: noon, Sequence: sequence, Stream: s}
	}
	progress := func(versions ...string) *consume.Event {
		e := &consume.Event{Time: noon, Progress: &consume.Progress{}}
		for _, rv := range versions {
			e.Progress.Scopes = append(e.Progress.Scopes, consume.ScopeProgress{Resource: "pods", ResourceVersion: rv})
		}
		return e
	}
	for _, c := range []struct {
		m    timeline.Moment
		e    *consume.Event
		want bool
	}{
		{timeline.Moment{}, event("", "", nil), true},
		{timeline.Now(noon.Add(-time.Hour)), event("", "", nil), true},
		{timeline.At(noon), event("", "", nil), true},
		{timeline.At(noon.Add(-1)), event("", "", nil), false},
		{timeline.AtVersion(10, 0), event("pods/a/10", "00000000000000000010", nil), true},
		{timeline.AtVersion(10, 0), event("pods/a/11", "00000000000000000011", nil), false},
		{timeline.AtVersion(10, 0), event("pods/a/9/h1", "00000000000000000009", nil), false},
		{timeline.AtVersion(10, 1), event("pods/a/11", "00000000000000000011", nil), true},
		{timeline.AtVersion(10, 1), event("pods/a/10/h1", "00000000000000000010", nil), true},
		{timeline.AtVersion(10, 1), event("pods/a/x", "", nil), false}, // its version is unknown
		{timeline.AtVersion(10, 0), event("", "", &consume.Stream{ResourceVersion: "11"}), false},
		{timeline.AtVersion(10, 0), event("", "", &consume.Stream{
			FromResourceVersion: "5",
			ToResourceVersion:   "11",
		}), false},
		{timeline.AtVersion(10, 0), progress("", "10"), true},
		{timeline.AtVersion(10, 0), progress("9", "11"), false},
		{timeline.AtVersion(10, 0), progress(""), false}, // it claims nothing
	} {
		if got := c.m.Includes(c.e); got != c.want {
			t.Errorf("%s includes %s %s: %t, want %t", c.m, c.e.ID, c.e.Sequence, got, c.want)
		}
	}
}
