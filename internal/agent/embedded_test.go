package agent

import (
	"net"
	"strings"
	"testing"
)

func TestATakenServerAddress(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if _, err := listen(t.Context(), l.Addr().String(), true); err == nil ||
		!strings.Contains(err.Error(), "server.address: "+l.Addr().String()+" is in use: ") {
		t.Errorf("configured: got %v", err)
	}
	// Without a configuration the port is of no importance.
	var taken []net.Listener
	for range 3 {
		l, err := listen(t.Context(), ":8080", false)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		taken = append(taken, l)
	}
	if a := taken[0].Addr().(*net.TCPAddr); !a.IP.IsLoopback() || a.String() == taken[1].Addr().String() {
		t.Errorf("listens on %s", a)
	}
}
