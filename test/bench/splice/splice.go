package splice

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kubecdc/kubecdc/test/bench/record"
)

const (
	pending  = 4000
	typeMeta = `"kind":"Pod","apiVersion":"v1",` // lists leave it out
)

// Server is the address of the pods.
type Server struct {
	URL   string
	CA    []byte // PEM; nil over plain HTTP
	Token string
}

type splicer struct {
	server Server
	client *http.Client
	js     jetstream.JetStream
	last   map[string][]byte // by uid
}

// Run publishes changes of pods until ctx ends, then waits for outstanding acknowledgements.
func Run(ctx context.Context, server Server, busURL string) error {
	nc, err := nats.Connect(busURL, nats.MaxReconnects(-1))
	if err != nil {
		return fmt.Errorf("connect to the bus: %w", err)
	}
	defer nc.Close()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	js, err := jetstream.New(nc, jetstream.WithPublishAsyncMaxPending(pending),
		jetstream.WithPublishAsyncErrHandler(func(_ jetstream.JetStream, m *nats.Msg, err error) {
			cancel(fmt.Errorf("publish %s: %w", m.Header.Get(jetstream.MsgIDHeader), err))
		}))
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(server.CA)
	s := &splicer{
		server: server,
		js:     js,
		last:   map[string][]byte{},
		client: &http.Client{Transport: &http.Transport{
			ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{RootCAs: roots}, DisableCompression: true,
		}},
	}
	version, err := s.list(ctx)
	if err == nil {
		err = s.watch(ctx, version)
	}
	if cause := context.Cause(ctx); cause == nil || !errors.Is(cause, context.Canceled) {
		return errors.Join(err, cause)
	}
	select {
	case <-js.PublishAsyncComplete():
		return nil
	case <-time.After(10 * time.Second):
		return fmt.Errorf("stop: %d records are still unacknowledged", js.PublishAsyncPending())
	}
}

func (s *splicer) open(ctx context.Context, query url.Values) (io.ReadCloser, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.server.URL+"/api/v1/pods?"+query.Encode(), nil)
	if err != nil {
		return nil, err
	}
	if s.server.Token != "" {
		request.Header.Set("Authorization", "Bearer "+s.server.Token)
	}
	response, err := s.client.Do(request)
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		return nil, errors.Join(fmt.Errorf("GET %s: %s", request.URL, response.Status), response.Body.Close())
	}
	return response.Body, nil
}

func (s *splicer) list(ctx context.Context) (version string, err error) {
	for token := ""; ; {
		body, err := s.open(ctx, url.Values{"limit": {"500"}, "continue": {token}})
		if err != nil {
			return "", err
		}
		var page struct {
			Metadata struct{ ResourceVersion, Continue string }
			Items    []json.RawMessage
		}
		err = json.NewDecoder(body).Decode(&page)
		if err := errors.Join(err, body.Close()); err != nil {
			return "", fmt.Errorf("list: %w", err)
		}
		for _, item := range page.Items {
			if err := s.publish(ctx, 'r', append([]byte("{"+typeMeta), item[1:]...)); err != nil {
				return "", err
			}
		}
		token = page.Metadata.Continue
		if token == "" {
			return page.Metadata.ResourceVersion, nil
		}
	}
}

func (s *splicer) watch(ctx context.Context, version string) error {
	body, err := s.open(ctx, url.Values{"watch": {"true"}, "resourceVersion": {version}})
	if err != nil {
		return err
	}
	defer body.Close()
	lines := bufio.NewReaderSize(body, 256<<10)
	for {
		frame, err := lines.ReadSlice('\n')
		if err != nil {
			return fmt.Errorf("watch: %w", err)
		}
		object, ok := bytes.CutPrefix(frame, []byte(`{"type":"MODIFIED","object":`))
		if !ok {
			return fmt.Errorf("watch: unexpected frame: %.200s", frame)
		}
		if err := s.publish(ctx, 'u', bytes.Clone(object[:len(object)-len("}\n")])); err != nil {
			return err
		}
	}
}

// publish keeps object.
func (s *splicer) publish(ctx context.Context, op byte, object []byte) error {
	name, rest := member(object, `"name":"`)
	namespace, rest := member(rest, `"namespace":"`)
	uid, rest := member(rest, `"uid":"`)
	version, _ := member(rest, `"resourceVersion":"`)
	if version == "" {
		return fmt.Errorf("no metadata: %.200s", object)
	}
	id := record.ID(uid, version, op)
	before := s.last[uid]
	s.last[uid] = object

	b := make([]byte, 0, len(before)+len(object)+512)
	b = append(b, `{"specversion":"1.0","id":"`...)
	b = append(b, id...)
	b = append(b,
		`","source":"`+record.Source+`","type":"dev.kubecdc.object.updated","subject":"/api/v1/namespaces/`...)
	b = append(b, namespace...)
	b = append(b, "/pods/"...)
	b = append(b, name...)
	b = append(b, `","time":"`...)
	b = time.Now().UTC().AppendFormat(b, time.RFC3339Nano)
	b = append(b, `","datacontenttype":"application/json","op":"`...)
	b = append(b, op)
	b = append(b, `","namespace":"`...)
	b = append(b, namespace...)
	b = append(b, `","name":"`...)
	b = append(b, name...)
	b = append(b, `","uid":"`...)
	b = append(b, uid...)
	b = append(b, `","resourceversion":"`...)
	b = append(b, version...)
	b = append(b, `","data":{`...)
	if before != nil {
		b = append(append(append(b, `"before":`...), before...), ',')
	}
	b = append(append(b, `"after":`...), object...)
	b = append(b, "}}"...)
	for {
		_, err := s.js.PublishAsync(record.Subject(namespace, name), b, jetstream.WithMsgID(id),
			jetstream.WithStallWait(time.Second))
		if !errors.Is(err, jetstream.ErrTooManyStalledMsgs) || ctx.Err() != nil {
			return err
		}
	}
}

// member returns the value after key, and the rest after it.
func member(text []byte, key string) (value string, rest []byte) {
	_, rest, _ = bytes.Cut(text, []byte(key))
	head, rest, _ := bytes.Cut(rest, []byte(`"`))
	return string(head), rest
}
