package world

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"
)

// largeSizes are lengths of texts in ConfigMaps, for a limit of 128 KiB per event. An event has the
// text up to three times, in before, after and patch. The limit allows that three times, twice,
// once, or not at all. An API server accepts up to 1 MiB.
var largeSizes = []int{500, 46 << 10, 100 << 10, 300 << 10, 900 << 10}

// Noise returns a text that hardly compresses.
func Noise(size int) string {
	var b strings.Builder
	for b.Len() < size {
		b.WriteString(rand.Text())
	}
	return b.String()
}

// Large is one step of a writer of ConfigMaps. Many of them are too large for the bus.
func (w *Writer) Large(ctx context.Context) error {
	all := Collection("configmaps", w.Namespace)
	name := w.Name()
	uri := all + "/" + name
	w.N++
	text := Noise(largeSizes[w.RNG.IntN(len(largeSizes))])
	cm := obj{"apiVersion": "v1", "kind": "ConfigMap", "metadata": Meta(name), "data": obj{"text": text}}
	var err error
	switch w.RNG.IntN(8) {
	case 0, 1, 2:
		_, err = w.API.Create(ctx, all, cm)
	case 3:
		_, err = w.API.Replace(ctx, uri, cm)
	case 4, 5, 6: // A small change of an object that may be large.
		_, err = w.API.MergePatch(ctx, uri, obj{"data": obj{"step": fmt.Sprint(w.N)}})
	case 7:
		err = w.API.Remove(ctx, uri)
	}
	return err
}
