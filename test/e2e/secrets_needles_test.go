package e2e_test

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"testing"
)

// window is how much of a value, in a row, is too much.
const window = 16

// haystack finds planted values, or parts of them, in whatever form they are written.
type haystack struct {
	windows map[[window]byte]string // What of which value, in which form.
	values  map[string]bool
}

func newHaystack(values ...string) *haystack {
	h := &haystack{windows: make(map[[window]byte]string), values: make(map[string]bool)}
	for _, v := range values {
		h.plant(v)
	}
	return h
}

// plant adds a value. Of its forms, and of those in base64 inside any other text, each window is looked for.
func (h *haystack) plant(value string) {
	h.values[value] = true
	for form, text := range forms(value) {
		h.add(form, value, text)
		for before := range 3 {
			padded := append(make([]byte, before), text...)
			start, end := (before*8+5)/6, len(padded)*8/6
			for alphabet, encoding := range map[string]*base64.Encoding{"base64": base64.StdEncoding, "base64url": base64.URLEncoding} {
				h.add(alphabet+" of "+form, value, encoding.EncodeToString(padded)[start:end])
			}
		}
	}
}

// forms are the ways to write a value. A Secret's is base64 already when it is read.
func forms(value string) map[string]string {
	quoted, err := json.Marshal(value)
	if err != nil {
		panic(err) // A string.
	}
	twice, err := json.Marshal(string(quoted))
	if err != nil {
		panic(err)
	}
	return map[string]string{
		"text": value, "JSON": strings.Trim(string(quoted), `"`), "JSON in JSON": strings.Trim(string(twice), `"`),
		"URL": url.QueryEscape(value), "URL path": url.PathEscape(value),
		"hexadecimal": hex.EncodeToString([]byte(value)), "base64": base64.StdEncoding.EncodeToString([]byte(value)),
	}
}

func (h *haystack) add(form, value, text string) {
	for i := 0; i+window <= len(text); i++ {
		w := [window]byte([]byte(text[i : i+window]))
		if h.windows[w] == "" {
			h.windows[w] = form + " of " + value
		}
	}
}

// find is what of which value a text has, "" for nothing.
func (h *haystack) find(text []byte) string {
	for i := 0; i+window <= len(text); i++ {
		if found := h.windows[[window]byte(text[i:i+window])]; found != "" {
			return fmt.Sprintf("%s, at byte %d: %.100q", found, i, text[max(0, i-30):])
		}
	}
	return ""
}

// found is which values a text has any part of.
func (h *haystack) found(text []byte) map[string]bool {
	all := make(map[string]bool)
	for i := 0; i+window <= len(text); i++ {
		if f := h.windows[[window]byte(text[i:i+window])]; f != "" {
			all[f[strings.LastIndex(f, " of ")+4:]] = true
		}
	}
	return all
}

// TestHaystack: each form of a value is found, whole, in parts, and inside of something that is base64 itself.
func TestHaystack(t *testing.T) {
	const value = "s3cret \"quoted\" <é> that nobody must see +/="
	h := newHaystack(value)
	other := newHaystack(rand.Text() + rand.Text())
	for form, text := range forms(value) {
		for name, in := range map[string]string{
			"alone": text, "inside": strings.Repeat("x", 100) + text + "y",
			"a part":     text[3 : 3+window],
			"a part of ": "z" + text[len(text)-window:],
			"base64":     base64.StdEncoding.EncodeToString([]byte(`{"a":"` + text + `"}`)),
			"base64url":  base64.RawURLEncoding.EncodeToString([]byte(`{"ab":"` + text + `"}`)),
			"base64, 1":  base64.StdEncoding.EncodeToString([]byte(`{"abc":"` + text + `"}`)),
		} {
			if h.find([]byte(in)) == "" {
				t.Errorf("%s, %s: not found in %.200q", form, name, in)
			}
			if f := other.find([]byte(in)); f != "" {
				t.Errorf("%s, %s: found what is not there: %s", form, name, f)
			}
		}
	}
	if f := h.find([]byte(value[:window-1])); f != "" {
		t.Errorf("found %s in less than a window", f)
	}
}
