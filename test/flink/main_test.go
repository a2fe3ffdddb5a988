package flink_test

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"
	"k8s.io/klog/v2"

	"github.com/kubecdc/kubecdc/test/build"
	"github.com/kubecdc/kubecdc/test/kit"
	"github.com/kubecdc/kubecdc/test/suite"
)

func TestMain(m *testing.M) {
	if err := suite.Begin(1); err != nil {
		panic(err)
	}
	// Messages of client-go about requests that end with their test are of no interest.
	klog.SetSlogLogger(slog.New(slog.DiscardHandler))
	goleak.VerifyTestMain(suite.Tests(func() int {
		defer build.Remove()
		return m.Run()
	}))
}

// flink is Flink with its connector for Kafka, and what that needs to read zstd: 350 MB.
var flink = kit.Kit{
	Name:  "flink",
	Needs: [][]string{{"python3", "-c", "import ensurepip, venv"}, {"java", "-version"}, {"mvn", "-version"}},
	Pins:  []string{"testdata/requirements.txt"},
	Steps: [][]string{
		{"python3", "-m", "venv", "venv"},
		{
			"venv/bin/pip", "install", "--quiet", "--disable-pip-version-check", "--no-cache-dir", "--no-deps", "-r",
			"requirements.txt",
		},
		jar("org.apache.flink:flink-sql-connector-kafka:4.0.1-2.0"),
		jar("com.github.luben:zstd-jni:1.5.6-10"),
	},
}

func jar(artifact string) []string {
	return []string{
		"mvn", "-q", "-B", "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy", "-Dartifact=" + artifact,
		"-DoutputDirectory=jars",
	}
}

// classPath returns the class path of Flink, and installs it for the first test.
func classPath(t *testing.T) string {
	t.Helper()
	dir := flink.Dir(t)
	libs, err := filepath.Glob(filepath.Join(dir, "venv", "lib", "python3*", "site-packages", "pyflink", "lib"))
	if err != nil || len(libs) != 1 {
		t.Fatalf("the jars of Flink: %v, %v", libs, err)
	}
	return filepath.Join(libs[0], "*") + string(os.PathListSeparator) + filepath.Join(dir, "jars", "*")
}
