// Command rootfs writes the root file system of the image. It has the only list of the image's
// files, for `make image` and for the Dockerfile.
//
//	rootfs BINARY LICENSE DIRECTORY
//
// The same arguments and the same versions of this module's dependencies give the same tree, to the
// byte. The certificates of public authorities are Mozilla's, from golang.org/x/crypto/x509roots.
// That module is pinned in go.mod and checked against go.sum. A distribution's package would change
// with its mirror.
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

// user is the user and group ID that the agent runs as.
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
		// Names of the IDs, for tools that look them up.
		{
			"etc/passwd", 0o644,
			fmt.Appendf(nil, "root:x:0:0:root:/:/sbin/nologin\nnonroot:x:%d:%d:nonroot:/:/sbin/nologin\n", user, user),
		},
		{"etc/group", 0o644, fmt.Appendf(nil, "root:x:0:\nnonroot:x:%d:\n", user)},
	}
	if err := os.Mkdir(dir, 0o755); err != nil { // fails if dir exists, since it may contain other files
		return err
	}
	for _, f := range files {
		if err := f.write(dir); err != nil {
			return err
		}
	}
	return nil
}

// write writes the file and its directories with their modes, whatever the umask is.
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

// authorities returns the certificates of public authorities, as PEM. It omits those that are
// trusted under a condition (such as an issue date), because a file cannot express the condition.
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
