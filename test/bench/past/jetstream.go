package past

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/klauspost/compress/s2"
	"github.com/nats-io/nats-server/v2/server"
)

const (
	contentType = "application/cloudevents+json"
	streamName  = "KUBECDC" // the default of the agent
	maxStore    = 64 << 30
	// ackedAfter is how long after its observation an event is on the bus.
	ackedAfter = 3 * time.Millisecond
)

// jetStream stores messages in the files of a server, with times of the past.
type jetStream struct {
	server *server.Server
	store  server.StreamStore
	seq    uint64
	buf    []byte
}

// newJetStream creates the stream of an agent in the directory of a server. It has no maximum age:
// the server would remove what is older.
func newJetStream(dir string) (_ *jetStream, err error) {
	s, err := server.NewServer(&server.Options{
		ServerName: "past",
		DontListen: true,
		NoSigs:     true,
		NoLog:      true,

		JetStream:         true,
		JetStreamMaxStore: maxStore,
		StoreDir:          dir,
	})
	if err != nil {
		return nil, fmt.Errorf("store of a JetStream: %w", err)
	}
	j := &jetStream{server: s}
	s.Start()
	defer func() {
		if err != nil {
			j.close()
		}
	}()
	if !s.ReadyForConnections(30 * time.Second) {
		return nil, errors.New("store of a JetStream: not ready after 30 s")
	}
	c := server.StreamConfig{
		Name:        streamName,
		Subjects:    []string{"kubecdc." + Cluster + ".>"},
		Storage:     server.FileStorage,
		Replicas:    1,
		Discard:     server.DiscardNew,
		AllowDirect: true,
		Duplicates:  2 * time.Minute,
		MaxMsgs:     -1,
		MaxBytes:    -1,
		MaxMsgsPer:  -1,
	}
	empty, err := emptyStream(c)
	if err != nil {
		return nil, err
	}
	stream, err := s.GlobalAccount().RestoreStream(&c, bytes.NewReader(empty))
	if err != nil {
		return nil, fmt.Errorf("create the stream %s: %w", streamName, err)
	}
	j.store = stream.Store()
	return j, nil
}

// emptyStream returns the backup of a stream without messages.
func emptyStream(c server.StreamConfig) ([]byte, error) {
	info, err := json.Marshal(server.FileStreamInfo{Created: time.Now(), StreamConfig: c})
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	packed := s2.NewWriter(&out)
	archive := tar.NewWriter(packed)
	header := &tar.Header{
		Typeflag: tar.TypeReg,
		Name:     server.JetStreamMetaFile,
		Mode:     0o600,
		Size:     int64(len(info)),
	}
	if err := archive.WriteHeader(header); err != nil {
		return nil, err
	}
	_, err = archive.Write(info)
	err = errors.Join(err, archive.Close(), packed.Close())
	return out.Bytes(), err
}

// put stores an event as the agent publishes it.
func (j *jetStream) put(e Event) error {
	j.seq++
	sum := sha256.New()
	sum.Write(e.Source)
	sum.Write([]byte{'\n'})
	sum.Write(e.ID)
	const idLen = 22
	id := base64.RawURLEncoding.EncodeToString(sum.Sum(nil))[:idLen]
	j.buf = fmt.Appendf(j.buf[:0], "NATS/1.0\r\nNats-Msg-Id: %s\r\ncontent-type: %s\r\n\r\n", id, contentType)
	return j.store.StoreRawMsg(e.Subject, j.buf, e.Body, j.seq, e.Time.Add(ackedAfter).UnixNano(), 0, false)
}

// close ends the server, which writes the index of the stream.
func (j *jetStream) close() {
	j.server.Shutdown()
	j.server.WaitForShutdown()
}

// FillJetStream writes a record to the directories of two servers: whole, and from o.Short on.
func FillJetStream(ctx context.Context, whole, short string, o Options, say Say) (*Contents, error) {
	var all []*jetStream
	defer func() {
		for _, j := range all {
			j.close()
		}
	}()
	for _, dir := range []string{whole, short} {
		j, err := newJetStream(dir)
		if err != nil {
			return nil, err
		}
		all = append(all, j)
	}
	return fill(ctx, o, say, func(e Event) error {
		err := all[0].put(e)
		if err == nil && !e.Time.Before(o.Short) {
			err = all[1].put(e)
		}
		return err
	})
}
