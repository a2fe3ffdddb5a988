package nats_test

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// fakeServer implements as much of NATS's protocol and JetStream's API as the bus needs, and
// answers messages at random.
type fakeServer struct {
	l      net.Listener
	conns  sync.WaitGroup
	timers sync.WaitGroup

	mu      sync.Mutex
	dice    *rand.Rand
	kind    bool          // stops causing trouble
	late    time.Duration // of each acknowledgement of a server that behaves
	all     int           // connections
	open    map[*fakeConn]bool
	stored  map[string]uint64   // sequence by message id
	records []*fakeRecord       // by sequence, from 1; nil: lost
	log     map[string][]string // bodies by subject, in the order of arrival
	onRead  func(answer func()) // a check of a duplicate; nil: answer it
	version string
	limits  string // of the stream
	full    bool
}

// fakeRecord is a stored message.
type fakeRecord struct{ subject, header, body string }

type fakeConn struct {
	net.Conn
	s    *fakeServer
	mu   sync.Mutex
	subs map[string]string // sid by subject
}

func startFakeServer(t *testing.T, seed uint64) *fakeServer {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &fakeServer{
		l:       l,
		dice:    rand.New(rand.NewPCG(seed, 0)),
		open:    map[*fakeConn]bool{},
		stored:  map[string]uint64{},
		log:     map[string][]string{},
		version: "2.12.0",
		limits:  `"max_bytes":-1,"num_replicas":1`,
	}
	s.conns.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			fc := &fakeConn{Conn: c, s: s, subs: map[string]string{}}
			s.mu.Lock()
			s.open[fc] = true
			s.all++
			s.mu.Unlock()
			s.conns.Go(fc.serve)
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		s.cut()
		s.conns.Wait()
		s.timers.Wait()
	})
	return s
}

// cut closes all connections.
func (s *fakeServer) cut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.open {
		_ = c.Close()
	}
}

// behave ends the trouble.
func (s *fakeServer) behave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kind = true
}

// delay makes a server that behaves acknowledge later.
func (s *fakeServer) delay(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.late = d
}

// connections returns how many were accepted.
func (s *fakeServer) connections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all
}

func (c *fakeConn) serve() {
	defer func() {
		_ = c.Close()
		c.s.mu.Lock()
		delete(c.s.open, c)
		c.s.mu.Unlock()
	}()
	c.s.mu.Lock()
	version := c.s.version
	c.s.mu.Unlock()
	c.write(
		fmt.Sprintf(
			`INFO {"server_id":"fake","version":%q,"proto":1,"headers":true,"max_payload":1048576,"jetstream":true}`+
				"\r\n", version))
	r := bufio.NewReader(c)
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			return
		}
		f := strings.Fields(line)
		if len(f) == 0 {
			continue
		}
		switch f[0] {
		case "PING":
			c.write("PONG\r\n")
		case "SUB":
			c.mu.Lock()
			c.subs[strings.TrimSuffix(f[1], "*")] = f[len(f)-1]
			c.mu.Unlock()
		case "PUB", "HPUB":
			size, err := strconv.Atoi(f[len(f)-1])
			if err != nil {
				return
			}
			body := make([]byte, size+2)
			if _, err := io.ReadFull(r, body); err != nil {
				return
			}
			header := 0
			if f[0] == "HPUB" {
				header, err = strconv.Atoi(f[3])
				if err != nil {
					return
				}
			}
			if !c.message(f[1], f[2], string(body[:header]), string(body[header:size])) {
				return
			}
		}
	}
}

