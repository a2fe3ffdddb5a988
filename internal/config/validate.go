package config

import (
	"fmt"
	"net"
	"regexp"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kubecdc/kubecdc/internal/bus/http/httpconfig"
	"github.com/kubecdc/kubecdc/internal/config/check"
	"github.com/kubecdc/kubecdc/internal/config/yamldoc"
)

// Validate returns all errors of c as [Errors], or nil. Parse calls it. A Config that was changed
// afterwards can be validated again.
func (c *Config) Validate() error {
	if errs := yamldoc.Errors(c.problems()); len(errs) > 0 {
		return errs
	}
	return nil
}

func (c *Config) problems() []*yamldoc.Error {
	var list field.ErrorList
	root := func(name string) *field.Path { return field.NewPath(name) }
	if c.APIVersion != APIVersion {
		list = append(list, field.Invalid(root("apiVersion"), c.APIVersion, "must be "+APIVersion))
	}
	if !clusterName.MatchString(c.Cluster) {
		list = append(list, field.Invalid(root("cluster"), c.Cluster,
			`must be at most 128 letters, digits, "-", "_" or ".", beginning and ending with a letter or digit`))
	}
	list = append(list, validateWatch(c.Watch, root("watch"))...)
	list = append(list, c.validateNode(root("watch"))...)
	list = append(list, validatePaths(c.Strip, root("strip"), "cut")...)
	list = append(list, validateNoise(c.Noise, root("noise"))...)
	list = append(list, c.Redaction.validate(root("redaction"))...)
	list = append(list, c.validateSnapshot(root("snapshot"))...)
	list = append(list, check.InEnum(root("event").Child("mode"), c.Event.Mode)...)
	list = append(list, inLimit(root("event").Child("maxBytes"), c.Event.MaxBytes)...)
	list = append(list, inLimit(root("queue").Child("events"), yamldoc.Count(c.Queue.Events))...)
	list = append(list, inLimit(root("queue").Child("bytes"), c.Queue.Bytes)...)
	list = append(list, inLimit(root("queue").Child("inFlightBytes"), c.Queue.InFlightBytes)...)
	list = append(list, c.validateBus(root("bus"))...)
	list = append(list, c.validateOversize(root("oversize"))...)
	list = append(list, c.validateClaimCheck(root("claimCheck"))...)
	list = append(list, c.validateDeadLetter(root("deadLetter"))...)
	list = append(list, c.validateRelays(root("relays"))...)
	list = append(list, c.Checkpoint.validate(root("checkpoint"))...)
	if c.Mode == "companion" {
		list = append(list, field.Invalid(root("mode"), c.Mode, "renamed to "+string(ModeCentral)))
	} else {
		list = append(list, check.InEnum(root("mode"), c.Mode)...)
	}
	list = append(list, c.LeaderElection.validate(root("leaderElection"))...)
	list = append(list, c.validatePlaces(root("leaderElection").Child("enabled"))...)
	list = append(list, validateAddress(c.Server.Address, root("server").Child("address"))...)
	list = append(list, check.InEnum(root("log").Child("level"), c.Log.Level)...)
	list = append(list, check.InEnum(root("log").Child("format"), c.Log.Format)...)
	list = append(list, c.Tracing.validate(root("tracing"))...)

	errs := make([]*yamldoc.Error, len(list))
	for i, e := range list {
		errs[i] = &yamldoc.Error{Path: e.Field, Message: e.Detail}
		if e.Type == field.ErrorTypeInvalid {
			errs[i].Message += ", got " + show(e.BadValue)
		}
	}
	return errs
}

// clusterName permits no character that needs escaping in the source of CloudEvents, in partition
// keys or in subjects.
var clusterName = regexp.MustCompile(`^([A-Za-z0-9]([-A-Za-z0-9_.]{0,126}[A-Za-z0-9])?)?$`)

func (c *Config) validateSnapshot(path *field.Path) field.ErrorList {
	list := check.InEnum(path.Child("mode"), c.Snapshot.Mode)
	list = append(list, inLimit(path.Child("unpagedObjects"), c.Snapshot.UnpagedObjects)...)
	every, at := c.Snapshot.Every, path.Child("every")
	age, key := c.expiry()
	switch wrong := inLimit(at, every); {
	case len(wrong) > 0:
		list = append(list, wrong...)
	case every.Duration == 0:
	case c.Snapshot.Mode == SnapshotNever:
		list = append(list, field.Invalid(at, every, "must be 0s if snapshot.mode is never; remove it"))
	case age > 0 && every.Duration >= age:
		list = append(list,
			field.Invalid(at, every, fmt.Sprintf("must be less than %s (%v): otherwise the bus would lose "+
				"objects that do not change; write 0s for never", key, yamldoc.Duration{Duration: age})))
	}
	return list
}

