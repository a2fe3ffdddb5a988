package nats

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/kubecdc/kubecdc/internal/bus/nats/natsconfig"
	"github.com/kubecdc/kubecdc/internal/bus/nats/silence"
	"github.com/kubecdc/kubecdc/internal/publish"
)

// credentialsError describes an unusable file of credentials. It contains nothing from the file.
type credentialsError struct{ error }

// adviceOn returns the fix if the server rejects the credentials.
func adviceOn(a *natsconfig.Auth, key string) string {
	name, file := a.File()
	if file == "" {
		return fmt.Sprintf("the server requires credentials, or others than those in %s.url: set %s.auth", key, key)
	}
	who := ""
	if a.User != "" {
		who = " for user " + a.User
	}
	return fmt.Sprintf(
		"the server rejects the credentials%s in %s (%s.auth.%s): correct them, they are read again at each attempt",
		who, file, key, name)
}

// readSecret reads the file and checks that it contains a secret. If the secret is a seed, nkey is
// the public key of its user.
func readSecret(a *natsconfig.Auth, key string) (secret, nkey string, err error) {
	name, file := a.File()
	if file == "" {
		return "", "", nil
	}
	wrong := func(err error) (string, string, error) {
		if key != "" {
			file = key + ".auth." + name + " " + file
		}
		return "", "", credentialsError{fmt.Errorf("%s: %w", file, err)}
	}
	b, err := publish.ReadFile(file)
	if err != nil {
		pathErr := new(os.PathError)
		if errors.As(err, &pathErr) {
			err = pathErr.Err // credentialsError names the file
		}
		return wrong(fmt.Errorf("cannot be read: %w", err))
	}
	secret = strings.TrimRight(string(b), "\r\n")
	var o nats.Options
	switch {
	case secret == "":
		return wrong(errors.New("is empty"))
	case a.CredsFile != "":
		_ = nats.UserCredentialBytes(b)(&o)
		jwt, err := o.UserJWT()
		if err == nil && strings.Count(jwt, ".") == 2 {
			_, err = o.SignatureCB(nil)
		} else {
			err = errors.New("no JWT")
		}
		if err != nil {
			return wrong(errors.New("contains no user JWT and seed, as 'nsc generate creds' writes them"))
		}
	case a.NKeySeedFile != "":
		option, err := nats.NkeyOptionFromSeed(file)
		if err != nil {
			return wrong(errors.New("contains no user seed, which begins with SU"))
		}
		_ = option(&o)
		nkey = o.Nkey
	}
	return secret, nkey, nil
}

// isOtherSeed reports whether the file has the seed of a user other than the one with this public
// key.
func isOtherSeed(a *natsconfig.Auth, nkey *string) bool {
	if a.NKeySeedFile == "" || nkey == nil {
		return false
	}
	_, now, err := readSecret(a, "")
	return err == nil && now != *nkey
}

// ConnectOptions returns options for a separate connection with nats.go: credentials and
// certificates, read again at each connect. key is the place of the bus in the configuration, "" if
// it has none. An error names the key and the unusable file.
func (o Opener) ConnectOptions(key string) ([]nats.Option, error) {
	options, _, err := o.options(key, func(error) {}) // ignored: connecting reports an unreadable file
	if err == nil && o.InPlaintext() {
		options = append(options, o.dialer(context.Background(), nil).use)
	}
	return options, err
}

// options returns the options of all connections except the dialer, and the public key if the
// credentials are a seed. See credentialsOption for unusable.
func (o Opener) options(key string, unusable func(error)) (opts []nats.Option, nkey string, err error) {
	credentials, nkey, err := credentialsOption(&o.Auth, key, unusable)
	if err != nil {
		return nil, "", err
	}
	secure, err := tlsOption(o.TLS, key)
	if err != nil {
		return nil, "", err
	}
	return []nats.Option{
		credentials,
		secure,
		nats.CustomInboxPrefix(cmp.Or(o.InboxPrefix, natsconfig.DefaultInbox)),
		nats.PingInterval(silence.Ping), // the dialer ends a connection on which no answer arrives
		nats.MaxPingsOutstanding(silence.MaxPings),
	}, nkey, nil
}

// tlsOption returns the TLS option. Each handshake reads the files again.
func tlsOption(t *publish.TLS, key string) (nats.Option, error) {
	config, err := t.Config()
	switch {
	case err != nil && key == "":
		return nil, err
	case err != nil:
		return nil, fmt.Errorf("%s.%w", key, err)
	}
	return func(o *nats.Options) error {
		if config == nil {
			return nil // the URL or the server may still require TLS
		}
		o.Secure = true
		o.TLSConfig = config
		o.RootCAsCB = t.Roots
		return nil
	}, nil
}

// credentialsOption returns the option with the credentials; nkey is the public key if they are a
// seed. If a later reading of the file fails, the error goes to unusable, or fails the connect.
func credentialsOption(a *natsconfig.Auth, key string, unusable func(error)) (o nats.Option, nkey string, err error) {
	_, nkey, err = readSecret(a, key)
	if err != nil {
		return nil, "", err
	}
	again := func() string {
		secret, _, err := readSecret(a, key)
		if err != nil {
			unusable(err)
		}
		return secret
	}
	switch {
	case a.CredsFile != "":
		creds := func() (*nats.Options, error) {
			secret, _, err := readSecret(a, key)
			o := new(nats.Options)
			_ = nats.UserCredentialBytes([]byte(secret))(o)
			return o, err
		}
		return nats.UserJWT(
			func() (string, error) {
				o, err := creds()
				if err != nil {
					return "", err
				}
				return o.UserJWT()
			},
			func(nonce []byte) ([]byte, error) {
				o, err := creds()
				if err != nil {
					return nil, err
				}
				return o.SignatureCB(nonce)
			}), "", nil
	case a.User != "":
		return nats.UserInfoHandler(func() (string, string) { return a.User, again() }), "", nil
	case a.TokenFile != "":
		return nats.TokenHandler(again), "", nil
	case a.NKeySeedFile != "":
		o, err = nats.NkeyOptionFromSeed(a.NKeySeedFile)
		return o, nkey, err
	}
	return func(*nats.Options) error { return nil }, "", nil
}
