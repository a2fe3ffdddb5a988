package image_test

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
)

// dockerfile returns the settings of the image that the last stage of the Dockerfile builds. It
// supports only the instructions that are there; image/rootfs selects the files for both recipes.
func dockerfile(t *testing.T) settings {
	t.Helper()
	b, err := os.ReadFile("../../Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	s := settings{ExposedPorts: map[string]struct{}{}, Labels: map[string]string{}}
	args := strings.NewReplacer("$VERSION", version, "$COMMIT", commit)
	last, files := false, 0
	for line := range strings.Lines(strings.ReplaceAll(string(b), "\\\n", " ")) {
		name, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		if name == "FROM" {
			last = rest == "scratch"
			continue
		}
		if !last {
			if name == "RUN" && strings.Contains(rest, "/rootfs-tool /kubecdc LICENSE /rootfs") {
				files++
			}
			continue
		}
		switch name {
		case "", "#", "ARG":
		case "COPY":
			if rest != "--from=build --chown=0:0 /rootfs /" {
				t.Errorf("Dockerfile: COPY %s: want what image/rootfs has written, and nothing else", rest)
			}
			files++
		case "ENV":
			s.Env = append(s.Env, rest)
		case "LABEL":
			key, value, _ := strings.Cut(rest, "=")
			s.Labels[key] = args.Replace(strings.Trim(value, `"`))
		case "USER":
			s.User = rest
		case "EXPOSE":
			s.ExposedPorts[rest] = struct{}{}
		case "ENTRYPOINT":
			err = json.Unmarshal([]byte(rest), &s.Entrypoint)
		case "CMD":
			err = json.Unmarshal([]byte(rest), &s.Cmd)
		default:
			t.Errorf("Dockerfile: the image would have %s %s", name, rest)
		}
		if err != nil {
			t.Errorf("Dockerfile: %s: %v", line, err)
		}
	}
	if files != 2 {
		t.Errorf("Dockerfile: %d of 2 steps that make the root file system", files)
	}
	return s
}

// TestDockerfile reads the Dockerfile, for machines on which no image is built.
func TestDockerfile(t *testing.T) {
	s := dockerfile(t)
	if s.User != "65532:65532" || len(s.Entrypoint) != 1 || len(s.Labels) != 7 ||
		s.Labels["org.opencontainers.image.revision"] != commit {
		t.Errorf("%+v", s)
	}
}
