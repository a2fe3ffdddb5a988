package connlimit

import "testing"

func TestLongestIdleConnectionIsClosed(t *testing.T) {
	t.Parallel()
	const most = 3
	l := &listener{most: most, open: map[*conn]struct{}{}}
	add := func(used int64) (added, closed *conn) {
		c := &conn{of: l}
		c.used.Store(used)
		return c, l.add(c)
	}
	first, _ := add(5)
	second, _ := add(2)
	if _, closed := add(7); closed != nil {
		t.Fatalf("a connection that was used at %d is closed below the bound", closed.used.Load())
	}
	for _, want := range []*conn{second, first} {
		if _, closed := add(9); closed != want {
			t.Errorf("the connection of %d is closed, want that of %d", closed.used.Load(), want.used.Load())
		}
		if len(l.open) != most {
			t.Errorf("%d connections are open, want %d", len(l.open), most)
		}
	}
}
