//go:build linux

package kubelet

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	authv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func unlessOptional(err error, optional *bool) error {
	if optional != nil && *optional && apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// file is a file of a volume.
type file struct {
	text string
	mode os.FileMode
	user int64 // the owner
}

// volume creates the volume's directory and returns it.
func (p *pod) volume(ctx context.Context, v *corev1.Volume) (string, error) {
	dir := filepath.Join(p.dir, "volumes", v.Name)
	if v.HostPath != nil {
		return p.hostPath(v.HostPath)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	files := map[string]file{}
	var err error
	switch {
	case v.EmptyDir != nil:
		// With the permissions of a kubelet, whatever the umask is.
		if err := os.Chmod(dir, 0o777); err != nil {
			return "", err
		}
		return dir, p.group(dir, 0o2777)
	case v.ConfigMap != nil:
		s := v.ConfigMap
		var data map[string]string
		data, err = p.configMap(ctx, s.Name, s.Optional)
		if err == nil {
			err = items(files, data, s.Items, s.DefaultMode, s.Optional)
		}
	case v.Secret != nil:
		s := v.Secret
		var data map[string]string
		data, err = p.secret(ctx, s.SecretName, s.Optional)
		if err == nil {
			err = items(files, data, s.Items, s.DefaultMode, s.Optional)
		}
	case v.DownwardAPI != nil:
		err = p.downward(files, v.DownwardAPI.Items, v.DownwardAPI.DefaultMode)
	case v.Projected != nil:
		for i := range v.Projected.Sources {
			if err = p.project(ctx, files, &v.Projected.Sources[i], v.Projected.DefaultMode); err != nil {
				break
			}
		}
	default:
		err = fmt.Errorf("of a kind that this kubelet does not know: %+v", v.VolumeSource)
	}
	if err != nil {
		return "", err
	}
	for name, f := range files {
		path := filepath.Join(dir, filepath.Clean("/"+name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return "", err
		}
		if err := os.WriteFile(path, []byte(f.text), 0o600); err != nil {
			return "", err
		}
		if err := os.Chmod(path, f.mode); err != nil {
			return "", err
		}
		if err := os.Chown(path, int(f.user), 0); err != nil {
			return "", err
		}
		if err := p.group(path, f.mode|0o440); err != nil {
			return "", err
		}
	}
	return dir, nil
}

// group gives the file to the Pod's fsGroup, if it has one.
func (p *pod) group(path string, mode os.FileMode) error {
	if s := p.object.Spec.SecurityContext; s != nil && s.FSGroup != nil {
		if err := os.Chown(path, -1, int(*s.FSGroup)); err != nil {
			return err
		}
		return os.Chmod(path, mode)
	}
	return nil
}

// items returns the files of a ConfigMap's or Secret's data: all keys, or the named ones.
func items(files map[string]file, data map[string]string, keys []corev1.KeyToPath, mode *int32, optional *bool) error {
	if len(keys) == 0 {
		for key, text := range data {
			files[key] = file{text: text, mode: fileMode(mode)}
		}
		return nil
	}
	for _, k := range keys {
		text, ok := data[k.Key]
		if !ok {
			if optional != nil && *optional {
				continue
			}
			return fmt.Errorf("references non-existent key: %s", k.Key)
		}
		m := fileMode(mode)
		if k.Mode != nil {
			m = fileMode(k.Mode)
		}
		files[k.Path] = file{text: text, mode: m}
	}
	return nil
}

func fileMode(m *int32) os.FileMode {
	if m == nil {
		return 0o644
	}
	return os.FileMode(*m) & os.ModePerm
}

func (p *pod) downward(files map[string]file, items []corev1.DownwardAPIVolumeFile, mode *int32) error {
	for _, item := range items {
		if item.FieldRef == nil {
			return fmt.Errorf("%s: not a field of the Pod", item.Path)
		}
		text, err := p.field(item.FieldRef.FieldPath)
		if err != nil {
			return err
		}
		files[item.Path] = file{text: text, mode: fileMode(mode)}
	}
	return nil
}

func (p *pod) project(ctx context.Context, files map[string]file, s *corev1.VolumeProjection, mode *int32) error {
	switch {
	case s.ServiceAccountToken != nil:
		token, err := p.token(ctx, s.ServiceAccountToken)
		if err != nil {
			return err
		}
		f := file{text: token, mode: fileMode(mode)}
		// For its user alone, if all containers have the same.
		if sc := p.object.Spec.SecurityContext; sc != nil && sc.RunAsUser != nil {
			f.mode, f.user = 0o600, *sc.RunAsUser
		}
		files[s.ServiceAccountToken.Path] = f
		return nil
	case s.ConfigMap != nil:
		data, err := p.configMap(ctx, s.ConfigMap.Name, s.ConfigMap.Optional)
		if err != nil {
			return err
		}
		return items(files, data, s.ConfigMap.Items, mode, s.ConfigMap.Optional)
	case s.Secret != nil:
		data, err := p.secret(ctx, s.Secret.Name, s.Secret.Optional)
		if err != nil {
			return err
		}
		return items(files, data, s.Secret.Items, mode, s.Secret.Optional)
	case s.DownwardAPI != nil:
		return p.downward(files, s.DownwardAPI.Items, mode)
	default:
		return fmt.Errorf("of a kind that this kubelet does not know: %+v", s)
	}
}

// token returns a token of the Pod's ServiceAccount, bound to the Pod.
func (p *pod) token(ctx context.Context, s *corev1.ServiceAccountTokenProjection) (string, error) {
	request := &authv1.TokenRequest{Spec: authv1.TokenRequestSpec{
		ExpirationSeconds: s.ExpirationSeconds,
		BoundObjectRef: &authv1.BoundObjectReference{
			APIVersion: "v1",
			Kind:       "Pod",
			Name:       p.object.Name,
			UID:        p.object.UID,
		},
	}}
	if s.Audience != "" {
		request.Spec.Audiences = []string{s.Audience}
	}
	answer, err := p.k.client.CoreV1().ServiceAccounts(p.object.Namespace).
		CreateToken(ctx, p.object.Spec.ServiceAccountName, request, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("token of service account %s: %w", p.object.Spec.ServiceAccountName, err)
	}
	return answer.Status.Token, nil
}

// hostPath returns a path on the Pod's node.
func (p *pod) hostPath(s *corev1.HostPathVolumeSource) (string, error) {
	path := p.k.HostPath(p.node, s.Path)
	kind := corev1.HostPathUnset
	if s.Type != nil {
		kind = *s.Type
	}
	switch kind {
	case corev1.HostPathDirectoryOrCreate, corev1.HostPathUnset:
		return path, os.MkdirAll(path, 0o755)
	case corev1.HostPathDirectory:
		_, err := os.Stat(path)
		return path, err
	default:
		return "", fmt.Errorf("hostPath of type %q: not one that this kubelet knows", kind)
	}
}

// mounts returns the mounts of a container.
func (p *pod) mounts(ctx context.Context, c *corev1.Container, values map[string]string) ([]mount, error) {
	var out []mount
	for i := range c.VolumeMounts {
		m := &c.VolumeMounts[i]
		source := ""
		for j := range p.object.Spec.Volumes {
			v := &p.object.Spec.Volumes[j]
			if v.Name != m.Name {
				continue
			}
			var err error
			source, err = p.volumeOnce(ctx, v)
			if err != nil {
				return nil, fmt.Errorf("volume %s: %w", v.Name, err)
			}
		}
		if source == "" {
			return nil, fmt.Errorf("mount %s: no such volume: %s", m.MountPath, m.Name)
		}
		sub := m.SubPath
		if m.SubPathExpr != "" {
			sub = expand(m.SubPathExpr, values)
		}
		readOnly := m.ReadOnly
		for j := range p.object.Spec.Volumes {
			v := &p.object.Spec.Volumes[j]
			if v.Name == m.Name &&
				(v.ConfigMap != nil || v.Secret != nil || v.Projected != nil || v.DownwardAPI != nil) {
				readOnly = true
			}
		}
		source = filepath.Join(source, filepath.Clean("/"+sub))
		if sub != "" && !readOnly {
			if err := os.MkdirAll(source, 0o750); err != nil {
				return nil, err
			}
		}
		out = append(out, mount{source: source, target: strings.TrimSuffix(m.MountPath, "/"), readOnly: readOnly})
	}
	return out, nil
}

func (p *pod) volumeOnce(ctx context.Context, v *corev1.Volume) (string, error) {
	if dir, ok := p.volumes[v.Name]; ok {
		return dir, nil
	}
	dir, err := p.volume(ctx, v)
	if err == nil {
		p.volumes[v.Name] = dir
	}
	return dir, err
}
