package live_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"testing"
)

// auditLog is what the API server writes about the requests of ServiceAccounts.
type auditLog struct{ path string }

type request struct {
	User struct {
		Username string `json:"username"`
	} `json:"user"`
	Verb           string `json:"verb"`
	RequestURI     string `json:"requestURI"`
	ResponseStatus struct {
		Code int `json:"code"`
	} `json:"responseStatus"`
}

// of the user, all that were asked so far. The API server writes a line before the client has the answer.
func (l *auditLog) of(t testing.TB, user string) []request {
	t.Helper()
	f, err := os.Open(l.path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var out []request
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var r request
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			continue // the last one, half written
		}
		if r.User.Username == user {
			out = append(out, r)
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return out
}

// nothingRefused fails the test unless the user has asked for something and was refused nothing.
func (l *auditLog) nothingRefused(t testing.TB, namespace, account string) {
	t.Helper()
	user := fmt.Sprintf("system:serviceaccount:%s:%s", namespace, account)
	asked := l.of(t, user)
	if len(asked) == 0 {
		t.Errorf("%s has asked the API server for nothing", user)
	}
	seen := map[string]bool{}
	for _, r := range asked {
		what := fmt.Sprintf("%s %s", r.Verb, r.RequestURI)
		if code := r.ResponseStatus.Code; (code == 401 || code == 403) && !seen[what] {
			seen[what] = true
			t.Errorf("%s was refused (%d): %s", user, code, what)
		}
	}
	t.Logf("%s: %d requests, %d refused", user, len(asked), len(seen))
}
