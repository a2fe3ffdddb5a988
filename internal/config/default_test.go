package config_test

import (
	"errors"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubecdc/kubecdc/internal/config"
)

const defaultFile = "../../configs/kubecdc.yaml"

func readDefault(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(defaultFile)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestDefaultFile: the commented default says what Default says.
func TestDefaultFile(t *testing.T) {
	got, err := config.Load(defaultFile)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(config.Default(), got); diff != "" {
		t.Errorf("%s (-Default +file):\n%s", defaultFile, diff)
	}
}

// TestDefaultFileNotYet: the lines marked "not yet" are all the keys that are refused so, each in its place.
func TestDefaultFileNotYet(t *testing.T) {
	commented := regexp.MustCompile(`(?m)^( *)# (.*?) +# not yet$`)
	text := commented.ReplaceAllString(readDefault(t), "$1$2")
	_, err := config.Parse([]byte(text), "uncommented")
	var errs config.Errors
	if !errors.As(err, &errs) {
		t.Fatalf("got %v", err)
	}
	var got []string
	for _, e := range errs {
		if !strings.HasPrefix(e.Message, "not yet supported: ") {
			t.Errorf("another error: %v", e)
		}
		got = append(got, strings.ReplaceAll(e.Path, "[0]", "[]"))
	}
	var want []string
	for _, p := range config.PlannedKeys() {
		if p.Value == "" {
			want = append(want, p.Path)
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("refused as not yet supported (-known +documented):\n%s", diff)
	}
}
