package object_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"math/rand/v2"
	"regexp"
	"testing"

	"github.com/kubecdc/kubecdc/internal/object"
	"github.com/kubecdc/kubecdc/internal/object/jsonscan"
)

// lineReader gives one piece after another, for ever, as a busy connection does.
type lineReader struct {
	piece []byte
	rest  []byte
}

func (r *lineReader) Read(p []byte) (int, error) {
	if len(r.rest) == 0 {
		r.rest = r.piece
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

func BenchmarkScan(b *testing.B) {
	plain := object.NewScanner(nil)
	cutting := object.NewScanner(stripped(b))
	searching := object.NewScanner(must(stripped(b).RedactCopies("example.com", "works")))
	for _, name := range samples {
		raw := sample(b, name)
		dst := make([]byte, 0, 2*len(raw))
		run := func(what string, f func() error) {
			b.Run(name+"/"+what, func(b *testing.B) {
				b.SetBytes(int64(len(raw)))
				b.ReportAllocs()
				for b.Loop() {
					if err := f(); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
		run("scan", func() error {
			_, _, err := plain.Scan(dst, raw, "", "")
			return err
		})
		run("cut", func() error {
			_, _, err := cutting.Scan(dst, raw, "", "")
			return err
		})
		run("cut, searched for copies", func() error {
			_, _, err := searching.Scan(dst, raw, "", "")
			return err
		})
		run("changedBy", func() error {
			out, m, err := cutting.Scan(dst, raw, "", "")
			m.AppendChangedBy(out, 0)
			return err
		})
		run("json.Valid", func() error {
			if !json.Valid(raw) {
				return jsonscan.ErrTruncated
			}
			return nil
		})
		run("json.Unmarshal", func() error {
			var v map[string]any
			return json.Unmarshal(raw, &v)
		})
	}
}

func BenchmarkFrames(b *testing.B) {
	pod := sample(b, "pod")
	var pretty bytes.Buffer
	frame := append(append([]byte(`{"type":"MODIFIED","object":`), pod...), "}\n"...)
	if err := json.Indent(&pretty, frame, "", " "); err != nil {
		b.Fatal(err)
	}
	for name, frame := range map[string][]byte{"compact": frame, "pretty": pretty.Bytes()} {
		b.Run(name, func(b *testing.B) {
			f := object.NewFrames(&lineReader{piece: frame}, 1<<20)
			b.SetBytes(int64(len(frame)))
			b.ReportAllocs()
			for b.Loop() {
				if _, _, err := f.Next(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("json.Decoder", func(b *testing.B) {
		d := json.NewDecoder(&lineReader{piece: frame})
		b.SetBytes(int64(len(frame)))
		b.ReportAllocs()
		var v struct {
			Type   string
			Object json.RawMessage
		}
		for b.Loop() {
			if err := d.Decode(&v); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkItems(b *testing.B) {
	page := listPage(sample(b, "pod"), 500)
	b.Run("own", func(b *testing.B) {
		b.SetBytes(int64(len(page)))
		b.ReportAllocs()
		for b.Loop() {
			items := object.NewItems(bytes.NewReader(page), 1<<20)
			for {
				if _, err := items.Next(); errors.Is(err, io.EOF) {
					break
				} else if err != nil {
					b.Fatal(err)
				}
			}
		}
	})
	b.Run("json.Unmarshal", func(b *testing.B) {
		b.SetBytes(int64(len(page)))
		b.ReportAllocs()
		for b.Loop() {
			var v struct{ Items []json.RawMessage }
			if err := json.Unmarshal(page, &v); err != nil {
				b.Fatal(err)
			}
		}
	})
}

var ids = regexp.MustCompile(`[0-9a-f]{4,}`)

// sibling is an object like json, with other uids, hashes, numbers and years.
func sibling(json []byte) []byte {
	rng := rand.New(rand.NewPCG(1, 2))
	return ids.ReplaceAllFunc(bytes.Clone(json), func(id []byte) []byte {
		for i := range id {
			id[i] = "0123456789abcdef"[rng.IntN(16)]
		}
		return id
	})
}

func BenchmarkPack(b *testing.B) {
	for _, name := range samples {
		dict := stripSample(b, name)
		raw := sibling(dict)
		for _, codec := range []struct {
			name  string
			codec *object.Codec
		}{{"dict", object.NewCodec(dict)}, {"plain", object.NewCodec(nil)}} {
			o := object.New(nil, 1, 0, codec.codec, raw)
			b.Run(name+"/pack/"+codec.name, func(b *testing.B) {
				b.SetBytes(int64(len(raw)))
				b.ReportAllocs()
				b.ReportMetric(float64(o.HeldBytes()), "held")
				for b.Loop() {
					object.New(nil, 1, 0, codec.codec, raw)
				}
			})
			b.Run(name+"/unpack/"+codec.name, func(b *testing.B) {
				dst := make([]byte, 0, len(raw))
				b.SetBytes(int64(len(raw)))
				b.ReportAllocs()
				for b.Loop() {
					if _, err := o.AppendJSON(dst); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

func BenchmarkRedact(b *testing.B) {
	for _, bc := range []struct {
		sample string
		paths  []string
		hashed bool
	}{
		{"secret", object.SecretPaths(false), false},
		{"secret", object.SecretPaths(true), true},
		{"pod", []string{"spec.containers[*].env[*].value"}, false},
		{"pod", []string{"spec.containers[*].env[*].value"}, true},
	} {
		raw := sample(b, bc.sample)
		how, mac := "remove", (*object.MAC)(nil)
		if bc.hashed {
			how, mac = "hash", newMAC(b, testKey, false)
		}
		s := object.NewScanner(redacting(b, stripped(b), mac, bc.paths...))
		dst := make([]byte, 0, 2*len(raw))
		b.Run(bc.sample+"/"+how, func(b *testing.B) {
			b.SetBytes(int64(len(raw)))
			b.ReportAllocs()
			for b.Loop() {
				if _, _, err := s.Scan(dst, raw, "", ""); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkSameBut(b *testing.B) {
	before := stripSample(b, "pod")
	ready := bytes.Replace(before, []byte(`"phase":"`), []byte(`"phase":"X`), 1)
	image := bytes.Replace(before, []byte(`"image":"`), []byte(`"image":"x`), 1)
	if bytes.Equal(ready, before) || bytes.Equal(image, before) {
		b.Fatal("the sample has no phase or image")
	}
	status := mask(b, "metadata.resourceVersion", "status")
	for _, bc := range []struct {
		name  string
		after []byte
		mask  *object.Mask
		want  bool
	}{
		{"nothing changed", before, status, true},
		{"status changed, masked", ready, status, true},
		{"status changed", ready, nil, false},
		{"spec changed", image, status, false},
	} {
		b.Run(bc.name, func(b *testing.B) {
			b.SetBytes(int64(len(before)))
			b.ReportAllocs()
			for b.Loop() {
				if same, err := object.SameBut(before, bc.after, bc.mask); err != nil || same != bc.want {
					b.Fatal(same, err)
				}
			}
		})
	}
}

func BenchmarkPeek(b *testing.B) {
	raw := sample(b, "pod")
	var h object.Head
	phase, err := object.NewPath("status.phase")
	if err != nil {
		b.Fatal(err)
	}
	for name, f := range map[string]func() error{
		"peek": func() error { return h.Peek(raw) },
		"locate": func() error {
			_, err := object.Locate(raw, phase)
			return err
		},
	} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(raw)))
			b.ReportAllocs()
			for b.Loop() {
				if err := f(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkForm is to be compared with BenchmarkScan and the packing of the same objects: each
// version is read, hashed and packed once.
func BenchmarkForm(b *testing.B) {
	scanner := object.NewScanner(stripped(b))
	for _, name := range samples {
		out, _, err := scanner.Scan(nil, sample(b, name), "", "")
		if err != nil {
			b.Fatal(err)
		}
		codec := object.NewCodec(out)
		ref := object.NewRef(&object.Resource{}, "", "", "")
		b.Run(name+"/form", func(b *testing.B) {
			b.SetBytes(int64(len(out)))
			b.ReportAllocs()
			for b.Loop() {
				object.Form(out)
			}
		})
		b.Run(name+"/pack", func(b *testing.B) {
			b.SetBytes(int64(len(out)))
			for b.Loop() {
				object.New(ref, 1, 0, codec, out)
			}
		})
	}
}
