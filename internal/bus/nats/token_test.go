package nats_test

import (
	"bufio"
	"encoding/json"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats.go"

	natsbus "github.com/kubecdc/kubecdc/internal/bus/nats"
)

// A program takes the port of a bus, holds the connection of a reader, and lets the next bus begin
// there. It does not receive the token of that bus: the reader read its token before it dialled.
func TestATokenIsNotSentOnAnEarlierConnection(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var token atomic.Value
	token.Store("of the run before")
	sent := make(chan string, 1)
	go func() { // the impostor ends with its connection
		conn, err := l.Accept()
		if err != nil {
			sent <- err.Error()
			return
		}
		defer conn.Close()
		token.Store("of the next run")
		_, _ = io.WriteString(conn,
			`INFO {"server_id":"X","version":"2.11.0","auth_required":true,"max_payload":1048576}`+"\r\n")
		line, _ := bufio.NewReader(conn).ReadString('\n') // without a CONNECT in the line, the test fails
		sent <- line
	}()
	c := &natsbus.Config{URL: "nats://" + l.Addr().String(), Token: func() string { return token.Load().(string) }}
	options, err := natsbus.Opener{Config: c}.ConnectOptions("")
	if err != nil {
		t.Fatal(err)
	}
	if conn, err := nats.Connect(c.URL, options...); err == nil {
		conn.Close()
		t.Error("connected to an impostor that answered nothing")
	}
	line := <-sent
	text, ok := strings.CutPrefix(line, "CONNECT ")
	var connect struct {
		Token string `json:"auth_token"`
	}
	if err := json.Unmarshal([]byte(text), &connect); !ok || err != nil {
		t.Fatalf("the client sent %q: %v", line, err)
	}
	if connect.Token != "of the run before" {
		t.Errorf("the client sent the token %q", connect.Token)
	}
}
