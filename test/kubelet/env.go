//go:build linux

package kubelet

import (
	"context"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// environment returns the environment of a container, in the order in which later variables
// override earlier ones.
func (p *pod) environment(ctx context.Context, c *corev1.Container) ([]string, map[string]string, error) {
	values := map[string]string{
		"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOSTNAME": p.object.Name,
		"KUBERNETES_SERVICE_HOST": p.k.opts.APIServerHost, "KUBERNETES_SERVICE_PORT": p.k.opts.APIServerPort,
	}
	for _, from := range c.EnvFrom {
		var found map[string]string
		var err error
		switch {
		case from.ConfigMapRef != nil:
			found, err = p.configMap(ctx, from.ConfigMapRef.Name, from.ConfigMapRef.Optional)
		case from.SecretRef != nil:
			found, err = p.secret(ctx, from.SecretRef.Name, from.SecretRef.Optional)
		}
		if err != nil {
			return nil, nil, err
		}
		for name, v := range found {
			values[from.Prefix+name] = v
		}
	}
	for _, e := range c.Env {
		v, found, err := p.value(ctx, c, e, values)
		if err != nil {
			return nil, nil, fmt.Errorf("env %s: %w", e.Name, err)
		}
		if found {
			values[e.Name] = v
		}
	}
	var out []string
	for _, name := range slices.Sorted(maps.Keys(values)) {
		out = append(out, name+"="+values[name])
	}
	return out, values, nil
}

func (p *pod) value(
	ctx context.Context, c *corev1.Container, e corev1.EnvVar, before map[string]string,
) (_ string, found bool, err error) {
	from := e.ValueFrom
	if from == nil {
		return expand(e.Value, before), true, nil
	}
	pick := func(data map[string]string, err error, key string, optional *bool) (string, bool, error) {
		if err != nil {
			return "", false, err
		}
		v, ok := data[key]
		if !ok && (optional == nil || !*optional) {
			return "", false, fmt.Errorf("no key %q", key)
		}
		return v, ok, nil
	}
	switch {
	case from.FieldRef != nil:
		v, err := p.field(from.FieldRef.FieldPath)
		return v, err == nil, err
	case from.ResourceFieldRef != nil:
		return limit(c, from.ResourceFieldRef), true, nil
	case from.ConfigMapKeyRef != nil:
		data, err := p.configMap(ctx, from.ConfigMapKeyRef.Name, from.ConfigMapKeyRef.Optional)
		return pick(data, err, from.ConfigMapKeyRef.Key, from.ConfigMapKeyRef.Optional)
	case from.SecretKeyRef != nil:
		data, err := p.secret(ctx, from.SecretKeyRef.Name, from.SecretKeyRef.Optional)
		return pick(data, err, from.SecretKeyRef.Key, from.SecretKeyRef.Optional)
	default:
		return "", false, fmt.Errorf("valueFrom is of a kind that this kubelet does not know: %v", from)
	}
}

var subscript = regexp.MustCompile(`^metadata\.(labels|annotations)\['([^']+)'\]$`)

// field returns a field of the Pod, as the downward API does.
func (p *pod) field(path string) (string, error) {
	o := p.object
	if m := subscript.FindStringSubmatch(path); m != nil {
		if m[1] == "labels" {
			return o.Labels[m[2]], nil
		}
		return o.Annotations[m[2]], nil
	}
	switch path {
	case "metadata.name":
		return o.Name, nil
	case "metadata.namespace":
		return o.Namespace, nil
	case "metadata.uid":
		return string(o.UID), nil
	case "spec.nodeName":
		return p.node, nil
	case "spec.serviceAccountName":
		return o.Spec.ServiceAccountName, nil
	case "status.podIP", "status.hostIP", "status.podIPs", "status.hostIPs":
		return p.ip, nil
	default:
		return "", fmt.Errorf("field %s: not one that this kubelet knows", path)
	}
}

// limit returns a resource of the container in units of the divisor, rounded up; without one, that
// of the node.
func limit(c *corev1.Container, ref *corev1.ResourceFieldSelector) string {
	kind, name, _ := strings.Cut(ref.Resource, ".")
	list := c.Resources.Limits
	if kind == "requests" {
		list = c.Resources.Requests
	}
	q, ok := list[corev1.ResourceName(name)]
	if !ok {
		q = map[string]resource.Quantity{"cpu": resource.MustParse("8"), "memory": resource.MustParse("32Gi")}[name]
	}
	divisor := ref.Divisor
	if divisor.IsZero() {
		divisor = resource.MustParse("1")
	}
	if name == "cpu" {
		return fmt.Sprint(int64(math.Ceil(float64(q.MilliValue()) / float64(divisor.MilliValue()))))
	}
	return fmt.Sprint(int64(math.Ceil(float64(q.Value()) / float64(divisor.Value()))))
}

var reference = regexp.MustCompile(`\$\$|\$\([A-Za-z_.-][A-Za-z0-9_.-]*\)`)

// expand replaces $(NAME) by its value. Unknown names stay as they are, and $$ is a dollar.
func expand(s string, values map[string]string) string {
	return reference.ReplaceAllStringFunc(s, func(ref string) string {
		if ref == "$$" {
			return "$"
		}
		if v, ok := values[ref[2:len(ref)-1]]; ok {
			return v
		}
		return ref
	})
}

func (p *pod) configMap(ctx context.Context, name string, optional *bool) (map[string]string, error) {
	o, err := p.k.client.CoreV1().ConfigMaps(p.object.Namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, unlessOptional(err, optional)
	}
	data := maps.Clone(o.Data)
	if data == nil {
		data = map[string]string{}
	}
	for key, v := range o.BinaryData {
		data[key] = string(v)
	}
	return data, nil
}

func (p *pod) secret(ctx context.Context, name string, optional *bool) (map[string]string, error) {
	o, err := p.k.client.CoreV1().Secrets(p.object.Namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, unlessOptional(err, optional)
	}
	data := map[string]string{}
	for key, v := range o.Data {
		data[key] = string(v)
	}
	return data, nil
}
