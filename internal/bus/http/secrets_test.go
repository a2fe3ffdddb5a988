package http_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	publishhttp "github.com/kubecdc/kubecdc/internal/bus/http"
	"github.com/kubecdc/kubecdc/internal/publish"
)

// If the receiver echoes our credentials, the URL or the event, they appear in no log and no error.
func TestSecretsAreNotQuoted(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	token, headers := filepath.Join(dir, "token"), filepath.Join(dir, "headers")
	if err := errors.Join(os.WriteFile(token, []byte("tok3n-s3cret"), 0o600),
		os.WriteFile(headers, []byte("X-Api-Key: k3y \"s3cret\"\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
	var status atomic.Int64
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		switch s := status.Add(1); s {
		case 1, 2, 3:
			w.Header().Set("Location", "https://else.example/"+r.Header.Get("X-Api-Key"))
			w.WriteHeader([]int{401, 500, 302}[s-1])
		default:
			w.WriteHeader(http.StatusBadRequest)
		}
		_, _ = fmt.Fprintf(w, "%s: %v %s %s: %s%s", strings.Repeat("-", 150), r.Header["X-Api-Key"],
			r.Header["Authorization"],
			strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "), b, strings.Repeat("x", 10000))
	})
	r := run(t, publishhttp.Config{URL: url, TokenFile: token, HeadersFile: headers})
	err := r.Publish(t.Context(), event("web-1", 1, `{"password":"hunter2-hunter2"}`))
	if !errors.Is(err, publish.ErrRefused) {
		t.Fatal(err)
	}
	for _, text := range []string{err.Error(), r.log.String()} {
		if strings.Contains(text, "s3cret") || strings.Contains(text, "hunter2") ||
			!strings.Contains(text, "REDACTED") {
			t.Error(text)
		}
	}
}

// The path and the query of a webhook may be its secret.
func TestPathAndQueryAreNotQuoted(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		say  func(w http.ResponseWriter, r *http.Request) // answers the first request; the second one is refused
	}{
		{"404 with the path", func(w http.ResponseWriter, r *http.Request) {
			http.Error(w, "Cannot POST "+r.URL.Path, http.StatusNotFound)
		}},
		{"404 with the escaped path", func(w http.ResponseWriter, r *http.Request) {
			http.Error(w, "Cannot POST "+r.URL.EscapedPath(), http.StatusNotFound)
		}},
		{"404 with the last part of the path", func(w http.ResponseWriter, r *http.Request) {
			http.Error(w, "no hook "+r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:], http.StatusNotFound)
		}},
		{"301 to the path with a slash", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Location", "http://"+r.Host+r.URL.EscapedPath()+"/?"+r.URL.RawQuery)
			w.WriteHeader(http.StatusMovedPermanently)
		}},
		{"307 to part of the path", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Location", "https://else.example/T0PS3CRET/")
			w.WriteHeader(http.StatusTemporaryRedirect)
		}},
		{"500 with the values of the query", func(w http.ResponseWriter, r *http.Request) {
			http.Error(w, fmt.Sprint(r.URL.Query()), http.StatusInternalServerError)
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var n atomic.Int64
			url := serve(t, func(w http.ResponseWriter, r *http.Request) {
				if n.Add(1) == 1 {
					tc.say(w, r)
					return
				}
				http.Error(w, "bad request: POST "+r.RequestURI, http.StatusBadRequest)
			})
			r := run(t, publishhttp.Config{URL: url + "/hooks/T0PS3CRET%20PATH?token=QUERYS3CRET&k=a%2Fs3+S3CRET"})
			err := r.Publish(t.Context(), event("web-1", 1, `{}`))
			if !errors.Is(err, publish.ErrRefused) || !strings.Contains(err.Error(), "bad request: POST REDACTED") {
				t.Fatal(err)
			}
			for _, text := range []string{err.Error(), r.log.String()} {
				if strings.Contains(text, "S3CRET") || strings.Contains(text, "PATH") {
					t.Error(text)
				}
			}
		})
	}
}

// A server that is no HTTP server echoes what it is sent, and net/http quotes that.
func TestEchoIsNotQuoted(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	t.Cleanup(func() { _ = l.Close(); wg.Wait() })
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			var raw bytes.Buffer
			if req, err := http.ReadRequest(bufio.NewReader(io.TeeReader(c, &raw))); err == nil {
				// all of it: the client may still be writing, and would get a closed connection
				_, _ = io.Copy(io.Discard, req.Body)
			}
			_, _ = c.Write(raw.Bytes())
			_ = c.Close()
		}
	})
	r := run(t, publishhttp.Config{URL: "http://" + l.Addr().String() + "/T0PS3CRET"})
	wg.Go(func() { _ = r.Publish(t.Context(), event("web-1", 1, `{}`)) })
	wait(t, "a line in the log", func() bool { return strings.Contains(r.log.String(), "malformed HTTP") })
	if strings.Contains(r.log.String(), "S3CRET") {
		t.Error(r.log)
	}
	r.stop()
}
