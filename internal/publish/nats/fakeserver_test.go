package nats_test

import (
	"bufio"
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

// fakeServer implements as much of NATS's protocol and JetStream's API as the bus needs, and answers messages at random.
type fakeServer struct {
	l      net.Listener
	conns  sync.WaitGroup
	timers sync.WaitGroup

	mu     sync.Mutex
	dice   *rand.Rand
	kind   bool          // stops causing trouble
	late   time.Duration // of each acknowledgement of a server that behaves
	all    int           // connections
	open   map[*fakeConn]bool
	stored map[string]uint64   // sequence by message id
	log    map[string][]string // ids by subject, in the order of arrival, without duplicates
}

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
		l: l, dice: rand.New(rand.NewPCG(seed, 0)), open: map[*fakeConn]bool{}, stored: map[string]uint64{}, log: map[string][]string{},
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
	c.write(`INFO {"server_id":"fake","version":"2.12.0","proto":1,"headers":true,"max_payload":1048576,"jetstream":true}` + "\r\n")
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
			if !c.message(f[1], f[2], string(body)) {
				return
			}
		}
	}
}

// message handles a message. It reports false if the connection is to be cut.
func (c *fakeConn) message(subject, reply, text string) bool {
	if strings.HasPrefix(subject, "$JS.API.STREAM.INFO.") {
		c.answer(reply, "", `{"type":"io.nats.jetstream.api.v1.stream_info_response","created":"2026-01-02T03:04:05Z","config":{"name":"KUBECDC",`+
			`"subjects":["kubecdc.prod-eu-1.>"],"retention":"limits","discard":"new","max_bytes":-1,"max_msgs":-1,"max_msgs_per_subject":-1,"max_msg_size":-1,`+
			`"duplicate_window":120000000000,"storage":"file","num_replicas":1},"state":{"messages":0,"last_seq":1000000000}}`)
		return true
	}
	_, id, _ := strings.Cut(text, "Nats-Msg-Id: ")
	id, _, _ = strings.Cut(id, "\r\n")
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	fate := c.s.dice.IntN(100)
	if c.s.kind {
		fate = 99
	}
	switch {
	case fate < 2:
		return false
	case fate < 4:
		c.s.store(subject, id)
		return false
	case fate < 8: // ignored
	case fate < 10:
		c.s.store(subject, id)
	case fate < 13:
		go c.answer(reply, "", `{"error":{"code":503,"err_code":10077,"description":"maximum bytes exceeded"},"stream":"KUBECDC"}`)
	case fate < 16:
		go c.answer(reply, "NATS/1.0 503\r\n\r\n", "")
	case fate < 24: // late, maybe on another connection
		ack := c.s.store(subject, id)
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
		ack := c.s.store(subject, id)
		c.s.timers.Add(1)
		time.AfterFunc(c.s.late, func() {
			defer c.s.timers.Done()
			c.answer(reply, "", ack)
		})
	default:
		c.answer(reply, "", c.s.store(subject, id))
	}
	return true
}

// store stores a message and returns the acknowledgement.
func (s *fakeServer) store(subject, id string) string {
	if seq, ok := s.stored[id]; ok {
		return fmt.Sprintf(`{"stream":"KUBECDC","seq":%d,"duplicate":true}`, seq)
	}
	seq := uint64(len(s.stored) + 1)
	s.stored[id] = seq
	s.log[subject] = append(s.log[subject], id)
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
		c.write(fmt.Sprintf("HMSG %s %s %d %d\r\n%s%s\r\n", subject, sid, len(header), len(header)+len(body), header, body))
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
