package apiview_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubecdc/kubecdc/internal/object"
	"github.com/kubecdc/kubecdc/internal/past/timeline"
	"github.com/kubecdc/kubecdc/internal/serve/apiview"
)

// memory counts the opened moments, and those that still have an object in memory.
type memory struct {
	mu      sync.Mutex
	objects map[string][]weak.Pointer[object.Object] // by moment
	opened  int
}

// open returns the Open of a server of a record.
func (m *memory) open(r *record) func(context.Context, timeline.Moment) (*apiview.View, error) {
	return func(_ context.Context, at timeline.Moment) (*apiview.View, error) {
		v := apiview.NewView(r.state(at), apiview.Options{Now: start})
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.objects == nil {
			m.objects = map[string][]weak.Pointer[object.Object]{}
		}
		m.opened++
		m.objects[fmt.Sprint(at, " ", m.opened)] = v.Objects()
		return v, nil
	}
}

// moments returns how many moments have been opened, and of how many an object is in memory.
func (m *memory) moments() (opened, kept int) {
	runtime.GC()
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, objects := range m.objects {
		for _, o := range objects {
			if o.Value() != nil {
				kept++
				break
			}
		}
	}
	return m.opened, kept
}

// pipes is a listener of connections within the process, which a bubble of synctest can have.
type pipes struct {
	accepted chan net.Conn
	closed   chan struct{}
	once     sync.Once
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.accepted:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { p.once.Do(func() { close(p.closed) }); return nil }
func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe"} }

// piped serves within a bubble of synctest, and returns a function that sends the head of a request
// and returns the connection.
func piped(t *testing.T, s *apiview.Server) func(method, path, header string) net.Conn {
	t.Helper()
	listener := &pipes{accepted: make(chan net.Conn), closed: make(chan struct{})}
	server := &http.Server{Handler: s, ReadHeaderTimeout: time.Minute}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	t.Cleanup(func() {
		_ = server.Close()
		if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	return func(method, path, header string) net.Conn {
		t.Helper()
		client, accepted := net.Pipe()
		t.Cleanup(func() { _ = client.Close() })
		listener.accepted <- accepted
		if _, err := fmt.Fprintf(client, "%s %s HTTP/1.1\r\nHost: past\r\nAuthorization: Bearer %s\r\n%s\r\n", method,
			path, token, header); err != nil {
			t.Fatal(err)
		}
		return client
	}
}

// answered reads an answer to its end.
func answered(c net.Conn) (*http.Response, []byte, error) {
	r, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = r.Body.Close() }()
	body, err := io.ReadAll(r.Body)
	return r, body, err
}

// large is a record of ConfigMaps whose list does not fit into the buffers of a connection.
func large() *record {
	r := &record{next: 100}
	var objects []string
	for i := range 200 {
		objects = append(objects,
			objectJSON("ConfigMap", "shop", fmt.Sprintf("cm-%03d", i),
				fmt.Sprintf(`"data":{"k":%q}`, strings.Repeat(fmt.Sprint(i), 500))))
	}
	r.resource("v1", "configmaps", objects...)
	return r
}

// Clients that do not read their lists do not keep more moments in memory than the limit and one
// more. Requests for others are answered 429 until the server has ended the stuck ones.
func TestStuckListsKeepFewMoments(t *testing.T) {
	t.Parallel()
	for name, request := range map[string][2]string{
		"list":  {"api/v1/configmaps", ""},
		"YAML":  {"api/v1/configmaps", "Accept: application/yaml\r\n"},
		"table": {"api/v1/configmaps", "Accept: " + asTable + "\r\n"},
		"watch": {"api/v1/configmaps?watch=1", ""},
		"WebSocket": {
			"api/v1/configmaps?watch=1", "Upgrade: websocket\r\nConnection: Upgrade\r\nOrigin: http://past\r\n" +
				"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var m memory
				r := large()
				connect := piped(t, &apiview.Server{Token: token, MaxMoments: 2, Open: m.open(r)})
				for i := range 20 {
					connect("GET", fmt.Sprintf("/at/rv:%d/%s", int(r.next)-1-i, request[0]), request[1])
				}
				synctest.Wait()
				if opened, kept := m.moments(); kept > 3 {
					t.Errorf("20 clients that read nothing keep %d moments in memory, of %d that were opened", kept,
						opened)
				}
				began := time.Now()
				response, body, err := answered(connect("GET", "/at/rv:102/api/v1/configmaps", ""))
				if err != nil {
					t.Fatal(err)
				}
				var status metav1.Status
				_ = json.Unmarshal(body, &status)
				if response.StatusCode != http.StatusTooManyRequests || response.Header.Get("Retry-After") == "" ||
					status.Reason != metav1.StatusReasonTooManyRequests ||
					!strings.Contains(status.Message, "--max-moments") {
					t.Errorf("%s %v %s", response.Status, response.Header, body[:min(len(body), 300)])
				}
				if waited := time.Since(began); waited != 10*time.Second {
					t.Errorf("the request waited for %s", waited)
				}
				<-time.After(time.Until(began.Add(31 * time.Second))) // the stuck ones have been ended
				synctest.Wait()
				response, body, err = answered(connect("GET", "/at/rv:102/api/v1/configmaps", ""))
				if err != nil || response.StatusCode != http.StatusOK {
					t.Errorf("%v, %s", err, body[:min(len(body), 300)])
				}
				if opened, kept := m.moments(); kept > 3 || opened != 4 {
					t.Errorf("%d moments are in memory, of %d that were opened", kept, opened)
				}
			})
		})
	}
}

