package config

import (
	"fmt"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Validate returns everything that is wrong with c as [Errors], or nil. It needs no file: what Parse returns has passed
// it, and a Config that was changed afterwards can be passed through it again.
func (c *Config) Validate() error {
	if errs := Errors(c.problems()); len(errs) > 0 {
		return errs
	}
	return nil
}

func (c *Config) problems() []*Error {
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
	list = append(list, validateStrip(c.Strip, root("strip"))...)
	list = append(list, c.Redaction.validate(root("redaction"))...)
	list = append(list, c.validateSnapshot(root("snapshot"))...)
	list = append(list, inEnum(root("event").Child("mode"), c.Event.Mode)...)
	list = append(list, inLimit(root("event").Child("maxBytes"), c.Event.MaxBytes)...)
	list = append(list, inLimit(root("queue").Child("events"), count(c.Queue.Events))...)
	list = append(list, inLimit(root("queue").Child("bytes"), c.Queue.Bytes)...)
	list = append(list, c.validateBus(root("bus"))...)
	list = append(list, c.validateOversize(root("oversize"))...)
	list = append(list, c.validateClaimCheck(root("claimCheck"))...)
	list = append(list, c.validateDeadLetter(root("deadLetter"))...)
	list = append(list, c.validateRelays(root("relay"))...)
	list = append(list, c.Checkpoint.validate(root("checkpoint"))...)
	list = append(list, inEnum(root("mode"), c.Mode)...)
	list = append(list, c.LeaderElection.validate(root("leaderElection"))...)
	list = append(list, c.validatePlaces(root("leaderElection").Child("enabled"))...)
	list = append(list, validateAddress(c.Server.Address, root("server").Child("address"))...)
	list = append(list, inEnum(root("log").Child("level"), c.Log.Level)...)
	list = append(list, inEnum(root("log").Child("format"), c.Log.Format)...)
	list = append(list, c.Tracing.validate(root("tracing"))...)

	errs := make([]*Error, len(list))
	for i, e := range list {
		errs[i] = &Error{Path: e.Field, Message: e.Detail}
		if e.Type == field.ErrorTypeInvalid {
			errs[i].Message += ", got " + show(e.BadValue)
		}
	}
	return errs
}

// clusterName leaves out what would have to be escaped somewhere: it is part of CloudEvents' source, of the partition
// key and of subjects.
var clusterName = regexp.MustCompile(`^([A-Za-z0-9]([-A-Za-z0-9_.]{0,126}[A-Za-z0-9])?)?$`)

func validateWatch(rules []Rule, path *field.Path) field.ErrorList {
	var list field.ErrorList
	if len(rules) == 0 {
		return append(list, field.Required(path, "must have at least one rule, such as {resources: [pods]}"))
	}
	for j := range rules {
		r, at := &rules[j], path.Index(j)
		if len(r.Resources) == 0 {
			list = append(list, field.Required(at.Child("resources"), "must name at least one resource, such as pods"))
		}
		list = append(list, r.validateScope(at.Child("resources"))...)
		list = append(list, unique(r.Resources, at.Child("resources"))...)
		list = append(list, unique(r.Except, at.Child("except"))...)
		list = append(list, unique(r.Namespaces, at.Child("namespaces"))...)
		list = append(list, r.Namespaces.validate(at.Child("namespaces"))...)
		if _, err := labels.Parse(r.LabelSelector); err != nil {
			list = append(list, field.Invalid(at.Child("labelSelector"), r.LabelSelector,
				"must be a label selector such as team=payments or \"tier in (web, db)\": "+flatten(err)))
		}
		if _, err := fields.ParseSelector(r.FieldSelector); err != nil {
			list = append(list, field.Invalid(at.Child("fieldSelector"), r.FieldSelector,
				"must be a field selector such as spec.nodeName=n1 or status.phase!=Running: "+flatten(err)))
		}
		list = append(list, validateOrder(rules, j, path)...)
	}
	return list
}

// validate finds that nothing is left.
func (n Namespaces) validate(path *field.Path) field.ErrorList {
	excludes := func(p NamespacePattern) bool { return strings.HasPrefix(string(p), "!") }
	if len(n) == 0 || slices.ContainsFunc(n, func(p NamespacePattern) bool { return !excludes(p) }) {
		return nil
	}
	return field.ErrorList{field.Required(path, `can never match: it only excludes; add "*" for all the others`)}
}

// validateScope finds resources without namespaces in a rule for some namespaces only.
func (r *Rule) validateScope(path *field.Path) field.ErrorList {
	var list field.ErrorList
	for i, p := range r.Resources {
		b := builtinOf(p.Resource)
		if b != nil && b.cluster && slices.Equal(p.Groups(), b.groups) && !r.Namespaces.Match("") {
			list = append(list, field.Forbidden(path.Index(i), fmt.Sprintf(
				"can never match: %s have no namespace, the rule takes some namespaces only; give %[1]s a rule of their own", p)))
		}
	}
	return list
}

// validateOrder finds what rule j can never take because rules before it take it first. Since a resource is taken whole
// by the first rule that names it, an earlier rule which takes a part of a resource leaves nothing of it either; that
// is a limit of this release and said as one.
func validateOrder(rules []Rule, j int, path *field.Path) field.ErrorList {
	var list field.ErrorList
	for k, q := range rules[j].Resources {
		list = append(list, validatePattern(rules, j, q.span(), path, path.Index(j).Child("resources").Index(k))...)
	}
	return list
}

// validatePattern is validateOrder for one pattern of rule j.
func validatePattern(rules []Rule, j int, q span, path, at *field.Path) field.ErrorList {
	except := rules[j].Except
	for n, e := range except {
		if e.span().covers(q) {
			return field.ErrorList{field.Forbidden(at,
				fmt.Sprintf("can never match: %s excepts it", path.Index(j).Child("except").Index(n)))}
		}
	}
	var list field.ErrorList
	for i := range j {
		parts := rules[i].takesOf(q, except)
		if len(parts) == 0 {
			continue
		}
		switch limits := rules[i].limits(); {
		case len(limits) > 0:
			all := slices.ContainsFunc(parts, func(p span) bool { return p.anyVersion().covers(q.anyVersion()) })
			names := joined(parts)
			cure := fmt.Sprintf("add %s to %s", names, path.Index(j).Child("except"))
			switch {
			case all && rules[i].names(q.resource):
				cure = fmt.Sprintf("name %s in one rule only", names)
			case all:
				cure = fmt.Sprintf("add %s to %s", names, path.Index(i).Child("except"))
			}
			list = append(list, unsupported(at, fmt.Sprintf("%s takes %s in part (%s), and what it leaves of a resource "+
				"cannot be taken by a later rule; %s", path.Index(i), names, strings.Join(limits, ", "), cure)))
		case slices.ContainsFunc(parts, func(p span) bool { return p.covers(q) }) && !rules[i].exceptsOf(q):
			return append(list, field.Forbidden(at, fmt.Sprintf("can never match: %s takes %s", path.Index(i), q)))
		}
	}
	return list
}

// takesOf returns the parts of s, less except, that the rule takes.
func (r *Rule) takesOf(s span, except []ResourcePattern) []span {
	var parts []span
	for _, p := range r.Resources {
		x, ok := p.span().intersect(s)
		excepted := func(e ResourcePattern) bool { return e.span().covers(x) }
		switch {
		case !ok, slices.ContainsFunc(r.Except, excepted), slices.ContainsFunc(except, excepted):
		case x.covers(s):
			return []span{x}
		default:
			parts = append(parts, x)
		}
	}
	return parts
}

// names reports whether the rule names the resource itself, not by a wildcard.
func (r *Rule) names(resource string) bool {
	return slices.ContainsFunc(r.Resources, func(p ResourcePattern) bool { return p.Resource == resource })
}

func joined(spans []span) string {
	names := make([]string, len(spans))
	for i, s := range spans {
		names[i] = s.String()
	}
	return strings.Join(names, ", ")
}

// exceptsOf reports whether the rule leaves out anything of s.
func (r *Rule) exceptsOf(s span) bool {
	return slices.ContainsFunc(r.Except, func(e ResourcePattern) bool {
		_, ok := e.span().intersect(s)
		return ok
	})
}

// limits names what makes the rule take a part of a resource only.
func (r *Rule) limits() []string {
	var limits []string
	if !r.Namespaces.All() {
		limits = append(limits, "namespaces")
	}
	if r.LabelSelector != "" {
		limits = append(limits, "labelSelector")
	}
	if r.FieldSelector != "" {
		limits = append(limits, "fieldSelector")
	}
	return limits
}

// validateStrip refuses to cut what identifies an object, and what is no path.
func validateStrip(strip []string, path *field.Path) field.ErrorList {
	list := unique(strip, path)
	for i, s := range strip {
		switch at := path.Index(i); {
		case !fieldPath.MatchString(s):
			list = append(list, field.Invalid(at, s, "must be a path such as metadata.managedFields, "+
				`metadata.annotations["example.com/note"] or spec.containers[*].env`))
		case identity.MatchString(s):
			list = append(list, field.Invalid(at, s, "must not cut what identifies an object"))
		}
	}
	return list
}

var (
	// fieldPath is what object.NewCutter takes: names, ["names"] as JSON strings, and [*] for all elements of a list.
	fieldPath = regexp.MustCompile(`^[^\x00-\x20\x7f.\[\]*"']+(` +
		`\.[^\x00-\x20\x7f.\[\]*"']+|\[\*\]|\["([^"\\\x00-\x1f]|\\["\\/bfnrt]|\\u[0-9a-fA-F]{4})*"\])*$`)
	identity = regexp.MustCompile(`^(apiVersion|kind|metadata(\.(name|namespace|uid|resourceVersion)|` +
		`\["(name|namespace|uid|resourceVersion)"\])?)$`)
)

func (r *Redaction) validate(path *field.Path) field.ErrorList {
	var list field.ErrorList
	if !r.Secrets {
		list = append(list, field.Invalid(path.Child("secrets"), r.Secrets,
			"must be true: the values of Secrets never leave the cluster"))
	}
	return append(list, inEnum(path.Child("mode"), r.Mode)...)
}

func (c *Config) validateSnapshot(path *field.Path) field.ErrorList {
	list := inEnum(path.Child("mode"), c.Snapshot.Mode)
	every, at := c.Snapshot.Every, path.Child("every")
	age, key := c.expiry()
	switch wrong := inLimit(at, every); {
	case len(wrong) > 0:
		list = append(list, wrong...)
	case every.Duration == 0:
	case c.Snapshot.Mode == SnapshotNever:
		list = append(list, field.Invalid(at, every, "must be 0s where snapshot.mode is never; leave it out"))
	case age > 0 && every.Duration >= age:
		list = append(list, field.Invalid(at, every, fmt.Sprintf("must be less than %s (%v), or what did not change "+
			"since would be on the bus no longer; write 0s for never", key, Duration{age})))
	}
	return list
}

func (c *Checkpoint) validate(path *field.Path) field.ErrorList {
	switch {
	case c.ConfigMap != nil && c.File != nil:
		return field.ErrorList{field.Forbidden(path, "must name one place only, got configMap and file")}
	case c.ConfigMap != nil:
		return c.ConfigMap.validate(path.Child("configMap"))
	case c.File != nil && !absolutePath.MatchString(c.File.Path):
		return field.ErrorList{field.Invalid(path.Child("file", "path"), c.File.Path,
			"must be an absolute path, such as /var/lib/kubecdc/checkpoint.json: another start would not find it from another directory")}
	}
	return nil
}

func (m *CheckpointConfigMap) validate(path *field.Path) field.ErrorList {
	var list field.ErrorList
	if !namespaceName.MatchString(m.Namespace) {
		list = append(list, field.Invalid(path.Child("namespace"), m.Namespace, "must be the name of a namespace: at most 63 of "+
			`a-z, 0-9 and "-", beginning and ending with a letter or digit`))
	}
	if !subdomain.MatchString(m.Name) {
		list = append(list, field.Invalid(path.Child("name"), m.Name, "must be what a ConfigMap can be called: at most 253 of "+
			`a-z, 0-9, "-" and ".", beginning and ending with a letter or digit`))
	}
	return list
}

var (
	absolutePath = regexp.MustCompile(`^(/|[A-Za-z]:[/\\])`)
	// A namespace is a DNS label, the name of a ConfigMap or a Lease a DNS subdomain (RFC 1123).
	namespaceName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)
	subdomain     = regexp.MustCompile(`^[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?$`)
)

