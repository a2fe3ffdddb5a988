package publish_test

import (
	"testing"

	"github.com/kubecdc/kubecdc/internal/publish"
)

func TestHeaderValues(t *testing.T) {
	for value, want := range map[string]string{
		"":                 "",
		"pods/uid-web-1/7": "pods/uid-web-1/7",
		"!#$&~":            "!#$&~",
		"a b\"c%d":         "a%20b%22c%25d",
		"\x00\r\n\x1f\x7f": "%00%0D%0A%1F%7F",
		"Zürich":           "Z%C3%BCrich",
	} {
		if got := string(publish.AppendHeaderValue([]byte("ce: "), []byte(value))); got != "ce: "+want {
			t.Errorf("%q: got %s, want ce: %s", value, got, want)
		}
	}
}
