package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// served starts `kubecdc serve` and returns the path of its kubeconfig.
func served(t *testing.T, args ...string) string {
	t.Helper()
	return servedTo(t, io.Discard, args...)
}

// said receives each write of a command. A command that writes more than its capacity blocks.
type said chan string

func (s said) Write(p []byte) (int, error) { s <- string(p); return len(p), nil }

// has waits until a command writes a text, and skips earlier writes.
func (s said) has(t *testing.T, want string) {
	t.Helper()
	var skipped []string
	for {
		select {
		case got := <-s:
			if got == want {
				return
			}
			skipped = append(skipped, got)
		case <-time.After(10 * time.Second):
			t.Fatalf("the command does not write %q, but %q", want, skipped)
		}
	}
}

// servedTo is like served, with a writer for standard error.
func servedTo(t *testing.T, stderr io.Writer, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	read, write := io.Pipe()
	ended := make(chan int, 1)
	go func() {
		ended <- run(ctx, append([]string{"serve"}, args...), write, stderr)
		_ = write.Close()
	}()
	t.Cleanup(func() {
		cancel()
		if code := <-ended; code != exitOK {
			t.Errorf("exit code %d", code)
		}
	})
	line, err := bufio.NewReader(read).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	path, ok := strings.CutPrefix(strings.TrimSpace(line), "export KUBECONFIG=")
	if !ok {
		t.Fatal(line)
	}
	return path
}

// A client with the kubeconfig of `kubecdc serve` reads the objects at the moment, and at other
// moments by their paths. All other requests are rejected, and the server listens on 127.0.0.1
// only.
func TestServe(t *testing.T) {
	t.Parallel()
	file, _ := recorded(t)
	kubeconfig := served(t, "--at", "rv:145", "--bus", "file:"+file)
	if info, err := os.Stat(kubeconfig); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	config.QPS = -1
	images := func(config *rest.Config) string {
		client, err := dynamic.NewForConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		list, err := client.Resource(
			schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}).Namespace("shop").
			List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return string(apierrors.ReasonForError(err))
		}
		var out []string
		for _, o := range list.Items {
			raw, err := o.MarshalJSON()
			if err != nil {
				t.Fatal(err)
			}
			_, rest, _ := strings.Cut(string(raw), `"image":"`)
			image, _, _ := strings.Cut(rest, `"`)
			out = append(out, image)
		}
		return strings.Join(out, ",")
	}
	if got := images(config); got != "web:2" {
		t.Errorf("at the moment: %s", got)
	}
	for path, want := range map[string]string{
		"/at/2026-11-20T14:03:00Z": "web:1",
		"/at/rv:155":               "",
		"/at/2026-11-20T13:00:00Z": "Expired",
		"/at/rv:145":               "web:2",
	} {
		other := rest.CopyConfig(config)
		other.Host += path
		if got := images(other); got != want {
			t.Errorf("%s: want %q, got %q", path, want, got)
		}
	}
	stranger := rest.CopyConfig(config)
	stranger.BearerToken = "x"
	if got := images(stranger); got != "Unauthorized" {
		t.Errorf("with another token: %s", got)
	}
	_, port, err := net.SplitHostPort(strings.TrimPrefix(config.Host, "https://"))
	if err != nil {
		t.Fatal(err)
	}
	for _, address := range foreignAddresses(t) {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", net.JoinHostPort(address, port))
		if err == nil {
			t.Errorf("it listens at %s", address)
			_ = conn.Close()
		}
	}
	plain, err := http.NewRequestWithContext(t.Context(), http.MethodGet,
		strings.Replace(config.Host, "https", "http", 1)+"/api/v1/secrets", nil)
	if err != nil {
		t.Fatal(err)
	}
	if answer, err := http.DefaultClient.Do(plain); err == nil {
		if answer.StatusCode != http.StatusBadRequest {
			t.Errorf("without TLS: %s", answer.Status)
		}
		_ = answer.Body.Close()
	}
}

// If a moment cannot be read, the answer gives the reason. The code is 410 only if the record does
// not have the moment.
func TestServeMomentsThatCannotBeRead(t *testing.T) {
	t.Parallel()
	file, _ := recorded(t)
	for _, c := range []struct {
		path, code string
		lost       bool
	}{
		{"/at/2026-11-20T13:00:00Z", "410 Expired", false},
		{"/at/2026-11-20T14:08:00Z", "409 Conflict", false}, // inside a gap
		{"/at/rv:140", "503 ServiceUnavailable", true},
	} {
		copied := filepath.Join(t.TempDir(), "record.jsonl")
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(copied, raw, 0o600); err != nil {
			t.Fatal(err)
		}
		config, err := clientcmd.BuildConfigFromFlags("",
			served(t, "--at", "rv:145", "--exact", "--bus", "file:"+copied))
		if err != nil {
			t.Fatal(err)
		}
		if c.lost {
			if err := os.Remove(copied); err != nil {
				t.Fatal(err)
			}
		}
		config.Host += c.path
		client, err := rest.HTTPClientFor(config)
		if err != nil {
			t.Fatal(err)
		}
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, config.Host+"/api/v1/configmaps", nil)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := client.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		var status metav1.Status
		if err := json.NewDecoder(answer.Body).Decode(&status); err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
		if got := fmt.Sprint(status.Code, " ", status.Reason); got != c.code || answer.StatusCode != int(status.Code) {
			t.Errorf("%s: want %s, got %s %s", c.path, c.code, got, status.Message)
		}
		client.CloseIdleConnections()
	}
}

