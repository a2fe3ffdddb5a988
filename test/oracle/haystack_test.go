package oracle

import (
	"crypto/rand"
	"encoding/base64"
	"strings"
	"testing"
)

// TestHaystack checks that each form of a value is found: whole, in parts, and inside other base64
// text.
func TestHaystack(t *testing.T) {
	const value = "s3cret \"quoted\" <é> that nobody must see +/="
	h := NewHaystack(value)
	other := NewHaystack(rand.Text() + rand.Text())
	for form, text := range forms(value) {
		for name, in := range map[string]string{
			"alone": text, "inside": strings.Repeat("x", 100) + text + "y",
			"a part":     text[3 : 3+window],
			"a part of ": "z" + text[len(text)-window:],
			"base64":     base64.StdEncoding.EncodeToString([]byte(`{"a":"` + text + `"}`)),
			"base64url":  base64.RawURLEncoding.EncodeToString([]byte(`{"ab":"` + text + `"}`)),
			"base64, 1":  base64.StdEncoding.EncodeToString([]byte(`{"abc":"` + text + `"}`)),
		} {
			if h.Find([]byte(in)) == "" {
				t.Errorf("%s, %s: not found in %.200q", form, name, in)
			}
			if f := other.Find([]byte(in)); f != "" {
				t.Errorf("%s, %s: found what is not there: %s", form, name, f)
			}
		}
	}
	if f := h.Find([]byte(value[:window-1])); f != "" {
		t.Errorf("found %s in less than a window", f)
	}
}