func (l *LeaderElection) validate(path *field.Path) field.ErrorList {
	var list field.ErrorList
	if !subdomain.MatchString(l.Lease) {
		list = append(list, field.Invalid(path.Child("lease"), l.Lease, "must be what a Lease can be called: at most 253 of "+
			`a-z, 0-9, "-" and ".", beginning and ending with a letter or digit`))
	}
	if l.Namespace != "" && !namespaceName.MatchString(l.Namespace) {
		list = append(list, field.Invalid(path.Child("namespace"), l.Namespace, "must be the name of a namespace: at most 63 of "+
			`a-z, 0-9 and "-", beginning and ending with a letter or digit`))
	}
	list = append(list, inLimit(path.Child("leaseDuration"), l.LeaseDuration)...)
	list = append(list, inLimit(path.Child("renewDeadline"), l.RenewDeadline)...)
	list = append(list, inLimit(path.Child("retryPeriod"), l.RetryPeriod)...)
	if len(list) > 0 {
		return list
	}
	// The order is client-go's, its jitter included (leaderelection.NewLeaderElector). A leader that is not sure any more
	// has to be silent before another one begins.
	if l.RenewDeadline.Duration >= l.LeaseDuration.Duration {
		list = append(list, field.Invalid(path.Child("renewDeadline"), l.RenewDeadline, fmt.Sprintf(
			"must be less than leaseDuration (%v): a leader has to be silent before another one begins", l.LeaseDuration)))
	}
	if float64(l.RetryPeriod.Duration)*1.2 >= float64(l.RenewDeadline.Duration) {
		list = append(list, field.Invalid(path.Child("retryPeriod"), l.RetryPeriod, fmt.Sprintf(
			"must be less than renewDeadline (%v) by a sixth or more: the Lease has to be renewed in time", l.RenewDeadline)))
	}
	return list
}

