package config_test

import (
	"os"
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
