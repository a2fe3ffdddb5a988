package fromnats_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kubecdc/kubecdc/pkg/consume"
	"github.com/kubecdc/kubecdc/pkg/consume/fromnats"
)

// ofShop reads the three Pods that put writes, by consumers with fixed names.
func ofShop(b *bus) fromnats.JetStream {
	return fromnats.JetStream{URL: b.ClientURL(), Consumers: "shop", Subjects: []string{
		"kubecdc.*.object.*.*.shop.web-0", "kubecdc.*.object.*.*.shop.web-1", "kubecdc.*.object.*.*.shop.web-2",
	}}
}

// consumers returns the names of the stream's consumers.
func consumers(tb testing.TB, stream jetstream.Stream) []string {
	tb.Helper()
	list := stream.ConsumerNames(tb.Context())
	var names []string
	for name := range list.Name() {
		names = append(names, name)
	}
	if err := list.Err(); err != nil {
		tb.Fatal(err)
	}
	slices.Sort(names)
	return names
}

func TestFixedNames(t *testing.T) {
	t.Parallel()
	b := startBus(t)
	_, js := b.client()
	stream := b.stream(js, fromnats.DefaultStream)
	put(t, js, 1, 2000)
	r := open(t, ofShop(b), consume.Query{Start: consume.Beginning()})
	got := read(t, r, 1000)
	if diff := cmp.Diff([]string{"shop-0", "shop-1", "shop-2"}, consumers(t, stream)); diff != "" {
		t.Error(diff)
	}
	b.stop()
	b.start()
	put(t, js, 2001, 2010)
	got = append(got, read(t, r, 1010)...)
	if diff := cmp.Diff(numbers(1, 2010), got); diff != "" {
		t.Error(diff)
	}
	r.Close()
	if names := consumers(t, stream); len(names) > 0 {
		t.Errorf("the reader leaves %q", names)
	}
}

func TestFixedNamesInUse(t *testing.T) {
	t.Parallel()
	b := startBus(t)
	_, js := b.client()
	b.stream(js, fromnats.DefaultStream)
	put(t, js, 1, 10)
	source := ofShop(b)
	first := open(t, source, consume.Query{Start: consume.Beginning()})
	got := read(t, first, 5)
	_, err := source.Read(t.Context(), consume.Query{Start: consume.Live()})
	var inUse *fromnats.InUseError
	if !errors.As(err, &inUse) || inUse.By == "" {
		t.Fatalf("a second reader: %v", err)
	}
	put(t, js, 11, 20)
	if diff := cmp.Diff(numbers(1, 20), append(got, read(t, first, 15)...)); diff != "" {
		t.Error(diff)
	}
	first.Close()
	second := open(t, source, consume.Query{Start: consume.Beginning()})
	if diff := cmp.Diff(numbers(1, 20), read(t, second, 20)); diff != "" {
		t.Error(diff)
	}
}

// The requests of a waiting reader expire on the server. It sends others before, so its names are
// always in use.
func TestFixedNamesOfAWaitingReader(t *testing.T) {
	t.Parallel()
	b := startBus(t)
	_, js := b.client()
	b.stream(js, fromnats.DefaultStream)
	source := ofShop(b)
	const lives = 3 * time.Second
	first := open(t, source, consume.Query{OnRetry: func(err error) { t.Error("the first:", err) }})
	fromnats.LiveFor(first, lives)
	fromnats.BeatEvery(first, lives/6)
	put(t, js, 1, 1)
	read(t, first, 1)
	got := make(chan []int)
	go func() { got <- read(t, first, 3) }()
	tick := time.NewTicker(lives / 30)
	defer tick.Stop()
	for began := time.Now(); time.Since(began) < 2*lives; <-tick.C {
		r, err := source.Read(t.Context(), consume.Query{})
		var inUse *fromnats.InUseError
		switch {
		case err == nil:
			r.Close()
			t.Fatal("a second reader takes the names")
		case !errors.As(err, &inUse):
			t.Fatal(err)
		}
	}
	put(t, js, 2, 4)
	if diff := cmp.Diff(numbers(2, 4), <-got); diff != "" {
		t.Error(diff)
	}
}