// validatePlaces finds a checkpoint that several agents, of which one works, cannot hand to one another.
func (c *Config) validatePlaces(path *field.Path) field.ErrorList {
	switch {
	case !c.LeaderElection.Enabled:
	case c.Mode == ModeNode:
		return field.ErrorList{field.Forbidden(path, "must be false where mode is node: there is one agent for each node, and none takes the place of another")}
	case c.Checkpoint.File != nil:
		return field.ErrorList{field.Forbidden(path, "needs a checkpoint that all replicas can read and write: name a configMap in checkpoint, or leave checkpoint out")}
	}
	return nil
}

func (t *Tracing) validate(path *field.Path) field.ErrorList {
	list := validateEndpoint(t.Endpoint, path.Child("endpoint"))
	list = append(list, secretFile(path.Child("headersFile"), t.HeadersFile)...)
	if t.TLS != nil && strings.HasPrefix(t.Endpoint, "http://") {
		list = append(list, field.Forbidden(path.Child("tls"), "is of no use where the endpoint begins with http://; write https:// there, or leave it out"))
	}
	return append(list, t.TLS.validate(path.Child("tls"))...)
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

func unsupported(path *field.Path, what string) *field.Error {
	return field.Forbidden(path, "not yet supported: "+what)
}

func unique[T ~string | ResourcePattern](items []T, path *field.Path) field.ErrorList {
	var list field.ErrorList
	for i, item := range items {
		if slices.Contains(items[:i], item) {
			list = append(list, field.Invalid(path.Index(i), item, "must not be given twice"))
		}
	}
	return list
}

// flatten puts an error of a library on one line.
func flatten(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }

// show is a value in an error: text in quotes, all of it short.
func show(v any) string {
	switch t := v.(type) {
	case string:
		return strconv.Quote(shorten(mask(t)))
	case NamespacePattern:
		return strconv.Quote(shorten(string(t)))
	}
	return shorten(fmt.Sprint(v))
}

func shorten(s string) string {
	const most = 80
	if r := []rune(s); len(r) > most {
		return string(r[:most]) + "…"
	}
	return s
}
