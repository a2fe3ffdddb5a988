package kafka_test

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	kafkago "github.com/segmentio/kafka-go"

	"github.com/kubecdc/kubecdc/test/build"
	"github.com/kubecdc/kubecdc/test/wait"
)

// relayLog is the log of a relay.
type relayLog struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *relayLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *relayLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// begunAnew returns how often the relay started a partition over.
func (l *relayLog) begunAnew(partition int) (n int) {
	for line := range strings.Lines(l.String()) {
		if strings.Contains(line, "log was recreated or restored") &&
			strings.Contains(line, fmt.Sprintf(`"partition":%d,`, partition)) {
			n++
		}
	}
	return n
}

var (
	serverAddress = regexp.MustCompile(`"server_address":"([^"]+)"`)
	cursorSaved   = regexp.MustCompile(`(?m)^kubecdc_relay_cursor_saved_timestamp_seconds\{.*\} (\S+)$`)
)

// cursorSaved returns when the cursor was last saved, or last found to be still the relay's own.
func (p *relayProcess) cursorSaved(t *testing.T) (unix float64, err error) {
	address := serverAddress.FindStringSubmatch(p.stderr.String())
	if address == nil {
		return 0, errors.New("no address of its server in the log")
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address[1]+"/metrics", nil)
	if err != nil {
		return 0, err
	}
	req.Close = true
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		return 0, err
	}
	m := cursorSaved.FindSubmatch(text)
	if m == nil {
		return 0, errors.New("no metric of the cursor")
	}
	return strconv.ParseFloat(string(m[1]), 64)
}

// A topic is deleted and created again while a relay runs, and one of its partitions stays empty.
// The relay starts that partition over once, not repeatedly. It delivers records that are written
// there later, as does a relay that is started later.
func TestRelayOfATopicThatIsMadeAnew(t *testing.T) {
	t.Parallel()
	const relayed = "anew.prod"
	c := lasting.get(t)
	const partitions = 2
	if err := c.CreateTopic(t.Context(), relayed, partitions, nil); err != nil {
		t.Fatal(err)
	}
	put := func(partition, from, to int) {
		t.Helper()
		var ms []kafkago.Message
		for rv := from; rv < to; rv++ {
			ms = append(ms, relayEvent("object.updated", "web", rv))
		}
		wait.Eventually(t, time.Minute, func() error {
			conn, err := kafkago.DialLeader(t.Context(), "tcp", c.Inside()[0], relayed, partition)
			if err != nil {
				return err
			}
			defer conn.Close()
			_, err = conn.WriteMessages(ms...)
			return err
		})
	}
	delivered := func(p *relayProcess, from, to int) {
		t.Helper()
		wait.Eventually(t, time.Minute, func() error {
			ids := p.objects()
			for rv := from; rv < to; rv++ {
				if !ids[fmt.Sprint("configmaps/web/", rv)] {
					return fmt.Errorf("version %d has not been delivered", rv)
				}
			}
			return nil
		})
	}
	binary := build.SharedAgent(t)
	file := filepath.Join(t.TempDir(), "kubecdc.yaml")
	if err := os.WriteFile(file, fmt.Appendf(nil, `apiVersion: kubecdc.dev/v1
cluster: prod
bus: {kafka: {brokers: ["%s"], topic: "anew.{cluster}"}}
server: {address: "127.0.0.1:0"}
log: {format: json}
relays: [{name: anew, start: beginning, to: {stdout: {}}}]
`, c.Inside()[0]), 0o600); err != nil {
		t.Fatal(err)
	}

	put(0, 0, 5)
	put(1, 5, 10)
	first := startRelay(t, binary, "--config", file)
	delivered(first, 0, 10)
	client := &kafkago.Client{Addr: kafkago.TCP(c.Inside()...), Transport: new(kafkago.Transport)}
	t.Cleanup(client.Transport.(*kafkago.Transport).CloseIdleConnections)
	wait.Eventually(t, time.Minute, func() error {
		res, err := client.OffsetFetch(t.Context(), &kafkago.OffsetFetchRequest{
			GroupID: "kubecdc-relay-anew",
			Topics:  map[string][]int{relayed: {0, 1}},
		})
		if err != nil {
			return err
		}
		for _, p := range res.Topics[relayed] {
			if p.CommittedOffset != 5 {
				return fmt.Errorf("offset of partition %d: %d", p.Partition, p.CommittedOffset)
			}
		}
		return nil
	})

	deleteTopic(t, c, relayed)
	wait.Eventually(t, time.Minute, func() error { return c.CreateTopic(t.Context(), relayed, partitions, nil) })
	put(0, 10, 13)
	delivered(first, 10, 13)
	wait.Eventually(t, time.Minute, func() error {
		if first.stderr.begunAnew(1) == 0 {
			return errors.New("the log does not say that partition 1 has been begun anew")
		}
		return nil
	})
	// The offset of an idle partition must not come back, though the relay checks its cursor every
	// 10 s.
	var begun float64
	wait.Eventually(t, time.Minute, func() error {
		saved, err := first.cursorSaved(t)
		begun = cmp.Or(begun, saved)
		if err == nil && saved < begun+15 {
			return fmt.Errorf("the relay looked after its cursor %g s behind its beginning", saved-begun)
		}
		return err
	})
	first.end(syscall.SIGTERM)
	if n := first.stderr.begunAnew(1); n != 1 {
		t.Errorf("partition 1 was begun anew %d times", n)
	}
	put(1, 13, 21)
	second := startRelay(t, binary, "--config", file)
	delivered(second, 13, 21)
}
