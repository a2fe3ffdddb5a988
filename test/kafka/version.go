package kafka

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"time"

	"github.com/kubecdc/kubecdc/internal/versions"
	"github.com/kubecdc/kubecdc/test/process"
	"github.com/kubecdc/kubecdc/test/wait"
)

// VersionEnv names the variable with the version of Kafka that all clusters have: "3.9.1". Empty:
// that of testdata/pom.xml.
const VersionEnv = "KUBECDC_KAFKA_VERSION"

var pinnedVersion = regexp.MustCompile(`<artifactId>kafka_2.13</artifactId>\s*<version>([^<]+)</version>`)

// Version returns the version of Kafka.
func Version() string {
	return cmp.Or(os.Getenv(VersionEnv), string(pinnedVersion.FindSubmatch(pinned)[1]))
}

// IsPinned reports whether clusters have the version of testdata/pom.xml. Only with it can they
// have Options.Secure: others name their classes otherwise, and some have no SCRAM.
func IsPinned() bool { return os.Getenv(VersionEnv) == "" }

// pom returns the project with the jars of the version.
func pom() []byte {
	was := pinnedVersion.FindSubmatch(pinned)[1]
	return bytes.ReplaceAll(pinned, fmt.Appendf(nil, "<version>%s</version>", was),
		fmt.Appendf(nil, "<version>%s</version>", Version()))
}

// checkpoint returns the name of the file in a data directory with the features that a cluster
// begins with. Since 4.4 it is a snapshot of the log of metadata (KIP-1170).
func checkpoint() string {
	if versions.IsBefore(Version(), "4.4") {
		return bootstrap
	}
	return filepath.Join("__cluster_metadata-0", "00000000000000000000-0000000000.checkpoint")
}

// hasZooKeeper reports whether a cluster needs a ZooKeeper. KRaft is fit for production since 3.3,
// and that of 2.8 has no idempotent producers.
func hasZooKeeper() bool { return versions.IsBefore(Version(), "3.3") }

// zooKeeper is the ZooKeeper of a cluster: one process, which no test kills.
type zooKeeper struct {
	addr  string
	child *process.Child
}

// startZooKeeper returns when it accepts connections.
func (c *Cluster) startZooKeeper(ctx context.Context) (_ *zooKeeper, err error) {
	dir := filepath.Join(c.dir, "zookeeper")
	tmp := filepath.Join(dir, "tmp")
	if err := os.MkdirAll(tmp, 0o700); err != nil {
		return nil, fmt.Errorf("data directory: %w", err)
	}
	port, err := process.FreePort(ctx)
	if err != nil {
		return nil, err
	}
	config := filepath.Join(dir, "zookeeper.properties")
	text := properties(map[string]string{
		"dataDir": filepath.Join(dir, "data"), "clientPort": strconv.Itoa(port), "clientPortAddress": "127.0.0.1",
		"maxClientCnxns": "0", "admin.enableServer": "false", "tickTime": "500",
	})
	if err := os.WriteFile(config, text, 0o600); err != nil {
		return nil, fmt.Errorf("configuration of ZooKeeper: %w", err)
	}
	argv := append(c.in.java(tmp), "org.apache.zookeeper.server.quorum.QuorumPeerMain", config)
	z := &zooKeeper{addr: fmt.Sprint("127.0.0.1:", port)}
	z.child, err = process.Start(process.Spec{Name: "ZooKeeper", Argv: argv, Log: filepath.Join(dir, "log")})
	if err != nil {
		return nil, err
	}
	err = wait.For(ctx, readyTimeout, func() error {
		conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", z.addr)
		if err != nil {
			return err
		}
		return conn.Close()
	})
	if err != nil {
		z.child.Kill()
		return nil, z.child.Failed(err)
	}
	return z, nil
}

// configure changes the configuration of a node to that of a broker with a ZooKeeper.
func (z *zooKeeper) configure(config map[string]string) {
	config["broker.id"] = config["node.id"]
	config["zookeeper.connect"] = z.addr
	config["zookeeper.session.timeout.ms"] = "6000"
	config["zookeeper.connection.timeout.ms"] = "60000" // by default the former, which is short on a busy machine
	for _, name := range []string{"process.roles", "node.id", "controller.listener.names", "controller.quorum.voters"} {
		delete(config, name)
	}
}
