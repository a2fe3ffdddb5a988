package main

import (
	"strings"
	"testing"
	"time"
)

var day = time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)

// messages are of the form that govulncheck v1.9.0 prints. One vulnerability is called, by two
// ways, one is imported, one required.
const messages = `
{"config": {"protocol_version": "v1.0.0", "scanner_name": "govulncheck", "go_version": "go1.26.8", "scan_level": "symbol", "scan_mode": "source"}}
{"progress": {"message": "Scanning your code and 700 packages across 80 dependent modules for known vulnerabilities..."}}
{"osv": {"schema_version": "1.3.1", "id": "GO-2026-6809", "summary": "Distrust compromised intermediates", "affected": []}}
{"osv": {"id": "GO-2026-1111", "summary": "imported"}}
{"finding": {"osv": "GO-2026-6809", "fixed_version": "v1.26.10", "trace": [{"module": "stdlib", "version": "v1.26.8"}]}}
{"finding": {"osv": "GO-2026-6809", "fixed_version": "v1.26.10", "trace": [{"module": "stdlib", "version": "v1.26.8", "package": "crypto/x509"}]}}
{"finding": {"osv": "GO-2026-6809", "fixed_version": "v1.26.10", "trace": [
  {"module": "stdlib", "version": "v1.26.8", "package": "crypto/x509", "function": "Verify", "receiver": "*Certificate"},
  {"module": "github.com/kubecdc/kubecdc", "package": "github.com/kubecdc/kubecdc/cmd/agent", "function": "run",
   "position": {"filename": "cmd/agent/main.go", "offset": 1, "line": 104, "column": 14}}]}}
{"finding": {"osv": "GO-2026-6809", "fixed_version": "v1.26.10", "trace": [
  {"module": "stdlib", "version": "v1.26.8", "package": "crypto/x509", "function": "Verify", "receiver": "*Certificate"},
  {"module": "github.com/kubecdc/kubecdc", "package": "github.com/kubecdc/kubecdc/cmd/agent", "function": "main"}]}}
{"finding": {"osv": "GO-2026-1111", "fixed_version": "v0.62.0", "trace": [{"module": "golang.org/x/net", "package": "golang.org/x/net/html"}]}}
{"finding": {"osv": "GO-2026-2222", "trace": [{"module": "golang.org/x/text", "version": "v0.43.0"}]}}
`

func TestCalledVulnerabilitiesFail(t *testing.T) {
	r, err := read(strings.NewReader(messages))
	if err != nil {
		t.Fatal(err)
	}
	if len(r.called) != 1 || r.others != 2 || r.goVersion != "go1.26.8" {
		t.Fatalf("%+v", r)
	}
	for name, c := range map[string]struct{ exceptions, err, out string }{
		"no exception": {
			"", "calls 1 vulnerabilities",
			"GO-2026-6809: FAILED: Distrust compromised intermediates\n  fixed in stdlib@v1.26.10\n  cmd/agent/main.go:104: ",
		},
		"an exception": {
			"GO-2026-6809 2026-12-01 no such chain\n", "", "GO-2026-6809: accepted until 2026-12-01 (no such chain)",
		},
		"an exception for another": {
			"GO-2026-1111 2026-12-24 is not called\n", "the exception for GO-2026-1111 is not needed", "FAILED",
		},
		"one that was called before": {
			"GO-2026-6809 2026-12-01 x\nGO-2025-1 2026-12-01 fixed since\n", "GO-2025-1 is not needed", "accepted",
		},
	} {
		t.Run(name, func(t *testing.T) {
			exceptions, err := parseExceptions(c.exceptions, day)
			if err != nil {
				t.Fatal(err)
			}
			var out strings.Builder
			err = judge(&out, r, exceptions)
			if (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
				t.Errorf("got %v, want %q", err, c.err)
			}
			if !strings.Contains(out.String(), c.out) {
				t.Errorf("%q is not in:\n%s", c.out, out.String())
			}
		})
	}
}

func TestExceptionsCarryADate(t *testing.T) {
	for text, want := range map[string]string{
		"GO-2026-6809":                                  "want ID, last day and reason",
		"GO-2026-6809 2026-12-24":                       "want ID, last day and reason",
		"CVE-2026-6809 2026-12-24 x":                    "want ID, last day and reason",
		"GO-2026-6809 later x":                          "line 1:",
		"# a comment\nGO-2026-6809 2026-11-30 x":        "line 2: the exception for GO-2026-6809 ended on 2026-11-30",
		"GO-2026-6809 2027-04-01 x":                     "more than 90 days ahead",
		"GO-1 2026-12-24 x\nGO-1 2026-12-25 x":          "line 2: GO-1 is there twice",
		"\n# none\n\nGO-1 2026-12-24 x\nGO-2 2026-12-1": "line 5",
	} {
		if _, err := parseExceptions(text, day); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", text, err, want)
		}
	}
}

// TestOutputThatSaysNothingFails: an empty output, or one of a weaker scan, does not count as a
// good one.
func TestOutputThatSaysNothingFails(t *testing.T) {
	for _, text := range []string{
		"", "{", `{"progress": {"message": "x"}}`, `{"config": {"go_version": "go1.26.8", "scan_level": "module"}}`,
	} {
		if r, err := read(strings.NewReader(text)); err == nil {
			t.Errorf("%q gives %+v", text, r)
		}
	}
}

func TestDatabaseIsPinnedAndYoung(t *testing.T) {
	if !strings.HasPrefix(databaseSum, "h1:") || len(databaseSum) != len("h1:")+44 {
		t.Errorf("the sum is %q", databaseSum)
	}
	if err := checkAge(databaseVer, 0, day.AddDate(10, 0, 0)); err != nil {
		t.Error(err)
	}
	made := time.Date(2026, 11, 5, 23, 49, 57, 0, time.UTC)
	if err := checkAge("v0.0.0-20261105234957-e22db6528018", time.Hour, made.Add(time.Hour)); err != nil {
		t.Error(err)
	}
	if err := checkAge("v0.0.0-20261105234957-e22db6528018", time.Hour, made.Add(time.Hour+1)); err == nil {
		t.Error("an old database passes")
	}
	if err := checkAge("v1.2.3", 0, made); err == nil {
		t.Error("a version without a time passes")
	}
}
