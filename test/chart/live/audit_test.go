package live_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"slices"
	"testing"
)

// auditLog is the API server's log of the requests of ServiceAccounts.
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

// of returns all requests of the user so far. The API server writes a line before the client has
// the answer.
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

// refused returns the user's refused requests, each once, and the number of all requests.
func (l *auditLog) refused(t testing.TB, namespace, account string) (refused []string, asked int) {
	t.Helper()
	all := l.of(t, fmt.Sprintf("system:serviceaccount:%s:%s", namespace, account))
	for _, r := range all {
		if code := r.ResponseStatus.Code; code == http.StatusUnauthorized || code == http.StatusForbidden {
			refused = append(refused, fmt.Sprintf("%d: %s %s", code, r.Verb, r.RequestURI))
		}
	}
	slices.Sort(refused)
	return slices.Compact(refused), len(all)
}

// nothingRefused fails the test unless the user has sent requests and none was refused.
func (l *auditLog) nothingRefused(t testing.TB, namespace, account string) {
	t.Helper()
	refused, asked := l.refused(t, namespace, account)
	if asked == 0 {
		t.Errorf("%s/%s has asked the API server for nothing", namespace, account)
	}
	for _, what := range refused {
		t.Errorf("%s/%s was refused: %s", namespace, account, what)
	}
	t.Logf("%s/%s: %d requests, %d refused", namespace, account, asked, len(refused))
}