func (c *Checkpoint) validate(path *field.Path) field.ErrorList {
	switch {
	case c.ConfigMap != nil && c.File != nil:
		return field.ErrorList{field.Forbidden(path, "must name one location only, got configMap and file")}
	case c.ConfigMap != nil:
		return c.ConfigMap.validate(path.Child("configMap"))
	case c.File != nil && !check.AbsolutePath.MatchString(c.File.Path):
		return field.ErrorList{field.Invalid(path.Child("file", "path"), c.File.Path,
			"must be an absolute path, such as /var/lib/kubecdc/checkpoint.json: a relative path depends on the working directory")}
	}
	return nil
}

func (m *CheckpointConfigMap) validate(path *field.Path) field.ErrorList {
	var list field.ErrorList
	if !namespaceName.MatchString(m.Namespace) {
		list = append(list,
			field.Invalid(path.Child("namespace"), m.Namespace, "must be the name of a namespace: at most 63 of "+
				`a-z, 0-9 and "-", beginning and ending with a letter or digit`))
	}
	if !subdomain.MatchString(m.Name) {
		list = append(list,
			field.Invalid(path.Child("name"), m.Name, "must be a valid name of a ConfigMap: at most 253 of "+
				`a-z, 0-9, "-" and ".", beginning and ending with a letter or digit`))
	}
	return list
}

var (
	// A namespace is a DNS label, the name of a ConfigMap or a Lease a DNS subdomain (RFC 1123).
	namespaceName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)
	subdomain     = regexp.MustCompile(`^[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?$`)
)

func (l *LeaderElection) validate(path *field.Path) field.ErrorList {
	var list field.ErrorList
	if !subdomain.MatchString(l.Lease) {
		list = append(list,
			field.Invalid(path.Child("lease"), l.Lease, "must be a valid name of a Lease: at most 253 of "+
				`a-z, 0-9, "-" and ".", beginning and ending with a letter or digit`))
	}
	if l.Namespace != "" && !namespaceName.MatchString(l.Namespace) {
		list = append(list,
			field.Invalid(path.Child("namespace"), l.Namespace, "must be the name of a namespace: at most 63 of "+
				`a-z, 0-9 and "-", beginning and ending with a letter or digit`))
	}
	list = append(list, inLimit(path.Child("leaseDuration"), l.LeaseDuration)...)
	list = append(list, inLimit(path.Child("renewDeadline"), l.RenewDeadline)...)
	list = append(list, inLimit(path.Child("retryPeriod"), l.RetryPeriod)...)
	if len(list) > 0 {
		return list
	}
	// The order is that of client-go, with its jitter (leaderelection.NewLeaderElector). A leader
	// that cannot renew must stop before its successor starts.
	if l.RenewDeadline.Duration >= l.LeaseDuration.Duration {
		list = append(list, field.Invalid(path.Child("renewDeadline"), l.RenewDeadline, fmt.Sprintf(
			"must be less than leaseDuration (%v): a leader must stop writing before another one starts",
			l.LeaseDuration)))
	}
	if float64(l.RetryPeriod.Duration)*1.2 >= float64(l.RenewDeadline.Duration) {
		list = append(list, field.Invalid(path.Child("retryPeriod"), l.RetryPeriod, fmt.Sprintf(
			"must be at least a sixth less than renewDeadline (%v), so that the Lease is renewed in time",
			l.RenewDeadline)))
	}
	return list
}

// validatePlaces finds a checkpoint that a successor cannot read.
func (c *Config) validatePlaces(path *field.Path) field.ErrorList {
	switch {
	case !c.LeaderElection.Enabled:
	case c.Mode == ModeNode:
		return field.ErrorList{
			field.Forbidden(path,
				"must be false if mode is node: each node has one agent, and no agent replaces another"),
		}
	case c.Checkpoint.File != nil:
		return field.ErrorList{
			field.Forbidden(path,
				"needs a checkpoint that all replicas can read and write: name a configMap in checkpoint, or leave checkpoint out"),
		}
	}
	return nil
}

func (t *Tracing) validate(path *field.Path) field.ErrorList {
	list := check.Endpoint(t.Endpoint, path.Child("endpoint"))
	if t.Enabled {
		list = append(list, httpconfig.ValidateSecrecy(path, "endpoint", t.Endpoint, t.HeadersFile, "", t.Insecure)...)
	}
	return append(list, httpconfig.ValidateFiles(path, "endpoint", t.Endpoint, t.HeadersFile, "", t.TLS)...)
}

func validateAddress(address string, path *field.Path) field.ErrorList {
	_, port, err := net.SplitHostPort(address)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil {
		return field.ErrorList{field.Invalid(path, address, "must be host:port or :port, with a port from 0 to 65535")}
	}
	return nil
}

// flatten returns the error of a library on one line.
func flatten(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }

// show returns a value for an error: text in quotes, and shortened.
func show(v any) string {
	switch t := v.(type) {
	case string:
		return yamldoc.Quote(t)
	case NamespacePattern:
		return strconv.Quote(yamldoc.Shorten(string(t)))
	}
	return yamldoc.Shorten(fmt.Sprint(v))
}
