package main

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/nats-io/nats.go"
)

// asStranger makes this test binary a process that attacks the bus at a URL, whose directory
// follows a space.
const asStranger = "KUBECDC_TEST_STRANGER"

// stranger is the uid of that process.
const stranger = 65534

// attack tries to forge a record, to purge the stream and to read it, with every secret that files
// below the directory have for this user. It prints what succeeded.
func attack(url, dir string) {
	tokens := []string{"", "kubecdc"}
	_ = filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return nil //nolint:nilerr // another directory may be readable
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return nil //nolint:nilerr // another file may be readable
		}
		fmt.Println("read", path)
		var bus struct{ Token string }
		if json.Unmarshal(text, &bus) == nil && bus.Token != "" {
			tokens = append(tokens, bus.Token)
		}
		return nil
	})
	for _, token := range tokens {
		conn, err := nats.Connect(url, nats.Token(token), nats.Timeout(5*time.Second))
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			continue
		}
		fmt.Println("connected")
		if _, err := conn.Request("kubecdc."+uidA+".object.core.configmaps.shop.forged", []byte("{}"),
			5*time.Second); err == nil {
			fmt.Println("forged a record")
		}
		if r, err := conn.Request("$JS.API.STREAM.PURGE.KUBECDC", nil, 5*time.Second); err == nil {
			fmt.Println("purged the stream:", string(r.Data))
		}
		if r, err := conn.Request("$JS.API.STREAM.MSG.GET.KUBECDC", []byte(`{"seq":1}`), 5*time.Second); err == nil {
			fmt.Println("read the stream:", string(r.Data))
		}
		conn.Close()
	}
}