// A reader that is asked for nothing loses its names when its requests have expired. It uses them
// no more.
func TestFixedNamesOfAnIdleReader(t *testing.T) {
	t.Parallel()
	b := startBus(t)
	_, js := b.client()
	b.stream(js, fromnats.DefaultStream)
	source := ofShop(b)
	first := open(t, source, consume.Query{})
	fromnats.LiveFor(first, 300*time.Millisecond)
	fromnats.BeatEvery(first, 50*time.Millisecond)
	put(t, js, 1, 3)
	got := read(t, first, 3)
	var second consume.Reader
	until(t, "the names are free", func() bool {
		r, err := source.Read(t.Context(), consume.Query{})
		second = r
		return err == nil
	})
	defer second.Close()
	put(t, js, 4, 6)
	rest := make(chan []int)
	go func() { rest <- read(t, first, 3) }()
	if diff := cmp.Diff(numbers(4, 6), read(t, second, 3)); diff != "" {
		t.Error("the second:", diff)
	}
	second.Close()
	if diff := cmp.Diff(numbers(1, 6), append(got, <-rest...)); diff != "" {
		t.Error("the first:", diff)
	}
}

// A reader that was killed deletes nothing.
func TestFixedNamesOfADeadReader(t *testing.T) {
	t.Parallel()
	b := startBus(t)
	nc, js := b.client()
	b.stream(js, fromnats.DefaultStream)
	put(t, js, 1, 10)
	own, err := nats.Connect(b.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	source := ofShop(b)
	source.Conn = own
	read(t, open(t, source, consume.Query{Start: consume.Beginning()}), 5)
	own.Close()
	source.Conn = nc
	until(t, "the server notices that the first has ended", func() bool {
		r, err := source.Read(t.Context(), consume.Query{Start: consume.Beginning()})
		var inUse *fromnats.InUseError
		if errors.As(err, &inUse) {
			return false
		}
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		if diff := cmp.Diff(numbers(1, 10), read(t, r, 10)); diff != "" {
			t.Error(diff)
		}
		return true
	})
}

// The first reader loses its consumers to a second. It returns none of the second's records, says
// who has the names, and continues when the second has ended.
func TestFixedNamesTaken(t *testing.T) {
	t.Parallel()
	b := startBus(t)
	_, js := b.client()
	stream := b.stream(js, fromnats.DefaultStream)
	put(t, js, 1, 10)
	source := ofShop(b)
	said := make(chan error, 100)
	first := open(t, source, consume.Query{Start: consume.Beginning(), OnRetry: func(err error) {
		select {
		case said <- err:
		default:
		}
	}})
	got := read(t, first, 10)
	for _, name := range consumers(t, stream) {
		if err := stream.DeleteConsumer(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	second := open(t, source, consume.Query{Start: consume.Beginning()})
	rest := make(chan []int)
	go func() { rest <- read(t, first, 10) }()
	var inUse *fromnats.InUseError
	until(t, "the first says that another reads", func() bool { return errors.As(<-said, &inUse) })
	put(t, js, 11, 20)
	if diff := cmp.Diff(numbers(1, 20), read(t, second, 20)); diff != "" {
		t.Error("the second:", diff)
	}
	second.Close()
	if diff := cmp.Diff(numbers(1, 20), append(got, <-rest...)); diff != "" {
		t.Error("the first:", diff)
	}
}

// Readers that want the same names at the same time fail, or read every record once.
func TestFixedNamesContended(t *testing.T) {
	t.Parallel()
	b := startBus(t)
	_, js := b.client()
	b.stream(js, fromnats.DefaultStream)
	put(t, js, 1, 300)
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	source := ofShop(b)
	attempt := func() error {
		r, err := source.Read(ctx, consume.Query{Start: consume.Beginning(), StopAtEnd: true})
		if err != nil {
			return err
		}
		defer r.Close()
		var got []int
		for {
			e, err := r.Next(ctx)
			switch {
			case errors.Is(err, io.EOF):
				if diff := cmp.Diff(numbers(1, 300), got); diff != "" {
					return fmt.Errorf("wrong records: %s", diff)
				}
				return nil
			case err != nil:
				return err
			}
			got = append(got, int(number(e.Sequence)))
		}
	}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for {
				err := attempt()
				var inUse *fromnats.InUseError
				switch {
				case err == nil:
					return
				case ctx.Err() != nil:
					t.Error("it never reads")
					return
				case errors.As(err, &inUse), errors.Is(err, fromnats.ErrTaken):
				default:
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
}
