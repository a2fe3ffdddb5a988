// Command rootfs writes the root file system of the image: the one list of what goes into it, for `make image` and for the
// Dockerfile.
//
//	rootfs BINARY LICENSE DIRECTORY
//
// The same arguments and the same versions of this module's dependencies give the same tree, to the byte. The certificates of
// public authorities are those of Mozilla as golang.org/x/crypto/x509roots has them: a module is pinned in go.mod and checked
// against go.sum, a distribution's package is whatever its mirror has today.
package main

import (
	"bytes"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// User is who the agent runs as.
const user = 65532

func main() {
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "usage: rootfs BINARY LICENSE DIRECTORY")
		os.Exit(2)
	}
	if err := write(os.Args[1], os.Args[2], os.Args[3]); err != nil {
		fmt.Fprintln(os.Stderr, "rootfs:", err)
		os.Exit(1)
	}
}

// file is one file of the image; directories above it belong to root and have mode 0755.
type file struct {
	path    string
	mode    fs.FileMode
	content []byte
}

func write(binary, license, dir string) error {
	agent, err := os.ReadFile(binary)
	if err != nil {
		return err
	}
	text, err := os.ReadFile(license)
	if err != nil {
		return err
	}
	roots, err := authorities()
	if err != nil {
		return err
	}
	files := []file{
		{"kubecdc", 0o755, agent},
		{"licenses/LICENSE", 0o644, text},
		{"etc/ssl/certs/ca-certificates.crt", 0o644, roots},
		// Names for the numbers, for tools that look them up.
		{"etc/passwd", 0o644, fmt.Appendf(nil, "root:x:0:0:root:/:/sbin/nologin\nnonroot:x:%d:%d:nonroot:/:/sbin/nologin\n", user, user)},
		{"etc/group", 0o644, fmt.Appendf(nil, "root:x:0:\nnonroot:x:%d:\n", user)},
	}
	if err := os.Mkdir(dir, 0o755); err != nil { // not one that has other things in it
		return err
	}
	for _, f := range files {
		if err := f.write(dir); err != nil {
			return err
		}
	}
	return nil
}

// write does not go by the umask.
func (f *file) write(dir string) error {
	path := filepath.Join(dir, filepath.FromSlash(f.path))
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	for at := filepath.Dir(path); len(at) >= len(dir); at = filepath.Dir(at) {
		if err := os.Chmod(at, 0o755); err != nil {
			return err
		}
	}
	if err := os.WriteFile(path, f.content, f.mode); err != nil {
		return err
	}
	return os.Chmod(path, f.mode)
}

// authorities are the certificates of public authorities, as PEM. One that is trusted under a condition (for certificates from
// before some day) is left out: a file cannot say so, and would have it trusted without.
func authorities() ([]byte, error) {
	var b bytes.Buffer
	n := 0
	for root := range bundle.Roots() {
		if root.Constraint != nil {
			continue
		}
		if err := pem.Encode(&b, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}); err != nil {
			return nil, err
		}
		n++
	}
	if n < 50 {
		return nil, errors.New("there are too few authorities: see golang.org/x/crypto/x509roots")
	}
	return b.Bytes(), nil
}