// message handles a message. It reports false if the connection is to be cut.
func (c *fakeConn) message(subject, reply, header, body string) bool {
	if strings.HasPrefix(subject, "$JS.API.STREAM.INFO.") {
		c.answer(reply, "",
			`{"type":"io.nats.jetstream.api.v1.stream_info_response","created":"2026-01-02T03:04:05Z","config":{"name":"KUBECDC",`+
				`"subjects":["kubecdc.prod-eu-1.>"],"retention":"limits","discard":"new",`+c.s.limits+
				`,"max_msgs":-1,"max_msgs_per_subject":-1,"max_msg_size":-1,`+
				`"duplicate_window":120000000000,"storage":"file"},"state":{"messages":0,"last_seq":1000000000}}`)
		return true
	}
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	if strings.HasPrefix(subject, "$JS.API.STREAM.MSG.GET.") {
		return c.read(reply, body)
	}
	if c.s.full {
		c.answer(reply, "",
			`{"error":{"code":503,"err_code":10077,"description":"maximum bytes exceeded"},"stream":"KUBECDC"}`)
		return true
	}
	record := &fakeRecord{subject, header, body}
	fate := c.s.dice.IntN(100)
	if c.s.kind {
		fate = 99
	}
	switch {
	case fate < 2:
		return false
	case fate < 4:
		c.s.store(record)
		return false
	case fate < 8: // ignored
	case fate < 10:
		c.s.store(record)
	case fate < 13:
		go c.answer(reply, "",
			`{"error":{"code":503,"err_code":10077,"description":"maximum bytes exceeded"},"stream":"KUBECDC"}`)
	case fate < 16:
		go c.answer(reply, "NATS/1.0 503\r\n\r\n", "")
	case fate < 24: // late, maybe on another connection
		ack := c.s.store(record)
		c.s.timers.Add(1)
		time.AfterFunc(time.Duration(c.s.dice.IntN(300))*time.Millisecond, func() {
			defer c.s.timers.Done()
			c.s.mu.Lock()
			defer c.s.mu.Unlock()
			for other := range c.s.open {
				other.answer(reply, "", ack)
			}
		})
	case c.s.late > 0:
		ack := c.s.store(record)
		c.s.timers.Add(1)
		time.AfterFunc(c.s.late, func() {
			defer c.s.timers.Done()
			c.answer(reply, "", ack)
		})
	case fate < 27: // lost: it is a duplicate from now on
		c.s.stored[record.id()] = uint64(len(c.s.records) + 1)
		c.s.records = append(c.s.records, nil)
	case fate < 30: // a duplicate of another record, if there is one
		c.s.stored[record.id()] = uint64(max(len(c.s.records), 1))
		c.answer(reply, "", c.s.store(record))
	default:
		c.answer(reply, "", c.s.store(record))
	}
	return true
}

// read answers a request for a record, or is silent.
func (c *fakeConn) read(reply, request string) bool {
	var wanted struct {
		Seq uint64 `json:"seq"`
	}
	if err := json.Unmarshal([]byte(request), &wanted); err != nil {
		return false
	}
	text := `{"error":{"code":404,"err_code":10037,"description":"no message found"}}`
	if i := wanted.Seq; 0 < i && i <= uint64(len(c.s.records)) && c.s.records[i-1] != nil {
		r := c.s.records[i-1]
		text = fmt.Sprintf(`{"message":{"subject":%q,"seq":%d,"hdrs":%q,"data":%q,"time":"2026-01-02T03:04:05Z"}}`,
			r.subject, i,
			base64.StdEncoding.EncodeToString([]byte(r.header)), base64.StdEncoding.EncodeToString([]byte(r.body)))
	}
	answer := func() { c.answer(reply, "", text) }
	switch {
	case c.s.onRead != nil:
		c.s.onRead(answer)
	case c.s.kind || c.s.dice.IntN(100) < 80:
		answer()
	case c.s.dice.IntN(2) == 0:
		c.answer(reply, "NATS/1.0 503\r\n\r\n", "")
	case c.s.dice.IntN(5) == 0:
		return false
	}
	return true
}

// id returns the message id.
func (r *fakeRecord) id() string {
	_, id, _ := strings.Cut(r.header, "Nats-Msg-Id: ")
	id, _, _ = strings.Cut(id, "\r\n")
	return id
}

// store stores a message and returns the acknowledgement.
func (s *fakeServer) store(r *fakeRecord) string {
	if seq, ok := s.stored[r.id()]; ok {
		return fmt.Sprintf(`{"stream":"KUBECDC","seq":%d,"duplicate":true}`, seq)
	}
	s.records = append(s.records, r)
	seq := uint64(len(s.records))
	s.stored[r.id()] = seq
	s.log[r.subject] = append(s.log[r.subject], r.body)
	return fmt.Sprintf(`{"stream":"KUBECDC","seq":%d}`, seq)
}

// answer sends a message to a subject that this connection may have subscribed to.
func (c *fakeConn) answer(subject, header, body string) {
	c.mu.Lock()
	sid := ""
	for prefix, s := range c.subs {
		if strings.HasPrefix(subject, prefix) {
			sid = s
		}
	}
	c.mu.Unlock()
	switch {
	case sid == "":
	case header != "":
		c.write(
			fmt.Sprintf("HMSG %s %s %d %d\r\n%s%s\r\n", subject, sid, len(header), len(header)+len(body), header, body))
	default:
		c.write(fmt.Sprintf("MSG %s %s %d\r\n%s\r\n", subject, sid, len(body), body))
	}
}

func (c *fakeConn) write(s string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	_ = c.SetWriteDeadline(time.Now().Add(time.Second))
	_, _ = io.WriteString(c.Conn, s) // the reader detects a failure
}