// A client that does not send the body of its request uses no moment. Nor does one that reads
// slowly lose its list.
func TestSlowClientsOfMoments(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var m memory
		r := large()
		connect := piped(t, &apiview.Server{Token: token, MaxMoments: 1, Open: m.open(r)})
		for i := range 5 {
			at := int(r.next) - 1 - i
			connect("GET", fmt.Sprintf("/at/rv:%d/api/v1/configmaps", at), "Content-Length: 100\r\n")
			connect("POST", fmt.Sprintf("/at/rv:%d/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", at),
				"Content-Length: 100\r\n")
		}
		synctest.Wait()
		if opened, kept := m.moments(); opened > 0 {
			t.Errorf("%d moments were opened for bodies that have not come, %d are in memory", opened, kept)
		}
		for path, want := range map[string]string{
			"api/v1/configmaps":       "a GET request needs no body",
			"api/v1/configmaps/other": "the past cannot be changed",
		} {
			method := map[bool]string{true: "GET", false: "PUT"}[strings.HasPrefix(want, "a GET")]
			c := connect(method, "/at/rv:300/"+path, "Content-Length: 70000\r\n")
			go func() { _, _ = io.WriteString(c, strings.Repeat("x", 70_000)) }()
			if _, body, err := answered(c); err != nil || !strings.Contains(string(body), want) {
				t.Errorf("%s %s: %v, %s", method, path, err, body)
			}
		}
		for _, accept := range []string{"application/json", "application/yaml"} {
			began := time.Now()
			response, body, err := answered(paced{
				connect("GET", "/at/rv:300/api/v1/configmaps", "Accept: "+accept+"\r\n"),
			})
			if err != nil || response.StatusCode != http.StatusOK || !strings.Contains(string(body), "cm-190") {
				t.Errorf("%s: %v, %d bytes", accept, err, len(body))
			}
			if took := time.Since(began); took < time.Minute {
				t.Errorf("the client was not slow: %s", took)
			}
		}
	})
}

// paced reads 4 KiB every two seconds.
type paced struct{ net.Conn }

func (p paced) Read(b []byte) (int, error) {
	<-time.After(2 * time.Second)
	return p.Conn.Read(b[:min(len(b), 4<<10)])
}
