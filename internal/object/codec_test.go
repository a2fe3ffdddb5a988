package object_test

import (
	"bytes"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/kubecdc/kubecdc/internal/object"
)

func TestCodecRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		piece := rapid.SliceOfN(rapid.Byte(), 0, 300)
		sample := bytes.Repeat(piece.Draw(t, "sample"), rapid.IntRange(0, 300).Draw(t, "times"))
		codec := object.NewCodec(sample)
		if rapid.Bool().Draw(t, "none") {
			codec = nil
		}
		// The JSON shares much, little or nothing with the sample, and may be longer than any
		// dictionary.
		var json []byte
		for range rapid.IntRange(0, 8).Draw(t, "parts") {
			if part := piece.Draw(t, "part"); len(sample) > 0 && rapid.Bool().Draw(t, "shared") {
				from := rapid.IntRange(0, len(sample)-1).Draw(t, "from")
				json = append(json, sample[from:rapid.IntRange(from, len(sample)).Draw(t, "to")]...)
			} else {
				json = append(json, bytes.Repeat(part, rapid.IntRange(0, 20).Draw(t, "again"))...)
			}
		}
		before := bytes.Clone(json)
		o := object.New(nil, 1, 2, codec, json)
		if o.HeldBytes() > len(json)+1 {
			t.Fatalf("%d bytes hold %d", o.HeldBytes(), len(json))
		}
		if o.Size() != len(json) {
			t.Fatalf("size %d, want %d", o.Size(), len(json))
		}
		clear(json) // the Object must not refer to it
		for i := range sample {
			sample[i] = 0
		}
		got, err := o.AppendJSON([]byte("head"))
		if err != nil || string(got) != "head"+string(before) {
			t.Fatalf("got %q, %v, want %q", got, err, before)
		}
	})
}

func TestCodecObjects(t *testing.T) {
	for _, with := range samples {
		codec := object.NewCodec(stripSample(t, with))
		for _, name := range samples {
			want := stripSample(t, name)
			o := object.New(nil, 1, 0, codec, want)
			got, err := o.AppendJSON(nil)
			if err != nil || !bytes.Equal(got, want) {
				t.Errorf("%s with %s as dictionary: %v", name, with, err)
			}
			t.Logf("%-10s with %-10s: %d -> %d", name, with, len(want), o.HeldBytes())
		}
	}
}

// A Codec's encoders are pooled: concurrent packing must not mix them up.
func TestCodecConcurrently(t *testing.T) {
	codec := object.NewCodec(stripSample(t, "pod"))
	want := stripSample(t, "pod-sibling")
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for i := range 500 {
				json := bytes.Replace(want, []byte("48211"), []byte(strings.Repeat("7", i%40)), 1)
				got, err := object.New(nil, 1, 0, codec, json).AppendJSON(nil)
				if err != nil || !bytes.Equal(got, json) {
					t.Errorf("differs: %v", err)
					return
				}
			}
		})
	}
	wg.Wait()
}

func TestCodecAllocations(t *testing.T) {
	json := stripSample(t, "pod-sibling")
	codec := object.NewCodec(stripSample(t, "pod"))
	o := object.New(nil, 1, 0, codec, json)
	dst := make([]byte, 0, len(json))
	if n := testing.AllocsPerRun(100, func() {
		if _, err := o.AppendJSON(dst); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("unpacking: %v allocations", n)
	}
	if testing.AllocsPerRun(100, func() { o = object.New(nil, 1, 0, codec, json) }) > 2 { // the Object and its body
		t.Error("packing allocates more than it returns")
	}
}

// Incompressible data must not grow by more than its header.
func TestCodecIncompressible(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	noise := make([]byte, 4096)
	for i := range noise {
		noise[i] = byte(rng.Uint32())
	}
	for _, codec := range []*object.Codec{nil, object.NewCodec(nil), object.NewCodec(stripSample(t, "pod"))} {
		for _, n := range []int{0, 1, 63, 64, 4096} {
			o := object.New(nil, 1, 0, codec, noise[:n])
			got, err := o.AppendJSON(nil)
			if o.HeldBytes() > n+1 || err != nil || !bytes.Equal(got, noise[:n]) {
				t.Errorf("%d bytes: held as %d, %v", n, o.HeldBytes(), err)
			}
		}
	}
}
