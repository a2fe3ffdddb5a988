package main

import (
	"os"
	"regexp"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/kubecdc/kubecdc/internal/config"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"kubecdc": main})
}

// Each file is a session at a terminal.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{Dir: "testdata/script", RequireExplicitExec: true})
}

// The configuration that README shows has to be one.
func TestReadmeConfiguration(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllSubmatch(readme, -1)
	if len(blocks) == 0 {
		t.Fatal("README shows no configuration")
	}
	for _, b := range blocks {
		if _, err := config.Parse(b[1], "README.md"); err != nil {
			t.Error(err)
		}
	}
}