// foreignAddresses returns the addresses of this machine except 127.0.0.1.
func foreignAddresses(t *testing.T) []string {
	t.Helper()
	all, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	out := []string{"127.0.0.2"}
	for _, a := range all {
		if n, ok := a.(*net.IPNet); ok && !n.IP.IsLoopback() && !n.IP.IsLinkLocalUnicast() {
			out = append(out, n.IP.String())
		}
	}
	return out
}

// An informer that follows a replay receives every version of the record, in order. The command
// reports when the replay begins and ends.
func TestServeReplay(t *testing.T) {
	t.Parallel()
	file, lines := recorded(t)
	for _, bus := range []string{"file:" + file, recordedBus(t, t.TempDir(), -1, lines)} {
		stderr := make(said, 100)
		config, err := clientcmd.BuildConfigFromFlags("",
			servedTo(t, stderr, "--from", "rv:105", "--to", "rv:170", "--speed", "max", "--bus", bus))
		if err != nil {
			t.Fatal(err)
		}
		client, err := dynamic.NewForConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		deployments := client.Resource(schema.GroupVersionResource{
			Group:    "apps",
			Version:  "v1",
			Resource: "deployments",
		})
		list, err := deployments.List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		w, err := deployments.Watch(t.Context(), metav1.ListOptions{ResourceVersion: list.GetResourceVersion()})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for e := range w.ResultChan() {
			meta, err := apimeta.Accessor(e.Object)
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, string(e.Type)+" "+meta.GetResourceVersion())
			if meta.GetResourceVersion() == "160" {
				break
			}
		}
		w.Stop()
		const want = "105 1: MODIFIED 120,MODIFIED 140,DELETED 150,ADDED 160"
		replayed := fmt.Sprintf("%s %d: %s", list.GetResourceVersion(), len(list.Items), strings.Join(got, ","))
		if replayed != want {
			t.Errorf("%s: want %s, got %s", bus, want, replayed)
		}
		stderr.has(t, "The replay begins 2 s after the first watch.\n")
		stderr.has(t, "The replay from rv:105 has begun.\n")
		stderr.has(t, "The replay has reached rv:170, after 5 changes. Watches stay open.\n")
	}
}

// Clients that ask for several moments at the same time get the objects that `kubecdc get` shows,
// from a bus and from one that confines its readers.
func TestServeOpensSeveralMomentsAtOnce(t *testing.T) {
	t.Parallel()
	_, lines := recorded(t)
	shared := startShared(t)
	for name, bus := range map[string][]string{
		"a bus":             {"--bus", recordedBus(t, t.TempDir(), -1, lines)},
		"a confined reader": {"--config", shared.file(t, "shop")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var moments []string
			for minute := 1; minute <= 8; minute++ {
				moments = append(moments, fmt.Sprintf("2026-11-20T14:%02d:30Z", minute))
			}
			moments = append(moments, "rv:130", "rv:145", "rv:155")
			want := map[string]string{}
			for _, at := range moments {
				got := answerOf(t,
					append([]string{"get", "cm,deploy", "-n", "shop", "--at", at, "-o", "json"}, bus...)...)
				want[at] = contents(t, []byte(got.Out))
			}
			if want["rv:130"] == want["rv:155"] {
				t.Fatal("the moments do not differ: the test shows nothing")
			}
			config, err := clientcmd.BuildConfigFromFlags("",
				served(t, append([]string{"--at", "rv:145", "--max-moments", "20"}, bus...)...))
			if err != nil {
				t.Fatal(err)
			}
			client, err := rest.HTTPClientFor(config)
			if err != nil {
				t.Fatal(err)
			}
			defer client.CloseIdleConnections()
			var clients sync.WaitGroup
			for range 3 {
				for _, at := range moments {
					clients.Go(func() {
						var got []string
						for _, resource := range []string{
							"api/v1/namespaces/shop/configmaps", "apis/apps/v1/namespaces/shop/deployments",
						} {
							r, err := http.NewRequestWithContext(t.Context(), http.MethodGet,
								config.Host+"/at/"+at+"/"+resource, http.NoBody)
							if err != nil {
								t.Error(err)
								return
							}
							response, err := client.Do(r)
							if err != nil {
								t.Errorf("%s: %v", at, err)
								return
							}
							body, err := io.ReadAll(response.Body)
							_ = response.Body.Close()
							if err != nil || response.StatusCode != http.StatusOK {
								t.Errorf("%s: %v: %s %s", at, err, response.Status, body)
								return
							}
							if items := contents(t, body); items != "" {
								got = append(got, items)
							}
						}
						if got := strings.Join(got, "\n"); got != want[at] {
							t.Errorf("%s: want\n%s\ngot\n%s", at, want[at], got)
						}
					})
				}
			}
			clients.Wait()
		})
	}
}

// contents returns the names and resourceVersions of the objects of a list.
func contents(t *testing.T, list []byte) string {
	t.Helper()
	var l struct {
		Items []struct{ Metadata metav1.ObjectMeta }
	}
	if err := json.Unmarshal(list, &l); err != nil {
		t.Errorf("%v: %s", err, list)
	}
	var out []string
	for _, o := range l.Items {
		out = append(out, o.Metadata.Name+" "+o.Metadata.ResourceVersion)
	}
	return strings.Join(out, "\n")
}
