package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubecdc/kubecdc/test/build"
)

// TestImagesAreCurrent draws every image again, with the current binary.
func TestImagesAreCurrent(t *testing.T) {
	if testing.Short() {
		t.Skip("builds and runs the agent")
	}
	binary := build.Agent(t)
	for _, s := range shots() {
		t.Run(s.file, func(t *testing.T) {
			want, err := os.ReadFile(filepath.Join("..", "..", "docs", "images", s.file))
			if err != nil {
				t.Fatal(err)
			}
			got, err := s.draw(t.Context(), binary, "testdata")
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), string(got)); diff != "" {
				t.Errorf(
					"docs/images/%s is not what the command shows now: look at it, then run 'make screenshots' (-file +command):\n%s",
					s.file, diff)
			}
		})
	}
}

// TestImagesStandAlone checks that GitHub can show the images: SVG without scripts and without
// external references.
func TestImagesStandAlone(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("..", "..", "docs", "images", "*.svg"))
	if err != nil || len(files) < len(shots()) {
		t.Fatalf("%d images, want %d or more; error %v", len(files), len(shots()), err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		d := xml.NewDecoder(bytes.NewReader(text))
		for {
			token, err := d.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			element, ok := token.(xml.StartElement)
			if !ok {
				continue
			}
			switch element.Name.Local {
			case "svg", "title", "style", "rect", "path", "circle", "text":
			default:
				t.Errorf("%s: element <%s>", file, element.Name.Local)
			}
			for _, a := range element.Attr {
				if a.Name.Local == "href" || strings.HasPrefix(a.Name.Local, "on") ||
					strings.Contains(a.Value, "url(") {
					t.Errorf("%s: attribute %s=%q", file, a.Name.Local, a.Value)
				}
			}
		}
		if bytes.Contains(text, []byte("@import")) || bytes.Contains(text, []byte("@font-face")) {
			t.Errorf("%s: loads a style or a font", file)
		}
	}
}
