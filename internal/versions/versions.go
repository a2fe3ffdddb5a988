package versions

import (
	"fmt"
	"strconv"
	"strings"
)

// Server is a kind of server that the agent works with. Versions are minors: "1.29".
type Server struct {
	Name     string   // as in documents
	Required string   // the oldest version that is meant to work
	Tested   []string // ascending; of each, the tests run with the newest patch
	Losses   []Loss   // what versions lose that are meant to work otherwise
}

// Loss is a fault of servers by which acknowledged records get lost.
type Loss struct {
	Before string // the first version without it
	What   string // the lost records, as in documents
}

// Kubernetes returns the row of the API server.
func Kubernetes() Server {
	return Server{
		Name:     "Kubernetes",
		Required: "1.29",
		Tested:   []string{"1.33", "1.34", "1.35", "1.36", "1.37"},
	}
}

// NATS returns the row of nats-server.
//
// Versions before the required one have no consumers with several filters, and answer other
// requests of readers differently.
//
// The loss: each replica compares its own size with its own limit. If the stream is full, a replica
// may reject what the leader has accepted, and lead later.
func NATS() Server {
	return Server{
		Name:     "nats-server",
		Required: "2.10",
		Tested:   []string{"2.10", "2.11", "2.12", "2.14", "2.15"},
		Losses:   []Loss{{Before: "2.14", What: "acknowledged records of a full stream with several replicas"}},
	}
}

// Kafka returns the row of Apache Kafka. A broker does not say its version: see [OldKafka].
func Kafka() Server {
	return Server{
		Name:     "Apache Kafka",
		Required: "2.5",
		Tested:   []string{"2.8", "3.3", "3.9", "4.0", "4.3", "4.4"},
	}
}

// OldKafka is what is known of a broker without topic ids, which Kafka has had since 2.8.
const OldKafka = "before 2.8"

// Range returns the tested versions: "1.33 to 1.37".
func (s Server) Range() string { return s.Tested[0] + " to " + s.Tested[len(s.Tested)-1] }

// IsUntested reports whether a version is older than all tested ones. An unknown version is not.
func (s Server) IsUntested(version string) bool { return IsBefore(version, s.Tested[0]) }

// Unsupported returns an error if a version is below the required one. An unknown version is not.
func (s Server) Unsupported(version string) error {
	if IsBefore(version, s.Required) {
		return fmt.Errorf("%s %s is too old: use %s or later on all servers", s.Name, version, s.Required)
	}
	return nil
}

// Loses reports whether a version has a Loss. An unknown version has none.
func (s Server) Loses(version string) bool {
	for _, l := range s.Losses {
		if IsBefore(version, l.Before) {
			return true
		}
	}
	return false
}

// IsBefore reports whether a version is below a minor, for example "1.33". It ignores what follows
// the minor of the version. An unknown version is below none.
func IsBefore(version, minor string) bool {
	x, y, isKnown := parse(version)
	ofMajor, ofMinor, _ := parse(minor)
	return isKnown && (x < ofMajor || x == ofMajor && y < ofMinor)
}

// parse returns the first two numbers of a version: 1 and 33 of "v1.33.13+k3s1". An API server that
// was built without a version says "v0.0.0-master".
func parse(version string) (major, minor int, isKnown bool) {
	first, rest, _ := strings.Cut(strings.TrimPrefix(version, "v"), ".")
	second, _, _ := strings.Cut(rest, ".")
	major, err := strconv.Atoi(first)
	if err != nil {
		return 0, 0, false
	}
	minor, err = strconv.Atoi(strings.TrimRight(second, "+"))
	return major, minor, err == nil && major > 0
}
