package oracle

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
)

// window is the number of consecutive bytes of a value that count as a leak.
const window = 16

// Haystack finds planted values, or parts of them, in plain or encoded form.
type Haystack struct {
	windows map[[window]byte]string // The form and the value that each window comes from.
	Values  map[string]bool
}

// NewHaystack returns a haystack that finds the values.
func NewHaystack(values ...string) *Haystack {
	h := &Haystack{windows: make(map[[window]byte]string), Values: make(map[string]bool)}
	for _, v := range values {
		h.Plant(v)
	}
	return h
}

// Plant adds a value. Find looks for each window of its forms, and of the forms in base64 at any
// offset.
func (h *Haystack) Plant(value string) {
	h.Values[value] = true
	for form, text := range forms(value) {
		h.add(form, value, text)
		for before := range 3 {
			padded := append(make([]byte, before), text...)
			start, end := (before*8+5)/6, len(padded)*8/6
			for alphabet, encoding := range map[string]*base64.Encoding{
				"base64":    base64.StdEncoding,
				"base64url": base64.URLEncoding,
			} {
				h.add(alphabet+" of "+form, value, encoding.EncodeToString(padded)[start:end])
			}
		}
	}
}

// forms returns the value in each form. The API server returns the values of a Secret in base64.
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

func (h *Haystack) add(form, value, text string) {
	for i := 0; i+window <= len(text); i++ {
		w := [window]byte([]byte(text[i : i+window]))
		if h.windows[w] == "" {
			h.windows[w] = form + " of " + value
		}
	}
}

// Find describes the first window of a planted value in the text. It returns "" if there is none.
func (h *Haystack) Find(text []byte) string {
	for i := 0; i+window <= len(text); i++ {
		if found := h.windows[[window]byte(text[i:i+window])]; found != "" {
			return fmt.Sprintf("%s, at byte %d: %.100q", found, i, text[max(0, i-30):])
		}
	}
	return ""
}

// Found returns the values that share a window with the text.
func (h *Haystack) Found(text []byte) map[string]bool {
	all := make(map[string]bool)
	for i := 0; i+window <= len(text); i++ {
		if f := h.windows[[window]byte(text[i:i+window])]; f != "" {
			all[f[strings.LastIndex(f, " of ")+4:]] = true
		}
	}
	return all
}
