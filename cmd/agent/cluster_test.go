package main

import (
	"net"
	"net/http"
	"strings"
	"testing"
)

func TestARefusalSaysWhoWhereAndWhatToDo(t *testing.T) {
	for name, test := range map[string]struct {
		answer http.HandlerFunc
		want   []string
	}{
		"expired credentials": {
			refuse(http.StatusUnauthorized, "Unauthorized", "Unauthorized"),
			[]string{"rejects the credentials of context dev of", "renew them", "kubectl get namespace kube-system"},
		},
		"no permission": {
			refuse(http.StatusForbidden, "Forbidden",
				`namespaces "kube-system" is forbidden: User "ann" cannot get resource "namespaces"`),
			[]string{
				"does not grant", "context dev of", "get of namespace kube-system", "'kubecdc rbac' prints the role",
				`User "ann" cannot get`,
			},
		},
		"something else": {
			refuse(http.StatusNotFound, "NotFound", "not found"),
			[]string{"has no namespace kube-system: check that it is a Kubernetes API server"},
		},
		"something else that answers all": {
			func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{}`)) },
			[]string{"returns no uid of namespace kube-system"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			api := fakeAPI(t, "", test.answer)
			file := kubeconfig(t, api.URL)
			c := launch(t, "run", "--kubeconfig", file, "--data-dir", t.TempDir())
			if code := c.wait(); code != exitFailed {
				t.Errorf("exit code %d", code)
			}
			_, message, _ := strings.Cut(c.stderr.String(), "kubecdc: ")
			for _, want := range append(test.want, api.URL, file) {
				if !strings.Contains(message, want) {
					t.Errorf("%q is not in: %s", want, message)
				}
			}
		})
	}
}

func TestAnAPIServerThatCannotBeReachedIsTriedAgain(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	url := "http://" + l.Addr().String()
	l.Close() // nobody listens there
	file := kubeconfig(t, url)
	c := launch(t, "run", "--kubeconfig", file, "--data-dir", t.TempDir())
	line := c.says(t, `"msg":"cannot reach the API server, retrying".*`)[0]
	for _, want := range []string{url, "context dev of " + file, "connection refused", "retry_in"} {
		if !strings.Contains(line, want) {
			t.Errorf("%q is not in: %s", want, line)
		}
	}
	if code := c.stop(); code != exitOK {
		t.Errorf("exit code %d after Ctrl-C", code)
	}
	// The same cause is not repeated at each try.
	if n := strings.Count(c.stderr.String(), "cannot reach the API server"); n != 1 {
		t.Errorf("said %d times", n)
	}
}

func TestAnAPIServerThatDoesNotAnswerIsSpokenOf(t *testing.T) {
	t.Parallel()
	asked := make(chan struct{}, 1)
	api := fakeAPI(t, "", func(_ http.ResponseWriter, r *http.Request) {
		select {
		case asked <- struct{}{}:
		default:
		}
		<-r.Context().Done()
	})
	c := launch(t, "run", "--kubeconfig", kubeconfig(t, api.URL), "--data-dir", t.TempDir())
	<-asked
	c.says(t, `the API server has not answered yet, waiting","api_server":"`+api.URL)
	if code := c.stop(); code != exitOK {
		t.Errorf("exit code %d after Ctrl-C", code)
	}
}
